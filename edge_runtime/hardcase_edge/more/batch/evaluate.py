# SPDX-License-Identifier: Apache-2.0
"""Runs a program on many rows at once, with the same decisions and costs as the session.

The program may be a draft, whose numbers are floats. A sensor fails on rows without one of its readings that is not
nullable, each row has its own item size, and every request is answered. A test compares each outcome with the session's
decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from ...program.cost import Meter, evaluate_polynomial, to_unit
from ...program.definition import (
    MISSING,
    Acquire,
    Answer,
    Branch,
    Forward,
    Node,
    Opaque,
    Program,
    Select,
    Slice,
    Stack,
    Trees,
)
from ...program.kinds import CLASS, VALUE
from .choices import choose, classes_of, margins_of, values_of
from .codes import codes_of
from .scores import score_codes
from .trees import score_trees

Array = NDArray[Any]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Outcome:
    """The outcome of each row."""

    label: Array  # (n,) class index, or value
    cost: NDArray[np.float64]  # (n,) in the user's unit
    forwarded: Flags  # (n,)
    margin: NDArray[np.float64]  # (n,) of the answering scorer; NaN where forwarded
    node: Numbers  # (n,) where each row ended

    def where(self, mask: Flags, other: Outcome) -> Outcome:
        """These outcomes where the mask is set, those of ``other`` elsewhere."""
        return Outcome(*(np.where(mask, getattr(self, f.name), getattr(other, f.name)) for f in fields(Outcome)))

    def confidence(self, nodes: Sequence[Node], hpc: NDArray[np.float64]) -> NDArray[np.float64]:
        """The confidence that each answer states, (n,) from 0 to 1: the table of the node where it ended, or f0's.

        Parameters
        ----------
        nodes : those of the walk
        hpc : (n,) f0's confidence in its answer to each row, from 0 to 1
        """
        stated = np.array(hpc, dtype=np.float64)
        for k, node in enumerate(nodes):
            if isinstance(node, Answer):
                rows = (self.node == k) & ~self.forwarded
                step = np.searchsorted(node.margins, self.margin[rows], side="right")
                stated[rows] = np.array(node.confidences)[step] / 10_000
        return stated

    def take(self, rows: Flags | Numbers) -> Outcome:
        """The outcomes of some rows, by number or by mask."""
        return Outcome(*(getattr(self, f.name)[rows] for f in fields(Outcome)))

    @staticmethod
    def joined(parts: Sequence[Outcome], order: Numbers) -> Outcome:
        """The outcomes of several batches as one: its row k is row ``order[k]`` of the batches laid end to end."""
        return Outcome(*(np.concatenate([getattr(p, f.name) for p in parts])[order] for f in fields(Outcome)))


class Batch:
    """Rows prepared for programs that share columns and scorers; each score is computed once.

    Parameters
    ----------
    program : Program
    X : ndarray of shape (n, n_features), NaN for missing, values as the declared types hold them
    scores : per scorer an ndarray of shape (n, n_outputs) to use instead of the scorer's own, such as out-of-fold
        scores, for rows on which all its sensors work; an Opaque scorer needs them
    sizes : (n,) item size of each row, from 1; None: all are 1
    dead : sensors known not to work: never asked for, never charged

    Attributes
    ----------
    works : (n_sensors, n) whether each sensor works on each row
    """

    def __init__(
        self,
        program: Program,
        X: NDArray[np.float64],
        scores: Sequence[Array] = (),
        sizes: NDArray[np.int64] | None = None,
        dead: Sequence[int] = (),
    ) -> None:
        self.program = program
        self.X = X
        distinct, self._size_of = np.unique(np.ones(len(X), np.int64) if sizes is None else sizes, return_inverse=True)
        self._sizes = distinct.tolist()
        self._meters = [Meter(program, size) for size in self._sizes]
        self._prices = np.array([meter.sensor_costs for meter in self._meters], dtype=np.int64)  # (sizes, sensors)
        self._budget: int | None = None
        self._spent = self._begin()
        self._codes = codes_of(program.columns, X)
        works = [_works(program, s.features, X) for s in program.sensors]
        self.works = np.array(works, dtype=np.bool_).reshape(len(works), len(X))
        self._dead = list(dead)
        self.works[self._dead] = False
        self._full: dict[int, Array] = dict(enumerate(scores))

    # ------------------------------------------------------------ scores

    def score_trees(self, s: Trees, codes: Array) -> Array:
        """Scores of an ensemble; a subclass may compute them faster."""
        return score_trees(s, codes)

    def scores(self, scorer: int, rows: Numbers | None = None, bought: Flags | None = None) -> Array:
        """Scores of one scorer, (n, n_outputs): of all rows with all sensors, or of ``rows`` with those ``bought``."""
        if scorer not in self._full:
            self._full[scorer] = self._score(scorer, self._codes)
        full = self._full[scorer]
        if rows is None or bought is None:
            return full
        columns, out = self._columns_of(scorer), full[rows]
        sensors = [self.program.sensor_of[self.program.columns[c].feature] for c in columns]
        lacking = ~self._is_read(bought, sorted(set(sensors)), rows).all(axis=0)
        if lacking.any():
            part = rows[lacking]
            codes = self._codes[:, part]
            for c, is_read in zip(columns, self._is_read(bought, sensors, part), strict=True):
                codes[c, ~is_read] = MISSING
            out[lacking] = self._score(scorer, codes)
        return out

    def _score(self, scorer: int, codes: Array) -> Array:
        s = self.program.scorers[scorer]
        return self.score_trees(s, codes) if isinstance(s, Trees) else score_codes(self.program.scorers, scorer, codes)

    def _columns_of(self, scorer: int) -> tuple[int, ...]:
        """The columns that a scorer reads; none for an Opaque one, which is read only where its sensors work."""
        s = self.program.scorers[scorer]
        if not isinstance(s, Stack):
            return () if isinstance(s, Opaque) else s.columns
        below = self.program.scorers[s.trees]
        assert isinstance(below, Trees)
        return tuple(sorted({below.columns[k] for m in s.members for k in below.trees[m].splits}))

    def _is_read(self, bought: Flags, sensors: Sequence[int], rows: Numbers) -> Flags:
        """Whether these sensors gave readings on these rows, (n_sensors, n)."""
        cells = _cells(sensors, rows)
        return np.asarray(bought[cells] & self.works[cells])

    # ------------------------------------------------------------ the walk

    def run(self, hpc_label: Array, nodes: Sequence[Node] | None = None, budget: int | None = None) -> Outcome:
        """Walk all rows through the nodes (the program's own, or others over the same scorers).

        Parameters
        ----------
        hpc_label : ndarray of shape (n,), class index or value
            f0's answer for each row, taken if the row is forwarded.
        budget : hard limit of each row's cost, in micro-units; None: no limit
        """
        return self.walk(hpc_label, nodes, budget)[0]

    def walk(
        self, hpc_label: Array, nodes: Sequence[Node] | None = None, budget: int | None = None
    ) -> tuple[Outcome, Flags]:
        """As ``run``; also returns the sensors that each row bought, (n_sensors, n) bool."""
        nodes = self.program.nodes if nodes is None else nodes
        n = len(self.X)
        self._budget = budget
        self._spent = self._begin(budget)
        at = np.zeros(n, dtype=np.int64)
        arrived = {0: [np.arange(n)]}
        bought = np.zeros((len(self.program.sensors), n), dtype=np.bool_)
        bought[self._dead] = True  # as if they had failed: neither asked for nor charged again
        label = np.zeros(n, dtype=self._label_type(nodes))
        margin = np.full(n, np.nan)
        forwarded = np.zeros(n, dtype=np.bool_)
        for k, node in enumerate(nodes):
            if k not in arrived:
                continue
            rows = np.concatenate(arrived.pop(k))
            at[rows] = k
            if isinstance(node, Acquire):
                _send(rows, self._acquire(node, rows, bought), arrived)
            elif isinstance(node, Branch):
                _send(rows, self._branch(nodes, node, rows, bought), arrived)
            elif isinstance(node, Select):
                _send(rows, self._select(node, rows), arrived)
            elif isinstance(node, Answer):
                label[rows], margin[rows] = self._answer(node, rows, bought)
            elif isinstance(node, Forward):
                can = self._can_have(node, rows, bought)
                _send(rows[~can], np.full(int((~can).sum()), node.fallback), arrived)
                rows = rows[can]
                bought[_cells(node.sensors, rows)] = True
                label[rows], forwarded[rows] = hpc_label[rows], True
            else:
                assert_never(node)
        bought[self._dead] = False
        return Outcome(label, self._costs(bought, forwarded), forwarded, margin, at), bought

    def _begin(self, budget: int | None = None) -> Numbers:
        """What each row has spent when it starts, (n,) micro-units; the budget must hold it."""
        return np.array([meter.start(budget) for meter in self._meters], dtype=np.int64)[self._size_of]

    def _label_type(self, nodes: Sequence[Node]) -> np.dtype[Any]:
        """Integers for class indices; for values, the type of their scores."""
        values = [n.scores.scorer for n in nodes if isinstance(n, Answer) and n.kind == VALUE.answer]
        return np.result_type(np.int64, *(self.scores(k) for k in values))

    def _acquire(self, node: Acquire, rows: Numbers, bought: Flags) -> Numbers:
        can = self._can_have(node, rows, bought)
        if self._budget is not None:
            self._spent[rows[can]] += self._price(node, rows[can], bought)
        bought[_cells(node.sensors, rows[can])] = True
        works = self.works[_cells(node.sensors, rows)].all(axis=0)
        return np.where(works & can, node.then, node.otherwise)

    def _branch(self, nodes: Sequence[Node], node: Branch, rows: Numbers, bought: Flags) -> Numbers:
        can = np.array([self._can_have(nodes[t], rows, bought) for t in node.targets])
        return np.array(node.targets)[choose(node, self._slice(node.scores, rows, bought), can)]

    def _can_have(self, node: Node, rows: Numbers, bought: Flags) -> Flags:
        """Whether a row may go to this node, (n,): not if it acquires a sensor that has failed, or is over budget."""
        if not isinstance(node, Acquire | Forward):
            return np.ones(len(rows), dtype=np.bool_)
        can = np.ones(len(rows), dtype=np.bool_)
        if self._budget is not None:
            can = self._spent[rows] + self._price(node, rows, bought) <= self._budget
        if isinstance(node, Forward):
            return can
        cells = _cells(node.sensors, rows)
        return np.asarray(can & ~(bought[cells] & ~self.works[cells]).any(axis=0))

    def _price(self, node: Acquire | Forward, rows: Numbers, bought: Flags) -> Numbers:
        """What the node would add to each row's cost, (n,) micro-units."""
        sensors = list(node.sensors)
        request = self._meters[0].request_cost if isinstance(node, Forward) and self._meters else 0
        unread = ~bought[_cells(sensors, rows)]
        return np.asarray(request + (self._prices[self._size_of[rows]][:, sensors] * unread.T).sum(axis=1))

    def _select(self, node: Select, rows: Numbers) -> Numbers:
        """The target of each row, (n,): the first candidate that fits its size and the budget left."""
        targets = np.full(len(rows), node.otherwise, dtype=np.int64)
        open_ = np.ones(len(rows), dtype=np.bool_)
        for c in node.candidates:
            now = open_ & np.array([size <= c.max_size for size in self._sizes])[self._size_of[rows]]
            if self._budget is not None:
                price = np.array([evaluate_polynomial(c.cost, size) for size in self._sizes], dtype=np.int64)
                now &= self._spent[rows] + price[self._size_of[rows]] <= self._budget
            targets[now], open_ = c.target, open_ & ~now
            if not open_.any():
                break
        return targets

    def _answer(self, node: Answer, rows: Numbers, bought: Flags) -> tuple[Array, Array]:
        scores = self._slice(node.scores, rows, bought)
        if node.kind == CLASS.answer:
            return classes_of(scores), margins_of(scores)
        values = scores[:, 0]
        return (values_of(values, node.shift) if node.shift else values), values

    def _slice(self, part: Slice, rows: Numbers, bought: Flags) -> Array:
        return self.scores(part.scorer, rows, bought)[:, part.start : part.stop]

    def _costs(self, bought: Flags, forwarded: Flags) -> NDArray[np.float64]:
        """One call of the meter per distinct path and size."""
        path = _path_of([*bought, forwarded]) * max(len(self._sizes), 1) + self._size_of
        _, first, which = np.unique(path, return_index=True, return_inverse=True)
        costs = [
            to_unit(self._meters[self._size_of[i]].total(np.flatnonzero(bought[:, i]).tolist(), int(forwarded[i])))
            for i in first
        ]
        return np.array(costs)[which]


def _works(program: Program, features: Sequence[int], X: NDArray[np.float64]) -> Flags:
    """Whether a sensor works on each row, (n,): all of its features that are not nullable have readings."""
    needed = [f for f in features if not program.features[f].nullable]
    return np.asarray(~np.isnan(X[:, needed]).any(axis=1))


def _path_of(flags: Sequence[Flags]) -> Numbers:
    """A number for each row, (n,) int64; equal for rows that agree in all flags, each (n,) bool."""
    path = np.zeros(len(flags[0]), dtype=np.int64)
    for k in range(0, len(flags), 32):
        bits = sum(flag.astype(np.int64) << j for j, flag in enumerate(flags[k : k + 32]))
        path = np.unique(path << 32 | bits, return_inverse=True)[1]
    return path


def _send(rows: Numbers, targets: Numbers, arrived: dict[int, list[Numbers]]) -> None:
    """Add these rows to ``arrived``, each under its target node."""
    remaining = np.ones(len(rows), dtype=np.bool_)
    while remaining.any():
        t = int(targets[remaining.argmax()])
        is_sent = targets == t
        arrived.setdefault(t, []).append(rows[is_sent])
        remaining &= ~is_sent


def _cells(sensors: Sequence[int], rows: Numbers) -> tuple[Any, ...]:
    """The index of these sensors and rows in an array of shape (n_sensors, n)."""
    return np.ix_(np.array(sensors, dtype=np.int64), rows)
