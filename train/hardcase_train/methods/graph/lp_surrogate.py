# SPDX-License-Identifier: Apache-2.0
"""A convex surrogate of the tree of all acquisition orders of sensors, minimised by one linear program.

Wang, Trapeznikov and Saligrama, *An LP for sequential learning under budgets* (2014); Wang, Bolukbasi, Trapeznikov and
Saligrama, *Model selection by linear programming* (2014). What a row loses by ending at one leaf of the tree and not at
another is a maximum over paths of sums of indicators. With hinges in place of the indicators it is a convex upper
bound, which a linear program minimises. Subtrees with the same sensors share their decisions, because the same readings
are available there. docs/math.md (45) to (50).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from hardcase_edge.errors import InputError

from ...successors.reduce import all_subsets

MAX_SENSORS = 4  # with five there would be 80 decisions for each row of the linear program


@dataclass(frozen=True)
class Decision:
    """Go left if the score is at most 0, else right. A child >= 0 is a decision; child -1 - s means stop in state s."""

    state: int
    left: int
    right: int


@dataclass(frozen=True)
class FullTree:
    """The tree of all acquisition orders; each decision precedes its children.

    states : the sensors bought in each state, as in ``reduce.all_subsets``
    first : the first decision of each state; for the state with all sensors, its leaf
    """

    states: tuple[tuple[int, ...], ...]
    decisions: tuple[Decision, ...]
    first: tuple[int, ...]

    def ends(self, scores: np.ndarray) -> np.ndarray:
        """The state in which each row stops, (n,), by the decisions' scores (n, n_decisions)."""
        at = np.full(len(scores), self.first[0])
        for k, d in enumerate(self.decisions):
            rows = np.flatnonzero(at == k)
            at[rows] = np.where(scores[rows, k] > 0, d.right, d.left)
        state: np.ndarray = -1 - at
        return state


def full_tree(n_sensors: int) -> FullTree:
    """The tree of n sensors: in each state first "stop or go on", then for each sensor "this one or a later one".

    Raises
    ------
    InputError
        There are more than four sensors.
    """
    if n_sensors > MAX_SENSORS:
        raise InputError(
            f"lp-tree supports at most {MAX_SENSORS} sensors, not {n_sensors}; group sensors, or use the method dag"
        )
    states = all_subsets(n_sensors).states
    sizes = [n_sensors - len(s) for s in states]  # one decision for each sensor not bought yet
    first = [sum(sizes[:s]) if size else -1 - s for s, size in enumerate(sizes)]
    decisions = []
    for s, bought in enumerate(states):
        left = [x for x in range(n_sensors) if x not in bought]
        after = [first[states.index(tuple(sorted((*bought, x))))] for x in left]
        ways = [-1 - s, *after]
        for k in range(len(left)):
            right = first[s] + k + 1 if k + 1 < len(left) else ways[-1]
            decisions.append(Decision(s, ways[k], right))
    return FullTree(states, tuple(decisions), tuple(first))


# ---------------------------------------------------------------- the linear program


@dataclass(frozen=True)
class Solved:
    """``weights[k]`` (n_terms,) and ``bias[k]`` of each decision; ``bound``: upper bound of the rows' mean loss."""

    weights: tuple[np.ndarray, ...]
    bias: np.ndarray
    bound: float

    def scores(self, tree: FullTree, terms: Sequence[np.ndarray]) -> np.ndarray:
        """Scores, (n, n_decisions), of rows whose terms are given per state, (n, n_terms)."""
        parts = [terms[d.state] @ w for d, w in zip(tree.decisions, self.weights, strict=True)]
        scores: np.ndarray = np.column_stack(parts) + self.bias
        return scores


def solve(tree: FullTree, terms: Sequence[np.ndarray], losses: np.ndarray, weight: np.ndarray, l1: float) -> Solved:
    """The decisions that minimise the convex bound of the weighted mean loss plus ``l1`` times their L1 norm.

    Parameters
    ----------
    terms : per state (n, n_terms), the terms in which its decisions are linear
    losses : (n, n_states) loss of stopping in each state, costs included
    weight : (n,) row weights

    Raises
    ------
    InputError
        The solver finds no optimum.
    """
    n, share = len(losses), weight / weight.sum()
    saved = losses.max(axis=1, keepdims=True) - losses
    if not tree.decisions:
        return Solved((), np.zeros(0), float(share @ losses[:, 0]))
    layout = _Layout(tree, [t.shape[1] for t in terms], n)
    equal = coo_array(layout.scores(terms), shape=(layout.n_scores, layout.size)).tocsr()
    *cells, right = layout.paths(saved)
    below = coo_array((cells[0], (cells[1], cells[2])), shape=(len(right), layout.size)).tocsr()
    price = np.zeros(layout.size)
    price[: layout.first_bias] = l1
    price[layout.lost(0)] = share
    bounds = np.full((layout.size, 2), [-np.inf, np.inf])
    bounds[: layout.first_bias, 0] = bounds[layout.first_lost :, 0] = 0.0
    solution = linprog(price, below, right, equal, np.zeros(layout.n_scores), bounds, method="highs-ipm")
    if solution.status != 0:
        raise InputError(f"the linear program of {n} rows has no optimum ({solution.message}); check the data's scale")
    x = solution.x
    lost = float(share @ x[layout.lost(0)])
    constant = float(share @ (losses.max(axis=1) - _behind(tree, saved)[0]))
    both = x[: layout.first_bias].reshape(2, -1)
    return Solved(tuple(layout.by_decision(both[0] - both[1])), x[layout.bias], constant + lost)


