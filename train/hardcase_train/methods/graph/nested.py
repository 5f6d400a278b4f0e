# SPDX-License-Identifier: Apache-2.0
"""Policies on a graph of nested sensor subsets, with a threshold on the classifier's margin in each state.

Graph reduce (``reduce``) over prices, where each state learns a cut: rows with a margin above it stop, and all others
take the same action, to a larger state or to f0. So for each price the states that rows reach form a chain, and the
policy is a ``StagedPolicy``. docs/math.md (71).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...method import Params
from ...policy.confidences import NEVER
from ...policy.front import Point, best_points
from ...policy.prices import prices
from ...stages.rules import near_cuts, shortened_cuts
from ...stages.staged_policy import StagedPolicy
from ...stages.subset_search import SubsetSearch
from ...stages.thresholds import FORBIDDEN, Choices, Cut, Cuts, best_way
from ...successors.reduce import Graph, learn_graph

__all__ = ["graph_prices", "nested_points"]

LEAST_PRICE = 0.01  # errors per cost of the most expensive case
MOST_PRICE = 0.5  # errors per cost of the cheapest state; few readings prevent more


def graph_prices(search: SubsetSearch, graph: Graph, n: int) -> list[float]:
    """Prices, errors per unit of cost, from one that buys almost everything to one that buys nothing."""
    unit = search.problem.cost_unit
    spent = [cost for state in graph.states if (cost := search.problem.sensor_costs()[list(state)].sum()) > 0]
    highest = MOST_PRICE * unit / min(spent) if spent else LEAST_PRICE
    return prices(search.problem, n, LEAST_PRICE, max(highest, LEAST_PRICE))


def nested_points(search: SubsetSearch, graph: Graph, params: Params) -> list[Point]:
    """The points over prices that are best on the judged rows, on which the cuts are learned too.

    Parameters
    ----------
    params : a setting of ``dag``; its "classifier" is the kind of trees
    """
    staged = StagedPolicy(search.judge, graph.states, search.models(graph.states, params["classifier"]))
    grid = graph_prices(search, graph, search.problem.effort.n_prices)
    policies: list[tuple[float, Cuts]] = []
    for choices in staged.learned_on:
        chains = [priced_way(staged, graph, price, choices) for price in grid]
        policies += [(price, cuts) for price, chain in zip(grid, chains, strict=True) for cuts in shortened_cuts(chain)]
        policies += near_cuts(choices, grid, chains)
    return best_points(staged.best("dag", [({**params, "price": price}, cuts) for price, cuts in policies]))


def priced_way(staged: StagedPolicy, graph: Graph, price: float, choices: Choices | None = None) -> Cuts:
    """The cuts of the stages that rows reach when a unit of cost is worth ``price`` errors; empty if all forward."""
    choices = staged.choices if choices is None else choices
    losses = np.column_stack([stage.wrong for stage in choices.stages])
    cost = np.column_stack([stage.cost for stage in choices.stages])
    edges = [cost[:, t] - cost[:, s] for s, ends in enumerate(graph.edges) for t in ends]
    other = choices.cloud_wrong[:, None] + price * (choices.cloud_cost[:, None] - cost)
    other = other + FORBIDDEN * np.array([not staged.judge.problem.may_forward(s) for s in graph.states])

    def learn(s: int, costs: np.ndarray, focus: np.ndarray) -> tuple[tuple[float, int], np.ndarray]:
        margin = choices.stages[s].margin
        cut, action = best_way(costs, margin, choices.weight * focus)
        return (cut, action), np.where(margin >= cut, 0, action)

    steps = np.column_stack(edges) if edges else np.empty((len(cost), 0))
    ways, _ = learn_graph(graph, losses, price * steps, learn, other)
    return _followed(staged, graph, ways)


def _followed(staged: StagedPolicy, graph: Graph, ways: Sequence[tuple[float, int]]) -> Cuts:
    """The cuts of the states in which rows stop, following the chain from the first state."""
    cuts: Cuts = {}
    left, s = np.ones(len(staged.choices.weight), dtype=bool), 0
    while True:
        bound, action = ways[s]
        ends = left & staged.ends(s, Cut(bound))
        if ends.any():
            cuts[s] = Cut(bound)
        left &= ~ends
        if bound <= -NEVER or not 1 <= action <= len(graph.edges[s]):
            return cuts
        s = graph.edges[s][action - 1]
