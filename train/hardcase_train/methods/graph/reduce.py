"""Policies on a directed acyclic graph: Algorithm 1, graph reduce.

Wang, Trapeznikov and Saligrama, *Efficient Learning by Directed Acyclic Graph For Resource Constrained Prediction*
(2015). A state is a set of sensors at hand; its actions are to stop with the state's own classifier, to buy what leads
to a larger state, and (which the paper does not have) to stop some other way, as by asking the cloud. States are
reduced from the largest on: a state's policy is learned as one cost-sensitive problem over its actions, and what it
does with each row, right or wrong, is what the row costs from there on.

Nothing here knows labels, models or sensors: rows are matrices of losses and costs (section 2.3 of the paper), so costs
may depend on the row and a loss may be of regression or ranking. docs/math.md (58) to (60).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from joblib import Parallel, delayed

__all__ = [
    "MAX_STATES",
    "Graph",
    "Learn",
    "all_subsets",
    "graph_reduce",
    "inclusion",
    "learn_graph",
    "reach_of",
    "unions",
]

MAX_STATES = 256  # 2**8: the unions of eight subsets
FLOOR = 0.05  # of a row's weight in states that it does not come to, from the second pass on
State = tuple[int, ...]
# (state's number, costs (n, n_actions): stop, each edge, and where there is another way to stop, that last)
# -> the policy, in whatever form, and the action that it takes for each row, (n,)
Learn = Callable[[int, np.ndarray], tuple[Any, np.ndarray]]
# the same with how much each row counts in the state, (n,)
Focused = Callable[[int, np.ndarray, np.ndarray], tuple[Any, np.ndarray]]


@dataclass(frozen=True)
class Graph:
    """States, each behind its subsets, the first one empty; ``edges[s]``: the states that one purchase leads to."""

    states: tuple[State, ...]
    edges: tuple[tuple[int, ...], ...]

    @cached_property
    def levels(self) -> list[list[int]]:
        """States by the longest way that is left, shortest first: those of a level do not lead to each other."""
        depth = [0] * len(self.states)
        for s in reversed(range(len(self.states))):
            depth[s] = 1 + max([depth[t] for t in self.edges[s]], default=-1)
        return [[s for s, d in enumerate(depth) if d == k] for k in range(max(depth) + 1)]

    def below(self, s: int) -> list[int]:
        """States that hold something, and less than ``s``: the nearest last."""
        return [t for t in range(s) if self.states[t] and set(self.states[t]) < set(self.states[s])]

    @cached_property
    def first_edge(self) -> list[int]:
        """Where each state's edges begin, counted through all states."""
        return np.cumsum([0, *map(len, self.edges)]).tolist()


def all_subsets(n_sensors: int) -> Graph:
    """Every set of these sensors; an edge adds one sensor.

    Raises
    ------
    ValueError
        There would be more than 256 states.
    """
    return unions([(s,) for s in range(n_sensors)])


def unions(subsets: Iterable[Iterable[int]]) -> Graph:
    """All unions of the subsets, none included; an edge adds one of them.

    Raises
    ------
    ValueError
        There would be more than 256 states.
    """
    sets = [frozenset(s) for s in dict.fromkeys(tuple(sorted(s)) for s in subsets) if s]
    states = {frozenset[int]()}
    for one in sets:
        states |= {state | one for state in states}
        if len(states) > MAX_STATES:
            raise ValueError(f"the unions of {len(sets)} subsets are more than {MAX_STATES} states; name fewer")
    order = sorted((tuple(sorted(s)) for s in states), key=lambda s: (len(s), s))
    number = {frozenset(s): k for k, s in enumerate(order)}
    edges = [sorted({number[frozenset(s) | one] for one in sets} - {k}) for k, s in enumerate(order)]
    return Graph(tuple(order), tuple(map(tuple, edges)))


def inclusion(sets: Iterable[Iterable[int]]) -> Graph:
    """These sets and the empty one; an edge leads to each that lies next above: no other one is between.

    What a longer way would buy at once costs the same in steps, and at each step a row may stop.
    """
    order = sorted({(), *(tuple(sorted(set(s))) for s in sets)}, key=lambda s: (len(s), s))
    above = [[t for t, other in enumerate(order) if set(other) > set(s)] for s in order]
    edges = [tuple(t for t in ts if not any(t in above[u] for u in ts)) for ts in above]
    return Graph(tuple(order), tuple(edges))


def graph_reduce(
    graph: Graph,
    losses: np.ndarray,
    costs: np.ndarray,
    learn: Learn,
    other: np.ndarray | None = None,
    n_jobs: int = 1,
) -> tuple[list[Any], list[np.ndarray], np.ndarray]:
    """Policies of all states, what each does with every row, and what every row costs from each state on.

    Parameters
    ----------
    losses : (n, n_states) of stopping in each state, in units of cost
    costs : (n, n_edges) or (n_edges,) of each edge, in the order of ``graph.edges``
    other : (n, n_states) of stopping the other way; None: there is none
    n_jobs : threads over the states of a level

    Returns
    -------
    policies : by state
    choices : by state (n,), the number of the action in ``learn``'s costs
    value : (n, n_states)
    """
    costs = np.broadcast_to(costs, (len(losses), graph.first_edge[-1]))
    value = np.empty(losses.shape)
    policies: list[Any] = [None] * len(graph.states)
    choices: list[Any] = [None] * len(graph.states)

    def reduce(s: int) -> tuple[Any, np.ndarray, np.ndarray]:
        first, edges = graph.first_edge[s], graph.edges[s]
        ways = [losses[:, s], *(costs[:, first + k] + value[:, t] for k, t in enumerate(edges))]
        w = np.column_stack(ways if other is None else [*ways, other[:, s]])
        if w.shape[1] == 1:
            return None, np.zeros(len(w), dtype=np.int64), w[:, 0]
        policy, choice = learn(s, w)
        return policy, choice, w[np.arange(len(w)), choice]

    for level in graph.levels:
        done = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(reduce)(s) for s in level)
        for s, (policy, choice, spent) in zip(level, done, strict=True):
            policies[s], choices[s], value[:, s] = policy, choice, spent
    return policies, choices, value


def reach_of(graph: Graph, choices: Sequence[np.ndarray]) -> np.ndarray:
    """Which rows come to which states from the first one, (n, n_states) bool."""
    reach = np.zeros((len(choices[0]), len(graph.states)), dtype=bool)
    reach[:, 0] = True
    for s, edges in enumerate(graph.edges):
        for k, t in enumerate(edges):
            reach[:, t] |= reach[:, s] & (choices[s] == 1 + k)
    return reach


def learn_graph(
    graph: Graph,
    losses: np.ndarray,
    costs: np.ndarray,
    learn: Focused,
    other: np.ndarray | None = None,
    n_passes: int = 2,
    n_jobs: int = 1,
) -> tuple[list[Any], list[np.ndarray]]:
    """``graph_reduce`` several times: from the second on, rows count less in states that they do not come to.

    Returns policies and choices by state. docs/math.md (70).
    """
    focus = np.ones(losses.shape)
    for _ in range(n_passes):

        def learn_one(s: int, w: np.ndarray, focus: np.ndarray = focus) -> tuple[Any, np.ndarray]:
            return learn(s, w, focus[:, s])

        policies, choices, _ = graph_reduce(graph, losses, costs, learn_one, other, n_jobs)
        reach = reach_of(graph, choices)
        focus = np.where(reach, 1.0, FLOOR)
        focus[:, ~reach.any(axis=0)] = 1.0
    return policies, choices
