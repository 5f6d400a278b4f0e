"""Policies on a graph of nested sets whose states look at their classifier's margin alone.

Graph reduce (``dag``) over prices, each state learning a cut: rows whose margin is wide enough stop, and all others go
the same way on, to a larger state or to the cloud. So the states that rows come to are a chain, another one for each
price, and the policy is a staged one (``staged``). docs/math.md (71).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...method import Params
from ...policy.answers import NEVER
from ...policy.front import Point, best_points
from ...policy.prices import prices
from ...stages.rules import near_cuts, shortened_cuts
from ...stages.staged_policy import StagedPolicy
from ...stages.subset_search import SubsetSearch
from ...stages.thresholds import Cut, Cuts, best_way
from .reduce import Graph, learn_graph

__all__ = ["graph_prices", "nested_points"]

LEAST_PRICE = 0.01  # errors for what the most expensive case costs
MOST_PRICE = 0.5  # errors for what the cheapest state costs: few readings save as much


def graph_prices(search: SubsetSearch, graph: Graph, n: int) -> list[float]:
    """Errors for a unit of cost, from what buys most to what buys nothing."""
    unit = search.problem.cost_unit
    spent = [cost for state in graph.states if (cost := search.problem.sensor_costs()[list(state)].sum()) > 0]
    highest = MOST_PRICE * unit / min(spent) if spent else LEAST_PRICE
    return prices(search.problem, n, LEAST_PRICE, max(highest, LEAST_PRICE))


def nested_points(search: SubsetSearch, graph: Graph, params: Params) -> list[Point]:
    """The points that the judged rows keep over prices; cuts are learned on these rows.

    Parameters
    ----------
    params : with the kind of its "classifier"
    """
    staged = StagedPolicy(search.judge, graph.states, search.models(graph.states, params["classifier"]))
    tried = graph_prices(search, graph, search.problem.effort.n_prices)
    chains = [priced_way(staged, graph, price) for price in tried]
    policies = [(price, cuts) for price, chain in zip(tried, chains, strict=True) for cuts in shortened_cuts(chain)]
    policies += near_cuts(staged.choices, tried, chains)
    return best_points(staged.best("dag", [({**params, "price": price}, cuts) for price, cuts in policies]))


def priced_way(staged: StagedPolicy, graph: Graph, price: float) -> Cuts:
    """The stages that rows come to where a unit of cost is worth ``price`` errors; none where all are forwarded."""
    choices = staged.choices
    losses = np.column_stack([stage.wrong for stage in choices.stages])
    cost = np.column_stack([stage.cost for stage in choices.stages])
    edges = [cost[:, t] - cost[:, s] for s, ends in enumerate(graph.edges) for t in ends]
    other = choices.cloud_wrong[:, None] + price * (choices.cloud_cost[:, None] - cost)

    def learn(s: int, costs: np.ndarray, focus: np.ndarray) -> tuple[tuple[float, int], np.ndarray]:
        margin = choices.stages[s].margin
        cut, action = best_way(costs, margin, choices.weight * focus)
        return (cut, action), np.where(margin >= cut, 0, action)

    ways, _ = learn_graph(graph, losses, price * np.column_stack(edges), learn, other)
    return _followed(staged, graph, ways)


def _followed(staged: StagedPolicy, graph: Graph, ways: Sequence[tuple[float, int]]) -> Cuts:
    """The cuts of the states that rows come to and end in, from the first on."""
    cuts: Cuts = {}
    here, s = np.ones(len(staged.choices.weight), dtype=bool), 0
    while True:
        bound, action = ways[s]
        ends = here & staged.ends(s, Cut(bound))
        if ends.any():
            cuts[s] = Cut(bound)
        here &= ~ends
        if bound <= -NEVER or not 1 <= action <= len(graph.edges[s]):
            return cuts
        s = graph.edges[s][action - 1]