class _Layout:
    """Positions of the linear program's variables: positive and negative parts of weights, biases, scores, losses."""

    def __init__(self, tree: FullTree, n_terms: list[int], n: int) -> None:
        self.tree, self.n = tree, n
        self.widths = [n_terms[d.state] for d in tree.decisions]
        n_weights, n_decisions = sum(self.widths), len(tree.decisions)
        self.first_bias = 2 * n_weights
        self.bias = slice(self.first_bias, self.first_bias + n_decisions)
        self.n_scores = n * n_decisions
        self.first_lost = self.bias.stop + self.n_scores
        self.size = self.first_lost + self.n_scores

    def lost(self, k: int) -> np.ndarray:
        """Positions of the variables of each row's loss from decision k on, (n,)."""
        return self.first_lost + k * self.n + np.arange(self.n)

    def by_decision(self, weights: np.ndarray) -> list[np.ndarray]:
        return np.split(weights, np.cumsum(self.widths)[:-1])

    def scores(self, terms: Sequence[np.ndarray]) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Constraints ``terms . weights + bias - score = 0``."""
        values, rows, places, first = [], [], [], 0
        for k, (d, width) in enumerate(zip(self.tree.decisions, self.widths, strict=True)):
            equations = k * self.n + np.arange(self.n)
            z = terms[d.state]
            for sign, start in ((1.0, first), (-1.0, self.first_bias // 2 + first)):
                values.append(sign * z.ravel())
                rows.append(np.repeat(equations, width))
                places.append(np.tile(start + np.arange(width), self.n))
            for value, at in ((1.0, np.full(self.n, self.first_bias + k)), (-1.0, self.bias.stop + equations)):
                values.append(np.full(self.n, value))
                rows.append(equations)
                places.append(at)
            first += width
        return np.concatenate(values), (np.concatenate(rows), np.concatenate(places))

    def paths(self, saved: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Constraints (49): a way loses the hinge of what the other side saves, plus the loss from there on."""
        values, rows, places, right, at = [], [], [], [], 0
        for k, way, missed, sign in self._ways(saved):
            score = self.bias.stop + k * self.n + np.arange(self.n)
            for hinge in (missed, None):  # the rising part of the hinge, and its lower bound 0
                constraints = at + np.arange(self.n)
                cells: list[tuple[float | np.ndarray, np.ndarray]] = [(-1.0, self.lost(k))]
                if way >= 0:
                    cells.append((1.0, self.lost(way)))
                if hinge is not None:
                    cells.append((sign * hinge, score))
                elif way < 0:
                    continue  # nothing is lost after a leaf
                for value, place in cells:
                    values.append(np.broadcast_to(value, self.n))
                    rows.append(constraints)
                    places.append(place)
                right.append(np.zeros(self.n) if hinge is None else -hinge)
                at += self.n
        return np.concatenate(values), np.concatenate(rows), np.concatenate(places), np.concatenate(right)

    def _ways(self, saved: np.ndarray) -> Iterator[tuple[int, int, np.ndarray, float]]:
        """The two ways of each decision: its target, the sum that the other side's leaves save, the score's sign."""
        behind = _behind(self.tree, saved)
        for k, d in enumerate(self.tree.decisions):
            yield k, d.left, behind[d.right], -1.0
            yield k, d.right, behind[d.left], 1.0


def _behind(tree: FullTree, saved: np.ndarray) -> dict[int, np.ndarray]:
    """Sum of what the leaves below each child save, each once per order that leads to it: by child, (n,)."""
    behind: dict[int, np.ndarray] = {-1 - s: saved[:, s] for s in range(len(tree.states))}
    for k, d in reversed(list(enumerate(tree.decisions))):
        behind[k] = behind[d.left] + behind[d.right]
    return behind
