# SPDX-License-Identifier: Apache-2.0
"""The table of prices of a program: where its thresholds stand at each price of a unit of cost, on validation rows.

At a price, thresholds minimise the mean of ``chance of an error + price * cost``, one threshold after the other, as
cuts do in training (docs/math.md (132)). The chance is not counted but calibrated: isotonic in the margin of each
Answer, because a threshold fitted to counts of errors overfits. Around the shipped thresholds the table is then made
monotone, so that a higher price never spends more at any node. docs/SPEC-bundle-v1.md section 3.3 has its form.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.prices import MOST_THRESHOLD, Prices
from hardcase_edge.more.batch.choices import classes_of, margins_of
from hardcase_edge.more.batch.evaluate import Batch, Outcome
from hardcase_edge.program.definition import MARGIN, THRESHOLD, Answer, Branch, Node, Opaque, Program

from ..drafts.rows import Rows

MAX_TABLE_ROWS = 4_000  # a random part of more
MAX_NODES = 6  # that move: those whose threshold changes the mean cost most
MAX_LEVELS = 17
PRICES = range(-11, 8)  # powers of two, of errors for the range of costs
PASSES = 2  # over the nodes, at each price
TAIL = (0.0025, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075)
SHARES = np.array([*TAIL, *np.arange(2, 19) / 20, *(1 - t for t in reversed(TAIL))])

Numbers = NDArray[np.float64]
Choice = tuple[int, ...]  # of each node, a number among its thresholds


def price_table(program: Program, rows: Rows, fixed: Collection[int] = ()) -> Prices | None:
    """The table; None where no threshold moves the cost, as of a fixed program, of values or of an opaque scorer.

    Parameters
    ----------
    program : Program
        Quantised and verified.
    rows : Rows
        Labelled rows that no scorer of the program was trained on.
    fixed : collection of int
        Nodes that do not move.
    """
    if not program.n_classes or any(isinstance(s, Opaque) for s in program.scorers):
        return None
    table = _Table(program, rows, fixed)
    if not table.nodes:
        return None
    choices, shipped = table.levels()
    figures = [table.figures(choice) for choice in choices]
    return Prices(
        tuple(move.node for move in table.nodes),
        tuple(table.thresholds(choice) for choice in choices),
        tuple(round(cost, 6) for _, cost, _ in figures),
        tuple(round(share, 6) for _, _, share in figures),
        shipped,
    )


@dataclass(frozen=True)
class _Move:
    """A node that moves: its thresholds, first the one at which most is spent, and the place of the shipped one."""

    node: int
    thresholds: tuple[int, ...]
    shipped: int


class _Table:
    def __init__(self, program: Program, rows: Rows, fixed: Collection[int]) -> None:
        part = np.random.default_rng(0).permutation(len(rows.y))[:MAX_TABLE_ROWS]
        self._nodes = program.nodes
        self._weight = np.ones(len(part)) if rows.weight is None else rows.weight[part]
        if not self._weight.sum():
            self._weight = np.ones(len(part))
        self._batch = Batch(program, rows.X[part], sizes=None if rows.sizes is None else rows.sizes[part])
        self._hpc, truth = rows.hpc[part], rows.y[part]
        self._cloud_wrong = float(np.average(self._hpc != truth, weights=self._weight))
        self._wrong = {k: self._chances(n, truth) for k, n in enumerate(program.nodes) if isinstance(n, Answer)}
        self._known: dict[Choice, tuple[float, float, float]] = {}
        self.nodes: list[_Move] = []
        moves = [m for k, n in enumerate(program.nodes) if k not in fixed and (m := self._move(k, n))]
        largest = sorted(moves, key=lambda pair: -pair[1])[:MAX_NODES]
        self.nodes = sorted((move for move, _ in largest), key=lambda move: move.node)
        self._shipped: Choice = tuple(move.shipped for move in self.nodes)

    def _chances(self, node: Answer, truth: NDArray[np.int64]) -> Numbers:
        """The chance that this Answer is wrong, (n,), isotonic in its margin."""
        scores = self._batch.scores(node.scores.scorer)[:, node.scores.start : node.scores.stop]
        return falling(margins_of(scores), (classes_of(scores) != truth).astype(float), self._weight)

    def _move(self, k: int, node: Node) -> tuple[_Move, float] | None:
        """The thresholds of a Branch, and how far they move the mean cost; None if it is another node or not at all."""
        if not isinstance(node, Branch) or node.rule not in (THRESHOLD, MARGIN):
            return None
        scores = self._batch.scores(node.scores.scorer)[:, node.scores.start : node.scores.stop]
        keys = scores[:, 0] if node.rule == THRESHOLD else margins_of(scores)
        at = np.quantile(keys, SHARES, method="lower").tolist()
        most = {int(keys.min()) - 1, int(keys.max()) + 1, int(node.threshold), *map(int, at)}
        thresholds = sorted(t for t in most if abs(t) <= MOST_THRESHOLD)
        if int(node.threshold) not in thresholds or len(thresholds) < 2:
            return None
        low, high = (self._mean_cost(self._moved({k: t})) for t in (thresholds[0], thresholds[-1]))
        if low == high:
            return None
        order = tuple(thresholds if low > high else thresholds[::-1])
        return _Move(k, order, order.index(int(node.threshold))), abs(low - high)

    # ------------------------------------------------------------ figures

    def thresholds(self, choice: Choice) -> tuple[int, ...]:
        """The thresholds of a choice."""
        return tuple(move.thresholds[k] for move, k in zip(self.nodes, choice, strict=True))

    def figures(self, choice: Choice) -> tuple[float, float, float]:
        """Mean chance of an error, mean cost in the user's unit, and share forwarded."""
        if choice not in self._known:
            moved = {move.node: t for move, t in zip(self.nodes, self.thresholds(choice), strict=True)}
            outcome = self._moved(moved)
            wrong = np.full(len(self._weight), self._cloud_wrong)
            for node, chances in self._wrong.items():
                ends = (outcome.node == node) & ~outcome.forwarded
                wrong[ends] = chances[ends]
            amounts = (wrong, outcome.cost, outcome.forwarded)
            mean_wrong, cost, forwarded = (float(np.average(a, weights=self._weight)) for a in amounts)
            self._known[choice] = mean_wrong, cost, forwarded
        return self._known[choice]

    def _moved(self, thresholds: dict[int, int]) -> Outcome:
        nodes = list(self._nodes)
        for k, threshold in thresholds.items():
            node = nodes[k]
            assert isinstance(node, Branch)
            nodes[k] = replace(node, threshold=threshold)
        return self._batch.run(self._hpc, nodes)

    def _mean_cost(self, outcome: Outcome) -> float:
        return float(np.average(outcome.cost, weights=self._weight))

    # ------------------------------------------------------------ levels

    def levels(self) -> tuple[list[Choice], int]:
        """The choices from the one that spends most to the least, and the place of the shipped one."""
        first = tuple(0 for _ in self.nodes)
        last = tuple(len(move.thresholds) - 1 for move in self.nodes)
        most, least = (self.figures(choice)[1] for choice in (first, last))
        unit = 1.0 / max(abs(most - least), 1e-12)
        best, choices = self._shipped, []
        for power in PRICES:
            best = self._best(best, unit * 2.0**power)
            choices.append(best)
        return self._in_order([*choices, last])

    def _best(self, choice: Choice, price: float) -> Choice:
        """The choice at a price, from this one on, one node after the other."""

        def value(choice: Choice) -> float:
            wrong, cost, _ = self.figures(choice)
            return wrong + price * cost

        for _ in range(PASSES):
            before = choice
            for k, move in enumerate(self.nodes):
                others = [(*choice[:k], j, *choice[k + 1 :]) for j in range(len(move.thresholds))]
                choice = min(others, key=lambda other: (value(other), other))
            if choice == before:
                break
        return choice

    def _in_order(self, choices: Sequence[Choice]) -> tuple[list[Choice], int]:
        """The shipped choice, and outwards from it those that spend more or less, monotone at each node."""
        cost_of = self._cost_of
        middle = cost_of(self._shipped)
        dearer = self._outwards(sorted({c for c in choices if cost_of(c) > middle}, key=cost_of), 1)
        cheaper = self._outwards(sorted({c for c in choices if cost_of(c) < middle}, key=cost_of, reverse=True), -1)
        half = (MAX_LEVELS - 1) // 2
        above, below = self._thinned(dearer, half), self._thinned(cheaper, half)
        levels = [*reversed(above), self._shipped, *below]
        if len(levels) == 1:  # the shipped choice spends least and most at once: the cheapest of all stands beside it
            levels.append(tuple(len(move.thresholds) - 1 for move in self.nodes))
        return levels, len(above)

    def _outwards(self, choices: Sequence[Choice], sign: int) -> list[Choice]:
        """These, each pushed as far as the one before at every node; ``sign``: 1 to spend more, -1 to spend less."""
        out, last = list[Choice](), self._shipped
        for choice in choices:
            pushed = tuple(-sign * max(-sign * a, -sign * b) for a, b in zip(choice, last, strict=True))
            if sign * self._cost_of(pushed) > sign * self._cost_of(last):
                out.append(pushed)
                last = pushed
        return out

    def _thinned(self, choices: list[Choice], n: int) -> list[Choice]:
        """At most n of these, at even steps of mean cost; the last one stays."""
        if len(choices) <= n:
            return choices
        costs = np.array([self._cost_of(c) for c in choices])
        goals = np.linspace(self._cost_of(self._shipped), costs[-1], n + 1)[1:]
        return [choices[k] for k in sorted({int(np.abs(costs - cost).argmin()) for cost in goals})]

    def _cost_of(self, choice: Choice) -> float:
        return self.figures(choice)[1]


def falling(keys: Numbers, values: Numbers, weight: Numbers) -> Numbers:
    """Isotonic regression: the weighted least squares fit (n,) that falls as ``keys`` rise; equal keys share a value.

    >>> falling(np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 0.0, 1.0, 0.0]), np.ones(4)).tolist()
    [1.0, 0.5, 0.5, 0.0]
    """
    which = np.unique(keys, return_inverse=True)[1]
    total = np.maximum(np.bincount(which, weight), 1e-12)
    mean = np.bincount(which, weight * values) / total
    blocks: list[tuple[float, float, int]] = []  # mean, weight, keys
    for value, w in zip(mean.tolist(), total.tolist(), strict=True):
        n = 1
        while blocks and blocks[-1][0] < value:
            above, more, count = blocks.pop()
            value, w, n = (value * w + above * more) / (w + more), w + more, n + count
        blocks.append((value, w, n))
    return np.repeat([value for value, _, _ in blocks], [n for _, _, n in blocks])[which]
