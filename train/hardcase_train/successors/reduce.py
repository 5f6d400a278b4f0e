# SPDX-License-Identifier: Apache-2.0
"""Graph reduce: cost-sensitive policies on a directed acyclic graph of sensor subsets (Algorithm 1).

Wang, Trapeznikov and Saligrama, *Efficient Learning by Directed Acyclic Graph For Resource Constrained Prediction*
(2015). A state is a set of bought sensors. Its actions are to stop with the state's own classifier, to buy the sensors
that lead to a larger state, and (not in the paper) to stop in another way, such as forwarding. States are reduced from
the largest to the smallest: the policy of a state is learned as one cost-sensitive classification over its actions, and
the cost of the action that it chooses for a row, right or wrong, is the row's cost from that state on.

This module does not refer to labels, models or sensors: rows are given as matrices of losses and costs (section 2.3 of
the paper), so costs may depend on the row, and losses may be those of regression or ranking. docs/math.md (58) to (60).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from joblib import Parallel, delayed

MAX_STATES = 256  # 2**8: the unions of eight subsets
FLOOR = 0.05  # factor of a row's weight in states that it does not reach, from the second pass on
State = tuple[int, ...]
# (number of the state, costs (n, n_actions): stop, each edge, and last, if there is one, the other way to stop)
# -> the policy, of any type, and the action that it takes for each row, (n,)
Learn = Callable[[int, np.ndarray], tuple[Any, np.ndarray]]
# the same, with the weight of each row in the state, (n,)
Focused = Callable[[int, np.ndarray, np.ndarray], tuple[Any, np.ndarray]]


@dataclass(frozen=True)
class Graph:
    """States, each after its subsets, the first one empty; ``edges[s]``: the states that one purchase leads to."""

    states: tuple[State, ...]
    edges: tuple[tuple[int, ...], ...]

    @cached_property
    def levels(self) -> list[list[int]]:
        """States by the length of the longest path that leaves them, shortest first; a level has no inner edges."""
        depth = [0] * len(self.states)
        for s in reversed(range(len(self.states))):
            depth[s] = 1 + max([depth[t] for t in self.edges[s]], default=-1)
        return [[s for s, d in enumerate(depth) if d == k] for k in range(max(depth) + 1)]

    def below(self, s: int) -> list[int]:
        """Nonempty proper subsets of state ``s``, the largest last."""
        return [t for t in range(s) if self.states[t] and set(self.states[t]) < set(self.states[s])]

    @cached_property
    def first_edge(self) -> list[int]:
        """The number of each state's first edge, edges being numbered across all states."""
        return list(accumulate(map(len, self.edges), initial=0))


def all_subsets(n_sensors: int) -> Graph:
    """Every subset of n sensors; an edge adds one sensor.

    Raises
    ------
    ValueError
        There would be more than 256 states.

    Examples
    --------
    >>> all_subsets(2)
    Graph(states=((), (0,), (1,), (0, 1)), edges=((1, 2), (3,), (3,), ()))
    """
    return unions([(s,) for s in range(n_sensors)])


def unions(subsets: Iterable[Iterable[int]]) -> Graph:
    """All unions of the subsets, including the empty one; an edge adds one subset.

    Raises
    ------
    ValueError
        There would be more than 256 states.
    """
    sets = [frozenset(s) for s in dict.fromkeys(tuple(sorted(s)) for s in subsets) if s]
    states = {frozenset[int]()}
    for subset in sets:
        states |= {state | subset for state in states}
        if len(states) > MAX_STATES:
            raise ValueError(f"the unions of {len(sets)} subsets are more than {MAX_STATES} states; use fewer subsets")
    order = sorted((tuple(sorted(s)) for s in states), key=lambda s: (len(s), s))
    number = {frozenset(s): k for k, s in enumerate(order)}
    edges = [sorted({number[frozenset(s) | subset] for subset in sets} - {k}) for k, s in enumerate(order)]
    return Graph(tuple(order), tuple(map(tuple, edges)))


def inclusion(sets: Iterable[Iterable[int]]) -> Graph:
    """These sets and the empty one; an edge leads to each minimal proper superset (the Hasse diagram).

    Longer edges would add nothing: in steps the purchases cost the same, and a row may stop at each step.
    """
    order = sorted({(), *(tuple(sorted(set(s))) for s in sets)}, key=lambda s: (len(s), s))
    above = [[t for t, other in enumerate(order) if set(other) > set(s)] for s in order]
    edges = [tuple(t for t in ts if not any(t in above[u] for u in ts)) for ts in above]
    return Graph(tuple(order), tuple(edges))


def restricted(graph: Graph, keeps: Callable[[State], bool]) -> Graph:
    """The graph of the states that are kept; of a kept state, all states that lead to it must be kept, too.

    >>> restricted(all_subsets(2), lambda state: len(state) < 2)
    Graph(states=((), (0,), (1,)), edges=((1, 2), (), ()))
    """
    kept = [k for k, state in enumerate(graph.states) if keeps(state)]
    place = {old: new for new, old in enumerate(kept)}
    edges = [tuple(place[t] for t in graph.edges[k] if t in place) for k in kept]
    return Graph(tuple(graph.states[k] for k in kept), tuple(edges))


def graph_reduce(
    graph: Graph,
    losses: np.ndarray,
    costs: np.ndarray,
    learn: Learn,
    other: np.ndarray | None = None,
    n_jobs: int = 1,
) -> tuple[list[Any], list[np.ndarray], np.ndarray]:
    """The policies of all states, the action of each for every row, and every row's cost from each state on.

    Parameters
    ----------
    losses : (n, n_states) loss of stopping in each state, in units of cost
    costs : (n, n_edges) or (n_edges,) cost of each edge, in the order of ``graph.edges``
    other : (n, n_states) loss of stopping in the other way; None: there is no other way
    n_jobs : threads over the states of a level

    Returns
    -------
    policies : per state
    choices : per state (n,), the number of the action in ``learn``'s costs
    value : (n, n_states) cost of each row from each state on
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
        reduced = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(reduce)(s) for s in level)
        for s, (policy, choice, spent) in zip(level, reduced, strict=True):
            policies[s], choices[s], value[:, s] = policy, choice, spent
    return policies, choices, value


def reach_of(graph: Graph, choices: Sequence[np.ndarray]) -> np.ndarray:
    """Which rows reach which states from the first one, (n, n_states) bool."""
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
    floor: float = FLOOR,
) -> tuple[list[Any], list[np.ndarray]]:
    """Repeat ``graph_reduce``: from the second pass on, rows weigh less in states that they do not reach.

    Returns policies and choices per state. docs/math.md (70).

    Parameters
    ----------
    floor : factor of their weight
    """
    focus = np.ones(losses.shape)
    for _ in range(n_passes):

        def learn_one(s: int, w: np.ndarray, focus: np.ndarray = focus) -> tuple[Any, np.ndarray]:
            return learn(s, w, focus[:, s])

        policies, choices, _ = graph_reduce(graph, losses, costs, learn_one, other, n_jobs)
        reach = reach_of(graph, choices)
        before, focus = focus, np.where(reach | ~reach.any(axis=0), 1.0, floor)
        if (focus == before).all():
            break
    return policies, choices
