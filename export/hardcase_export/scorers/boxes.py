# SPDX-License-Identifier: Apache-2.0
"""Trees of boxes around training rows: each sorts a case into a cell, and says whether it lies outside the box there.

docs/math.md (155).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, frexp

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.more.batch.codes import codes_of
from hardcase_edge.program.definition import CODE_MAX, MISSING, Affine, Column, Program, Tree, Trees

N_TREES = 24
DEPTH = 4  # of the splits; below them come the tests of a box
DRAWS = 6  # of a split, the best of which is taken
TESTS = 5  # of one box: those that show most of the training rows with one moved reading
LEAST_CELL = 16  # rows on each side of a split
MOVED = 2.0  # standard deviations: how far one reading of such a row moves at most
HALF_RANGE = 16_000  # codes from the middle of the training rows to their ends: there is room beyond

Codes = NDArray[np.int64]


def box_trees(
    program: Program, sensors: Sequence[int], train: NDArray[np.float64], classes: Codes
) -> tuple[tuple[Column, ...], Trees]:
    """Columns of all readings of these sensors that training rows have, and trees over them, in this order."""
    features = [f for s in sensors for f in program.sensors[s].features if np.isfinite(train[:, f]).any()]
    columns = tuple(Column(f, _rule(train[:, f])) for f in features)
    codes = codes_of(columns, train).astype(np.int64)
    rng = np.random.default_rng(0)
    trees = tuple(_Boxes(codes, classes, rng).tree() for _ in range(N_TREES)) if features else ()
    return columns, Trees(tuple(range(len(columns))), (0,), trees)


def _rule(values: NDArray[np.float64]) -> Affine:
    """Codes around the middle of these values, a power of two apart."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    largest = max(abs(low), abs(high), 1e-6)
    width = max((high - low) / 2, largest * 2.0**-20)  # a constant has steps, too
    frac = max(-64, min(64, 13 - frexp(width / (HALF_RANGE / 2**13))[1], 30 - frexp(largest)[1]))
    return Affine(frac, 1, -floor((low + high) / 2 * 2.0**frac), 0)


class _Boxes:
    """One tree: splits that tell answers apart, and in each cell the tests of a box around the training rows in it."""

    def __init__(self, codes: Codes, classes: Codes, rng: np.random.Generator) -> None:
        self._codes, self._classes, self._rng = codes, classes, rng
        spread = np.array([c[c != MISSING].std() for c in codes])
        moved = np.repeat(codes, 2, axis=1)
        which, k = rng.integers(0, len(codes), moved.shape[1]), np.arange(moved.shape[1])
        steps = np.round(rng.uniform(-MOVED, MOVED, len(k)) * np.maximum(spread[which], 1.0)).astype(np.int64)
        there = moved[which, k] != MISSING
        moved[which, k] = np.where(there, np.clip(moved[which, k] + steps, -CODE_MAX, CODE_MAX), MISSING)
        self._moved = moved
        self._splits: list[int] = []
        self._thresholds: list[int] = []
        self._left: list[bool] = []  # where missing goes
        self._children: list[tuple[int, int]] = []
        self._leaves: list[int] = []

    def tree(self) -> Tree:
        """The tree: its leaves are 0 inside a box and 1 outside."""
        self._grow(np.arange(self._codes.shape[1]), np.arange(self._moved.shape[1]), DEPTH)
        splits, children = tuple(self._splits), tuple(self._children)
        return Tree(0, 1, splits, tuple(self._thresholds), tuple(self._left), children, tuple(self._leaves))

    def _grow(self, rows: Codes, moved: Codes, depth: int) -> int:
        """The number of the node or leaf that stands for these rows."""
        split = self._split(rows) if depth and len(rows) >= 2 * LEAST_CELL else None
        if split is None:
            return self._box(rows, moved)
        column, threshold = split
        node = self._node(column, threshold, missing_left=True)
        low, low_moved = self._codes[column, rows] <= threshold, self._moved[column, moved] <= threshold
        left = self._grow(rows[low], moved[low_moved], depth - 1)
        self._children[node] = left, self._grow(rows[~low], moved[~low_moved], depth - 1)
        return node

    def _split(self, rows: Codes) -> tuple[int, int] | None:
        """Of some columns and quartiles at random, the split that tells the answers apart best; None: there is none."""
        found: list[tuple[float, int, int]] = []
        for _ in range(DRAWS):
            column, q = int(self._rng.integers(len(self._codes))), float(self._rng.choice([0.25, 0.5, 0.75]))
            values = self._codes[column, rows]
            threshold = int(np.quantile(values, q, method="lower"))
            left = values <= threshold
            if threshold >= -CODE_MAX and LEAST_CELL <= left.sum() <= len(rows) - LEAST_CELL:
                sides = [np.bincount(self._classes[rows[side]]) for side in (left, ~left)]
                found.append((sum(float((n**2).sum() / n.sum()) for n in sides), column, threshold))
        return max(found)[1:] if found else None

    def _box(self, rows: Codes, moved: Codes) -> int:
        """A chain of tests: each leads outside to a leaf of its own, and the last one inside to the leaf 0."""
        own = self._codes[:, rows]
        low = np.where(own == MISSING, CODE_MAX + 1, own).min(axis=1)
        high = np.where(own == MISSING, -CODE_MAX - 1, own).max(axis=1)
        some = self._moved[:, moved]
        there = (some != MISSING) & (low <= high)[:, None]
        outside = np.concatenate([there & (some < low[:, None]), there & (some > high[:, None])])
        first = last = None
        for _ in range(TESTS):
            caught = outside.sum(axis=1)
            best = int(caught.argmax())
            if not caught[best]:
                break
            outside = outside[:, ~outside[best]]
            column, is_high = best % len(low), best >= len(low)
            node = self._node(column, int(high[column] if is_high else low[column] - 1), missing_left=is_high)
            out = self._leaf(1)
            if last is not None:
                self._close(last, node)
            self._children[node] = (node, out) if is_high else (out, node)  # its own number: the other side is open
            first, last = node if first is None else first, node
        inside = self._leaf(0)
        if first is None or last is None:
            return inside
        self._close(last, inside)
        return first

    def _close(self, node: int, target: int) -> None:
        left, right = self._children[node]
        self._children[node] = (target, right) if left == node else (left, target)

    def _node(self, column: int, threshold: int, *, missing_left: bool) -> int:
        self._splits.append(column)
        self._thresholds.append(threshold)
        self._left.append(missing_left)
        self._children.append((0, 0))
        return len(self._splits) - 1

    def _leaf(self, value: int) -> int:
        self._leaves.append(value)
        return -len(self._leaves)
