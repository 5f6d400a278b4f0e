# SPDX-License-Identifier: Apache-2.0
"""The states of a routing policy: sets of sensors, where each answer of a set's scorer leads to a larger set.

States of a cell are grown one sensor at a time, on rows that the cell's own model makes up: there are as many of them
as are needed to tell sensors apart, where few real rows of a state would choose by chance. A state buys the sensor of
the largest gain (log loss per cost) for all its rows, and for the rows of an answer the one that gains them most
(``successors.gains``). Which states are used, and where rows stop, is decided on judged rows (``policy``).
docs/math.md (153).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ...data.problem import Subset
from ...policy.losses import log_probability
from ...successors.gains import gains_by_answer
from .bayes import Cell

DRAWN_ROWS = 2000  # made up for a cell
LEAST_SHARE = 0.02  # of them, that an answer needs for a way of its own; states with fewer keep the cell's order
LEAST_GAIN = 1e-3  # of log loss
MOST_SENSORS = 14  # that a path buys
MOST_TRIED = 24  # sensors of a cell, those of the largest gains after the first
LEAST_WORTH = 0.1  # of the largest of these gains per cost: less may be chance, which judged rows took part in

Key = tuple[int, Subset]  # number of the cell (-1: all rows), and the sensors that are bought


@dataclass
class State:
    """A set of sensors in a cell.

    cell : None where the label's shares alone answer
    targets : the state that each answer (or each cell, if ``is_root``) leads to; empty if nothing more is bought
    """

    key: Key
    cell: Cell
    targets: list[Key] = field(default_factory=list)
    is_root: bool = False

    @property
    def sensors(self) -> Subset:
        """What is bought."""
        return self.key[1]

    @property
    def ways(self) -> list[Key]:
        """The states that it leads to, each once."""
        return list(dict.fromkeys(self.targets))


def key_of(number: int, sensors: Subset) -> Key:
    """The key of a state of a cell, whatever the order of its sensors."""
    return number, tuple(sorted(sensors))


def grow(cell: Cell, number: int, start: Subset, is_own: bool) -> list[State]:
    """The states of a cell, those with fewer sensors first.

    Parameters
    ----------
    start : sensors that are bought before
    is_own : whether answers may have ways of their own; otherwise all rows buy in the same order
    """
    drawn = _Drawn(cell, start)
    plain = list(drawn.states(number, start, None))
    if not is_own:
        return plain
    order = [s for a, b in pairwise(state.sensors for state in plain) for s in b if s not in a]
    return list(drawn.states(number, start, order))


class _Drawn:
    """Made-up rows of a cell, and the sensors that its states try: those of the largest gains after ``start``."""

    def __init__(self, cell: Cell, start: Subset) -> None:
        self.cell, self.problem = cell, cell.rows.problem
        self.y, self.shares, table = cell.drawn(DRAWN_ROWS)
        self.table = table.astype(np.float64)
        self.costs = np.maximum(self.problem.sensor_costs(), 1e-9)
        others = [s for s in cell.sensors if s not in start]
        every = np.arange(len(self.y))
        scores = self._scores(start, every)
        gain = _loss(scores, self.y)[:, None] - self._after(scores, others, every)
        worth = gain.mean(axis=0) / self.costs[others]
        order = np.argsort(-worth, kind="stable")[:MOST_TRIED]
        self.tried = [others[k] for k in order if worth[k] > LEAST_WORTH * worth[order[0]]]

    def states(self, number: int, start: Subset, order: list[int] | None) -> Iterator[State]:
        """The states from ``start`` on; without an order, all rows of a state buy the same."""
        level = {key_of(number, start): np.arange(len(self.y))}
        while level:
            onward: dict[Key, list[np.ndarray]] = {}
            for key, rows in level.items():
                state = State(key, self.cell)
                scores = self._scores(key[1], rows)
                new = self._bought(key[1], rows, scores, order) if len(key[1]) - len(start) < MOST_SENSORS else []
                state.targets = [key_of(number, (*key[1], s)) for s in new]
                for way in state.ways:
                    to = np.array([t == way for t in state.targets])[scores.argmax(axis=1)]
                    onward.setdefault(way, []).append(rows[to])
                yield state
            level = {key: np.concatenate(parts) for key, parts in onward.items()}

    def _bought(self, sensors: Subset, rows: np.ndarray, scores: np.ndarray, order: list[int] | None) -> list[int]:
        """The sensor that each answer buys next; empty if none gains."""
        options = [s for s in self.tried if s not in sensors and self.problem.is_affordable((*sensors, s))]
        n_classes = int(scores.shape[1])
        if order is not None and len(rows) < LEAST_SHARE * DRAWN_ROWS:
            return [s for s in order if s in options][:1] * n_classes
        if not options:
            return []
        gain = _loss(scores, self.y[rows])[:, None] - self._after(scores, options, rows)
        chosen = _chosen(gain, self.costs[options], scores.argmax(axis=1), n_classes, order is not None)
        return [options[k] for k in chosen]

    def _scores(self, sensors: Subset, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.shares[rows] + self.table[np.ix_(rows, self._places(sensors))].sum(axis=1))

    def _after(self, scores: np.ndarray, options: list[int], rows: np.ndarray) -> np.ndarray:
        """Log loss of these rows after each option, (n, n_options)."""
        out = np.empty((len(rows), len(options)))
        for k, place in enumerate(self._places(options)):
            out[:, k] = _loss(scores + self.table[rows, place], self.y[rows])
        return out

    def _places(self, sensors: Sequence[int]) -> np.ndarray:
        return np.array([self.cell.place[s] for s in sensors], dtype=np.int64)


def _chosen(gain: np.ndarray, costs: np.ndarray, answers: np.ndarray, n: int, is_own: bool) -> list[int]:
    """The option of each answer; empty if none gains.

    Parameters
    ----------
    gain : (n_rows, n_options) log loss that each option saves
    """
    worth = gain / costs
    common = int(worth.mean(axis=0).argmax())
    if gain[:, common].mean() < LEAST_GAIN:
        return []
    if not is_own:
        return [common] * n
    answered = answers == np.arange(n)[:, None]
    own = gains_by_answer(answered, worth.T, np.ones(len(answers))).argmax(axis=1)
    return [int(k) for k in np.where(answered.sum(axis=1) < LEAST_SHARE * DRAWN_ROWS, common, own)]


def _loss(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log loss of class scores (n, n_classes), (n,)."""
    return np.asarray(-log_probability(scores)[np.arange(len(y)), y])
