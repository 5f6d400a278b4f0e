"""The tree grower: histogram trees for several outputs at once, aware of what sensors cost.

Growth is best first. Every open leaf keeps the best raw gain of *each feature*; the split taken is the one with the
largest gain after the penalty of its sensor, and a sensor pays once: as soon as it is bought, every other open leaf
sees its raw gains without penalty, and never with a bonus (Nan and Saligrama 2017, equations (1) and (2)).

    gain = 1/2 sum_k [ GL_k^2/(HL_k + l2) + GR_k^2/(HR_k + l2) - G_k^2/(H_k + l2) ]  -  penalty of the sensor
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from .binning import MISSING_BIN
from .histograms import best_cuts, count, left_sums
from .packing import pack

__all__ = ["CHARGES", "GrownTree", "Grower", "grow"]

CHARGES = ("once", "per-split")
ALONE = 400_000  # sums and cuts of a leaf, fewer of which a second thread does not speed up


@dataclass(frozen=True)
class GrownTree:
    """A tree over bins: ``children`` as in ``hardcase_edge.program.Tree``; leaf k has ``leaves[k]`` (n_outputs,)."""

    features: np.ndarray  # (n_nodes,) int32
    bins: np.ndarray  # (n_nodes,) int32: go left if bin <= this
    missing_left: np.ndarray  # (n_nodes,) bool
    children: np.ndarray  # (n_nodes, 2) int32
    leaves: np.ndarray  # (n_leaves, n_outputs) float64
    leaf_of_row: np.ndarray  # (n,) int32, for the rows it was grown on


class Growth(NamedTuple):
    """A tree as it grows; leaf a has the rows ``rows[start[a] : stop[a]]`` and its sums at ``sums[slot[a]]``."""

    features: np.ndarray  # this and the next three as in GrownTree, for as many nodes as there may be
    bins: np.ndarray
    missing_left: np.ndarray
    children: np.ndarray
    n_leaves: np.ndarray  # (1,)
    rows: np.ndarray  # (n,) int32, leaf by leaf
    spare: np.ndarray  # (n,) int32
    start: np.ndarray  # this and what follows is of each leaf
    stop: np.ndarray
    depth: np.ndarray
    parent: np.ndarray  # node above, or -1
    side: np.ndarray  # and which of its children this is
    slot: np.ndarray
    totals: np.ndarray  # (max_leaves, n_sums)
    best: np.ndarray  # (max_leaves, n_features, 3): the best cut of each feature
    sums: np.ndarray  # (max_leaves, n_cells, n_sums): gradients, then hessians
    counts: np.ndarray  # (max_leaves, n_cells)


def grow(
    codes: np.ndarray,
    n_bins: np.ndarray,
    sensor_of: np.ndarray,
    gradient: np.ndarray,
    hessian: np.ndarray,
    penalty: np.ndarray,
    *,
    max_leaves: int,
    max_depth: int,
    min_rows: int,
    l2: float,
    charge: str = "once",
    n_threads: int = 1,
) -> GrownTree:
    """Grow one tree by second-order gain.

    Parameters
    ----------
    codes : ndarray of shape (n_features, n), uint8
        Bins, ``MISSING_BIN`` for missing.
    n_bins : ndarray of shape (n_features,), int
        Bins in use; a feature with fewer than 2 is never split unless it can be missing.
    sensor_of : ndarray of shape (n_features,), int
        Which sensor gives a feature; -1 for a feature that must not be used.
    gradient, hessian : ndarray of shape (n, n_outputs)
        Of the loss to be lowered, weights included; leaves are ``-G / (H + l2)``, 0 where all hessians are 0.
    penalty : ndarray of shape (n_sensors,), in the loss's unit
        What the first use of a sensor costs; set to 0 *in place* for sensors that this tree uses.
    min_rows : int
        A leaf has at least so many rows, whatever they weigh.
    charge : "once" or "per-split"
        Whether a sensor not bought before this tree pays at its first split, or at every split of this tree.
    n_threads : int
        The tree is the same, to the byte, for any number.

    Raises
    ------
    ValueError
        For any other ``charge``.
    """
    grower = Grower(codes, n_bins, sensor_of, n_threads)
    shape = {"max_leaves": max_leaves, "max_depth": max_depth, "min_rows": min_rows, "l2": l2, "charge": charge}
    return grower.grow(gradient, hessian, penalty, **shape)


class Grower:
    """Grows trees on the same rows one after the other; parameters as of ``grow``."""

    def __init__(self, codes: np.ndarray, n_bins: np.ndarray, sensor_of: np.ndarray, n_threads: int = 1) -> None:
        self._codes = np.ascontiguousarray(codes)
        self._sensor_of = np.asarray(sensor_of, dtype=np.int64)
        self._packed = pack(self._codes, np.asarray(n_bins), (self._sensor_of >= 0) & (np.asarray(n_bins) >= 1))
        n_columns = self._packed.rows.shape[1]
        self._cuts = [n_columns * k // n_threads for k in range(n_threads + 1)]
        self._pool = ThreadPoolExecutor(n_threads - 1) if n_threads > 1 else None
        self._steps = np.empty((0, 0))
        self._growth: Growth | None = None

    def grow(
        self,
        gradient: np.ndarray,
        hessian: np.ndarray,
        penalty: np.ndarray,
        *,
        max_leaves: int,
        max_depth: int,
        min_rows: int,
        l2: float,
        charge: str = "once",
    ) -> GrownTree:
        """Grow one tree."""
        if charge not in CHARGES:
            raise ValueError(f"charge is {charge!r}: expected one of {', '.join(CHARGES)}")
        k = gradient.shape[1]
        t = self._start(2 * k, max_leaves)
        self._steps[:, :k], self._steps[:, k:] = gradient, hessian
        shape = (max_leaves, max_depth, min_rows)
        unpaid = penalty if charge == "once" else penalty.copy()
        args = (t, self._packed, self._codes, self._steps, self._sensor_of, unpaid, *shape, l2, charge == "once")
        if self._pool is None:
            _grow(*args)
        else:
            self._grow_together(*args)
        leaf_of_row, leaves = _leaves(t, self._steps, l2)
        n = len(leaves) - 1
        penalty[self._sensor_of[t.features[:n]]] = 0.0
        tree = (t.features[:n].copy(), t.bins[:n].copy(), t.missing_left[:n].copy(), t.children[:n].copy())
        return GrownTree(*tree, leaves, leaf_of_row)

    def _start(self, n_sums: int, max_leaves: int) -> Growth:
        """Room for a tree, kept for the next."""
        p, n = self._packed, self._codes.shape[1]
        if self._growth is None or self._growth.totals.shape != (max_leaves, n_sums):
            self._steps = np.empty((n, n_sums))
            self._growth = Growth(
                *(np.empty(max_leaves, kind) for kind in (np.int32, np.int32, np.bool_)),
                np.empty((max_leaves, 2), np.int32),
                np.empty(1, np.int64),
                *(np.empty(n, np.int32) for _ in range(2)),
                *(np.empty(max_leaves, np.int64) for _ in range(6)),
                np.empty((max_leaves, n_sums)),
                np.empty((max_leaves, len(p.n_bins), 3)),
                np.empty((max_leaves, p.cell[-1], n_sums)),
                np.empty((max_leaves, p.cell[-1]), np.int32),
            )
        return self._growth

    def _grow_together(self, t, packed, codes, steps, sensor_of, penalty, max_leaves, max_depth, min_rows, l2, is_once):
        """``_grow`` with the columns of large leaves shared among threads."""
        _plant(t, steps)
        small, large = (0, -1) if max_leaves > 1 and max_depth > 0 else (-1, -1)
        while small >= 0:
            args = (t, packed, steps, small, large, min_rows, l2)
            n_sums = steps.shape[1] * ((t.stop[small] - t.start[small]) * packed.rows.shape[1] + 2 * packed.cell[-1])
            if n_sums < ALONE:
                _look(*args, 0, packed.rows.shape[1])
            else:
                parts = list(zip(self._cuts, self._cuts[1:], strict=False))
                others = [self._pool.submit(_look, *args, low, high) for low, high in parts[1:]]
                _look(*args, *parts[0])
                for other in others:
                    other.result()
            small, large = _split(t, packed, codes, sensor_of, penalty, max_leaves, max_depth, min_rows, is_once)


@njit(nogil=True, cache=True)
def _grow(t, packed, codes, steps, sensor_of, penalty, max_leaves, max_depth, min_rows, l2, is_once):
    _plant(t, steps)
    small, large = (0, -1) if max_leaves > 1 and max_depth > 0 else (-1, -1)
    while small >= 0:
        _look(t, packed, steps, small, large, min_rows, l2, 0, packed.rows.shape[1])
        small, large = _split(t, packed, codes, sensor_of, penalty, max_leaves, max_depth, min_rows, is_once)


@njit(nogil=True, cache=True)
def _plant(t, steps):
    """A tree of one leaf."""
    n = len(t.rows)
    for i in range(n):
        t.rows[i] = i
    t.n_leaves[0] = 1
    t.start[0], t.stop[0], t.depth[0], t.parent[0], t.slot[0] = 0, n, 0, -1, 0
    t.totals[0] = 0.0
    t.best[0, :, 0] = 0.0
    for i in range(n):
        for k in range(steps.shape[1]):
            t.totals[0, k] += steps[i, k]


@njit(nogil=True, cache=True)
def _look(t, packed, steps, small, large, min_rows, l2, low, high):
    """The best cuts of the features in columns low to high: the small leaf is counted, the large is the difference."""
    start, stop = packed.cell[low], packed.cell[high]
    sums, counts = t.sums[t.slot[small]], t.counts[t.slot[small]]
    count(packed, t.rows[t.start[small] : t.stop[small]], steps, low, high, sums, counts)
    for a in (small, large):
        if a < 0:
            continue
        if a == large:
            t.sums[t.slot[a], start:stop] -= sums[start:stop]
            t.counts[t.slot[a], start:stop] -= counts[start:stop]
        size, s = t.stop[a] - t.start[a], t.slot[a]
        if size >= 2 * min_rows:
            best_cuts(packed, low, high, t.sums[s], t.counts[s], t.totals[a], size, min_rows, l2, t.best[a])


@njit(nogil=True, cache=True)
def _split(t, packed, codes, sensor_of, penalty, max_leaves, max_depth, min_rows, is_once):
    """Take the split that pays best, until its halves must be looked at: the smaller and the larger, or -1, -1."""
    while t.n_leaves[0] < max_leaves:
        leaf, f = _best(t, sensor_of, penalty)
        if leaf < 0:
            break
        if is_once:
            penalty[sensor_of[f]] = 0.0
        new = _add(t, packed, codes, leaf, f)
        low, high = (leaf, new) if t.stop[leaf] - t.start[leaf] <= t.stop[new] - t.start[new] else (new, leaf)
        t.slot[high], t.slot[low] = t.slot[leaf], new
        t.best[leaf, :, 0] = 0.0
        t.best[new, :, 0] = 0.0
        can_split = t.depth[leaf] < max_depth and new + 1 < max_leaves
        if can_split and t.stop[high] - t.start[high] >= 2 * min_rows:
            return low, high
    return -1, -1


@njit(nogil=True, cache=True)
def _best(t, sensor_of, penalty):
    """Leaf and feature of the largest gain after penalties, or -1, -1 if none is above 0."""
    leaf, feature, top = -1, -1, 1e-12
    for a in range(t.n_leaves[0]):
        for f in range(len(sensor_of)):
            if t.best[a, f, 0] > top:  # a penalty is never below 0
                net = t.best[a, f, 0] - penalty[sensor_of[f]]
                if net > top:
                    leaf, feature, top = a, f, net
    return leaf, feature


@njit(nogil=True, cache=True)
def _add(t, packed, codes, leaf, f):
    """Split a leaf by its best cut of a feature: it becomes the left one, and the right one is new."""
    b, to_left = int(t.best[leaf, f, 1]), t.best[leaf, f, 2] > 0.5
    node, new = t.n_leaves[0] - 1, t.n_leaves[0]
    t.n_leaves[0] += 1
    t.features[node], t.bins[node], t.missing_left[node] = f, b, to_left
    t.children[node, 0], t.children[node, 1] = -1 - leaf, -1 - new
    if t.parent[leaf] >= 0:
        t.children[t.parent[leaf], t.side[leaf]] = node
    t.parent[leaf], t.side[leaf], t.parent[new], t.side[new] = node, 0, node, 1
    t.depth[leaf] += 1
    t.depth[new] = t.depth[leaf]
    size, s = t.stop[leaf] - t.start[leaf], t.slot[leaf]
    left_sums(packed, f, b, to_left, t.sums[s], t.counts[s], t.totals[leaf], size, t.totals[new])
    for k in range(t.totals.shape[1]):
        t.totals[leaf, k], t.totals[new, k] = t.totals[new, k], t.totals[leaf, k] - t.totals[new, k]
    at = _part(t.rows, t.spare, t.start[leaf], t.stop[leaf], codes[f], b, to_left)
    t.start[new], t.stop[new], t.stop[leaf] = at, t.stop[leaf], at
    return new


@njit(nogil=True, cache=True)
def _part(rows, spare, start, stop, codes, b, to_left):
    """Rows that go left first, both halves in their order; where the second begins."""
    goes_left = np.zeros(256, np.uint8)
    goes_left[: b + 1] = 1
    goes_left[MISSING_BIN] = to_left
    at, other = start, 0
    for j in range(start, stop):
        i = rows[j]
        left = goes_left[codes[i]]
        rows[at] = i
        spare[other] = i
        at += left
        other += 1 - left
    rows[at:stop] = spare[:other]
    return at


@njit(nogil=True, cache=True)
def _leaves(t, steps, l2):
    """The leaf of every row, and the leaves' values from the sums over their own rows."""
    n_leaves, k = t.n_leaves[0], steps.shape[1] // 2
    leaf_of_row = np.empty(len(t.rows), np.int32)
    totals = np.zeros((n_leaves, 2 * k))
    for a in range(n_leaves):
        for i in t.rows[t.start[a] : t.stop[a]]:
            leaf_of_row[i] = a
    for i in range(len(leaf_of_row)):
        for j in range(2 * k):
            totals[leaf_of_row[i], j] += steps[i, j]
    leaves = np.zeros((n_leaves, k))
    for a in range(n_leaves):
        for j in range(k):
            if totals[a, k + j] + l2 > 0.0:
                leaves[a, j] = -totals[a, j] / (totals[a, k + j] + l2)
    return leaf_of_row, leaves
