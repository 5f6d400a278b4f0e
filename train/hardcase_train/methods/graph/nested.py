"""Policies on a graph of nested sets whose states look at their classifier's margin alone.

Graph reduce (``dag``) over prices, each state learning a cut: rows whose margin is wide enough stop, and all others go
the same way on, to a larger state or to the cloud. So the states that rows come to are a chain, another one for each
price, and the policy is a staged one (``staged``). docs/math.md (71).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...policy.answers import NEVER
from ...policy.front import Point, best_points
from ...stages.staged_policy import Staged
from ...stages.subset_search import SubsetSearch
from ...stages.thresholds import Choices, Cut, Cuts, best_way, priced_cuts
from .reduce import Graph, learn_graph

__all__ = ["cut_points", "price_list"]

N_PRICES = 64
NEAR = 8  # prices
LEAST_PRICE = 0.01  # error for what the dearest case costs
MOST_PRICE = 0.5  # error for what the cheapest state costs: few readings save as much


def price_list(unit: float, spent: Sequence[float], n: int) -> list[float]:
    """Errors for a unit of cost, from what buys most to what buys nothing.

    Parameters
    ----------
    unit : what the dearest case costs
    spent : what each state costs
    """
    paid = [c for c in spent if c > 0]
    most = MOST_PRICE / min(paid) if paid else LEAST_PRICE / unit
    return np.geomspace(LEAST_PRICE / unit, most, n).tolist()


def cut_points(search: SubsetSearch, graph: Graph, params: dict[str, Any]) -> list[Point]:
    """The points that the judged rows keep over prices; cuts are learned on these rows. ``params``: with its "bank"."""
    states = graph.states
    met = [graph.below(s) for s in range(len(states))]
    staged = Staged(search.judge, states, search.models(states, params["bank"]), met)
    spent = [search.cost(s) for s in states]
    prices = price_list(search.problem.forward_cost or max(spent) or 1.0, spent, N_PRICES)
    ways = [priced_way(staged, graph, p) for p in prices]
    found = [(p, cuts) for p, way in zip(prices, ways, strict=True) for cuts in _shortened(way)]
    found += _near(staged.choices, prices, ways)
    return best_points(staged.best("dag", [({**params, "price": p}, cuts) for p, cuts in found]))


def _shortened(cuts: Cuts) -> list[Cuts]:
    """These, and for each stage those that end with it: no price leads to what lies between two of its policies."""
    kept = sorted(cuts)
    ends = [{**{k: cuts[k] for k in kept[:n]}, last: Cut(-NEVER)} for n, last in enumerate(kept)]
    return [cuts, *ends] if cuts else []


def _near(choices: Choices, prices: Sequence[float], ways: Sequence[Cuts]) -> list[tuple[float, Cuts]]:
    """The stages of each way, cut for the prices around those that lead to it: another way is better there, by little,
    and between the two nothing would be.
    """
    led: dict[tuple[int, ...], list[int]] = {}
    for i, way in enumerate(ways):
        led.setdefault(tuple(sorted(way)), []).append(i)
    out = []
    for kept, places in led.items():
        mine = replace(choices, stages=[choices.stages[k] for k in kept])
        for price in prices[max(places[0] - NEAR, 0) : places[-1] + NEAR + 1]:
            cuts = {kept[k]: cut for k, cut in priced_cuts(mine, price).items()}
            out += [(price, cuts)] if cuts else []
    return out


def priced_way(staged: Staged, graph: Graph, price: float) -> Cuts:
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


def _followed(staged: Staged, graph: Graph, ways: Sequence[tuple[float, int]]) -> Cuts:
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
