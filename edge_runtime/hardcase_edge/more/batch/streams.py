# SPDX-License-Identifier: Apache-2.0
"""Rows of streams at once with numpy: the walk of a program with a memory, row after row of each sequence.

The walk decides a block of rows under the assumption that none of them buys anything, keeps each sequence's rows up to
the first that changes the memory, and continues after that row. So a decision uses only rows before it, as on a device;
a test compares the readings with those of ``memory.Memory``. ``remembered`` returns the rows with the memory's columns
filled: these rows are independent of each other, and every evaluator of rows decides them as the walk did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...program.definition import Node, Program
from ...program.readings import I32_MAX
from ...program.reads import readers_of
from ...stream.layout import Layout
from ...stream.memory import MOST_WINDOWS
from .evaluate import Batch, Outcome

Array = NDArray[Any]
FIRST_BLOCK, LARGEST_BLOCK = 8, 1024  # rows of a sequence that are decided at once
MakeBatch = Callable[..., Batch]


def remembered(
    program: Program,
    layout: Layout,
    X: NDArray[np.float64],
    sequence: NDArray[np.int64],
    hpc: Array | None = None,
    *,
    budget: int | None = None,
    dead: Sequence[int] = (),
    sizes: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """The rows with the memory's columns as the walk fills them, (n, n_features).

    Parameters
    ----------
    X : (n, n_features), NaN = missing, values as the declared types hold them; the memory's columns are overwritten
    sequence : (n,) number of the stream that each row belongs to; its rows follow each other in their order here
    hpc : (n,) the HPC's answer to each row; None: 0
    budget, dead, sizes : as for ``walk``
    """
    return walk(program, layout, X, sequence, hpc, budget=budget, dead=dead, sizes=sizes)[0]


def walk(
    program: Program,
    layout: Layout,
    X: NDArray[np.float64],
    sequence: NDArray[np.int64],
    hpc: Array | None = None,
    nodes: Sequence[Node] | None = None,
    scores: Sequence[Array] = (),
    *,
    budget: int | None = None,
    dead: Sequence[int] = (),
    sizes: NDArray[np.int64] | None = None,
    make: MakeBatch = Batch,
) -> tuple[NDArray[np.float64], Outcome]:
    """The filled rows, and the outcome of each.

    Parameters
    ----------
    nodes : others over the same scorers; None: the program's own
    scores : of the first scorers, (n, n_outputs) each, as for ``Batch``; none of them may read the memory
    budget : hard limit of each row's cost in micro-units; None: no limit
    dead : sensors known not to work
    sizes : (n,) size of each row's item; None: all are 1
    make : the class of batches, which may score trees faster
    """
    X = X.copy()
    X[:, list(program.sensors[layout.sensor].features)] = np.nan
    for sensor in dead:
        X[:, list(program.sensors[sensor].features)] = np.nan
    whole, known = make(program, X, scores, sizes, dead), list(scores)
    memory_reads = set(readers_of(program)[layout.sensor])
    while len(known) < len(program.scorers) and len(known) not in memory_reads:
        known.append(whole.scores(len(known)))
    answers = np.zeros(len(X), dtype=np.int64) if hpc is None else np.asarray(hpc)
    stand = _Stand(program, layout, X, whole.works, sequence)
    parts = [whole.run(answers, nodes, budget).take(np.zeros(0, dtype=np.int64))]
    order: list[NDArray[np.int64]] = []
    while len(stand.active):
        rows = stand.next_block()
        X[rows] = stand.filled(X[rows])
        while True:
            of_rows = None if sizes is None else sizes[rows]
            batch = make(program, X[rows], [s[rows] for s in known], of_rows, dead)
            outcome, bought = batch.walk(answers[rows], nodes, budget)
            is_read = bought & batch.works
            if not stand.take_back(X, rows, is_read):
                break
        is_kept = stand.advance(outcome.label, is_read)
        order.append(rows[is_kept])
        parts.append(outcome.take(is_kept))
    return X, Outcome.joined(parts, np.argsort(np.concatenate([[], *order]).astype(np.int64)))


class _Stand:
    """Where every sequence stands, and what its memory holds: arrays with a row for each sequence."""

    def __init__(
        self,
        program: Program,
        layout: Layout,
        X: NDArray[np.float64],
        works: NDArray[np.bool_],
        sequence: NDArray[np.int64],
    ) -> None:
        self._layout, self._counted = layout, [s for _, s in layout.since]
        self._order = np.argsort(sequence, kind="stable")
        _, first, counts = np.unique(sequence[self._order], return_index=True, return_counts=True)
        self._at, self._end, n = first.copy(), first + counts, len(counts)
        self._watched = [program.sensor_of[of] for _, of in layout.change]
        self._now = np.where(works[self._watched].T, X[:, [of for _, of in layout.change]], np.nan)  # (n, n_change)
        self._dtypes = [program.features[of].dtype for _, of in layout.change]
        self._size = np.full(n, FIRST_BLOCK)
        self._held = np.full(n, -1, dtype=np.int64)
        self._since = np.full((n, len(layout.since)), -1, dtype=np.int64)
        self._then = np.full((n, len(layout.change)), np.nan)
        self.active = np.arange(n)

    def next_block(self) -> NDArray[np.int64]:
        """The numbers of the next rows of every sequence that has some left."""
        self._n = np.minimum(self._size, self._end - self._at)[self.active]
        self._start = np.cumsum(self._n) - self._n
        self._owner = np.repeat(self.active, self._n)
        self._ahead = np.arange(len(self._owner)) - np.repeat(self._start, self._n)
        self._rows = self._order[self._at[self._owner] + self._ahead]
        return np.asarray(self._rows)

    def filled(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """The block's rows, with the memory's columns as they are if nothing in the block changes the memory."""
        X, owner = X.copy(), self._owner
        for f in self._layout.held:
            X[:, f] = np.where(self._held[owner] < 0, np.nan, self._held[owner])
        for k, (f, _) in enumerate(self._layout.since):
            since = self._since[owner, k]
            X[:, f] = np.where(since < 0, np.nan, np.minimum(since + self._ahead + 1, MOST_WINDOWS))
        for k, (f, _) in enumerate(self._layout.change):
            X[:, f] = moved(self._now[self._rows, k], self._then[owner, k], self._dtypes[k])
        return X

    def take_back(self, X: NDArray[np.float64], rows: NDArray[np.int64], is_read: NDArray[np.bool_]) -> bool:
        """Forget changes of what the budget did not let the block's rows read; whether there were any."""
        were_any = False
        for (f, _), sensor in zip(self._layout.change, self._watched, strict=True):
            unread = ~is_read[sensor] & ~np.isnan(X[rows, f])
            X[rows[unread], f] = np.nan
            were_any = were_any or bool(unread.any())
        return were_any

    def advance(self, label: Array, is_read: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Note what the block decided; whether each row stands, up to its sequence's first that changes the memory."""
        owner, who = self._owner, self.active
        reads = is_read[self._counted]  # (n_since, n)
        changes = np.asarray(reads.any(axis=0)) if self._counted else np.ones(len(owner), dtype=np.bool_)
        if self._layout.held:
            changes = np.asarray(changes | (label != self._held[owner]))
        n_kept = np.full(len(self._at), LARGEST_BLOCK)
        np.minimum.at(n_kept, owner[changes], self._ahead[changes] + 1)
        n_kept = np.minimum(n_kept[who], self._n)
        last = self._start + n_kept - 1
        self._held[who] = label[last]
        since = np.where(self._since[who] < 0, -1, np.minimum(self._since[who] + n_kept[:, None], MOST_WINDOWS))
        self._since[who] = np.where(reads[:, last].T, 0, since)
        now = np.where(is_read[self._watched][:, last].T, self._now[self._rows[last]], np.nan)
        anew = reads[:, last].all(axis=0)
        self._then[who[anew]] = now[anew]
        self._at[who] += n_kept
        self._size[who] = np.clip(2 * np.where(changes[last], n_kept, self._n), FIRST_BLOCK, LARGEST_BLOCK)
        is_kept = self._ahead < np.repeat(n_kept, self._n)
        self.active = who[self._at[who] < self._end[who]]
        return np.asarray(is_kept)


def moved(now: NDArray[np.float64], then: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """``memory.difference`` of many readings, (n,), as the declared type holds it."""
    moved = now - then
    if dtype == "i32":
        return np.clip(moved, -I32_MAX, I32_MAX)
    if dtype == "f32":
        with np.errstate(over="ignore"):
            moved = moved.astype(np.float32).astype(np.float64)
    return np.where(np.isfinite(moved), moved, np.nan)
