"""The compiled heart of the grower: sums over the rows of a leaf, cell by cell; the best cut through a feature's bins;
the next split.

All of it runs without Python's lock. ``look`` writes only to the columns it is asked for, so that threads may share
a leaf. A feature's best cut is (gain, bin, 1 if missing rows go left), its gain that of ``grower.py`` before penalties.
One file, because a compiled function that is kept on disk does not see changes in another file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from .binning import MISSING_BIN

__all__ = ["Growth", "grow_alone", "leaves_of", "look", "plant", "room", "split"]

CACHE = 1 << 19  # bytes of sums that are worth staying in a core's cache
EMPTY = 1e-12  # of a leaf's hessian: neither side of a cut is taken to have less, for that is rounding
TINY = 1e-100  # so that 0 is never divided by 0


class Growth(NamedTuple):
    """A tree as it grows; leaf a has the rows ``rows[start[a] : stop[a]]`` and its sums at ``sums[slot[a]]``."""

    features: np.ndarray  # this and the next three as in GrownTree, for as many nodes as there may be
    bins: np.ndarray
    missing_left: np.ndarray
    children: np.ndarray
    n_leaves: np.ndarray  # (1,)
    rows: np.ndarray  # (n,) uint32, leaf by leaf: an index that cannot be negative is the faster one
    spare: np.ndarray  # (n,) uint32
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


def room(n: int, n_features: int, n_cells: int, n_sums: int, max_leaves: int) -> Growth:
    """Memory for a tree of n rows, nothing in it yet."""
    return Growth(
        features=np.empty(max_leaves, np.int32),
        bins=np.empty(max_leaves, np.int32),
        missing_left=np.empty(max_leaves, np.bool_),
        children=np.empty((max_leaves, 2), np.int32),
        n_leaves=np.empty(1, np.int64),
        rows=np.empty(n, np.uint32),
        spare=np.empty(n, np.uint32),
        start=np.empty(max_leaves, np.int64),
        stop=np.empty(max_leaves, np.int64),
        depth=np.empty(max_leaves, np.int64),
        parent=np.empty(max_leaves, np.int64),
        side=np.empty(max_leaves, np.int64),
        slot=np.empty(max_leaves, np.int64),
        totals=np.empty((max_leaves, n_sums)),
        best=np.empty((max_leaves, n_features, 3)),
        sums=np.empty((max_leaves, n_cells, n_sums)),
        counts=np.empty((max_leaves, n_cells), np.int32),
    )


@njit(nogil=True, cache=True)
def grow_alone(t, packed, codes, steps, sensor_of, penalty, max_leaves, max_depth, min_rows, l2, is_once):
    """A whole tree, by one thread."""
    plant(t, steps)
    small, large = (0, -1) if max_leaves > 1 and max_depth > 0 else (-1, -1)
    while small >= 0:
        look(t, packed, steps, small, large, min_rows, l2, 0, packed.rows.shape[1])
        small, large = split(t, packed, codes, sensor_of, penalty, max_leaves, max_depth, min_rows, is_once)


@njit(nogil=True, cache=True, fastmath=True)
def plant(t, steps):
    """A tree of one leaf."""
    n = len(t.rows)
    for i in range(n):
        t.rows[i] = i
    t.n_leaves[0] = 1
    t.start[0], t.stop[0], t.depth[0], t.parent[0], t.slot[0] = 0, n, 0, -1, 0
    t.best[0, :, 0] = 0.0
    for k in range(steps.shape[1]):
        total = 0.0
        for i in range(n):
            total += steps[i, k]
        t.totals[0, k] = total


@njit(nogil=True, cache=True)
def look(t, packed, steps, small, large, min_rows, l2, low, high):
    """The best cuts of the features in columns low to high: the small leaf is counted, the large is the difference."""
    start, stop = packed.cell[low], packed.cell[high]
    sums, counts = t.sums[t.slot[small]], t.counts[t.slot[small]]
    _count(packed, t.rows[t.start[small] : t.stop[small]], steps, low, high, sums, counts)
    for a in (small, large):
        if a < 0:
            continue
        if a == large:
            t.sums[t.slot[a], start:stop] -= sums[start:stop]
            t.counts[t.slot[a], start:stop] -= counts[start:stop]
        size, s = t.stop[a] - t.start[a], t.slot[a]
        if size >= 2 * min_rows:
            _best_cuts(packed, low, high, t.sums[s], t.counts[s], t.totals[a], size, min_rows, l2, t.best[a])


@njit(nogil=True, cache=True)
def split(t, packed, codes, sensor_of, penalty, max_leaves, max_depth, min_rows, is_once):
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
    _left_sums(packed, f, b, to_left, t.sums[s], t.counts[s], t.totals[leaf], size, t.totals[new])
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
def leaves_of(t, steps, l2):
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


@njit(nogil=True, cache=True, fastmath=True)
def _count(packed, mine, steps, low, high, sums, counts):
    """Sums of ``steps`` (gradients, then hessians) and row counts of the cells of columns low to high."""
    n_sums = steps.shape[1]
    start, stop = packed.cell[low], packed.cell[high]
    sums[start:stop] = 0.0
    counts[start:stop] = 0
    first = low
    while first < high:
        last = first + 1
        while last < high and (packed.cell[last + 1] - packed.cell[first]) * n_sums * 8 <= CACHE:
            last += 1
        if n_sums == 2:
            _count_pairs(packed.rows, packed.cell, mine, steps, first, last, sums, counts)
        elif n_sums == 4:
            _count_fours(packed.rows, packed.cell, mine, steps, first, last, sums, counts)
        else:
            _count_any(packed.rows, packed.cell, mine, steps, first, last, sums, counts)
        first = last


@njit(nogil=True, cache=True, fastmath=True)
def _count_pairs(rows, cell, mine, steps, first, last, sums, counts):
    for i in mine:
        g, h = steps[i, 0], steps[i, 1]
        for c in range(first, last):
            at = cell[c] + rows[i, c]
            counts[at] += 1
            sums[at, 0] += g
            sums[at, 1] += h


@njit(nogil=True, cache=True, fastmath=True)
def _count_fours(rows, cell, mine, steps, first, last, sums, counts):
    for i in mine:
        g0, g1, h0, h1 = steps[i, 0], steps[i, 1], steps[i, 2], steps[i, 3]
        for c in range(first, last):
            at = cell[c] + rows[i, c]
            counts[at] += 1
            sums[at, 0] += g0
            sums[at, 1] += g1
            sums[at, 2] += h0
            sums[at, 3] += h1


@njit(nogil=True, cache=True, fastmath=True)
def _count_any(rows, cell, mine, steps, first, last, sums, counts):
    for i in mine:
        step = steps[i]
        for c in range(first, last):
            at = cell[c] + rows[i, c]
            counts[at] += 1
            held = sums[at]
            for k in range(len(held)):
                held[k] += step[k]


@njit(nogil=True, cache=True, fastmath=True)
def _bins_of(packed, f, sums, counts, totals, n_rows, bin_sums, bin_counts):
    """A feature's sums and counts, bin by bin, those of its missing rows last."""
    n, usual, first = packed.n_bins[f], packed.usual[f], packed.first[f]
    if usual < 0:
        return sums[first : first + n + 1], counts[first : first + n + 1]
    bin_sums[usual] = totals
    bin_counts[usual] = n_rows
    for b in range(n + 1):
        if b != usual:
            at = first + b - (b > usual)
            bin_counts[b] = counts[at]
            bin_counts[usual] -= counts[at]
            for k in range(len(totals)):
                bin_sums[b, k] = sums[at, k]
                bin_sums[usual, k] -= sums[at, k]
    return bin_sums[: n + 1], bin_counts[: n + 1]


@njit(nogil=True, cache=True, fastmath=True)
def _left_sums(packed, f, b, to_left, sums, counts, totals, n_rows, out):
    """Sums over the rows that a cut sends to the left."""
    n = packed.n_bins[f]
    scratch = np.empty((n + 1, len(totals)))
    bins, _ = _bins_of(packed, f, sums, counts, totals, n_rows, scratch, np.empty(n + 1, counts.dtype))
    out[:] = 0.0
    for a in range(min(b + 1, n)):
        out += bins[a]
    if to_left:
        out += bins[n]


@njit(nogil=True, cache=True, fastmath=True)
def _best_cuts(packed, low, high, sums, counts, totals, n_rows, min_rows, l2, best):
    """The best cut of every feature in columns low to high of one leaf; a gain of 0 where there is none."""
    n_outputs = len(totals) // 2
    parent = 0.0
    for k in range(n_outputs):
        h = totals[n_outputs + k] + l2
        if h > 0.0:
            parent += totals[k] * totals[k] / h
    floor = 1e-12 * parent  # less is rounding
    width = 1
    for n in packed.n_bins:
        width = max(width, n + 1)
    bin_sums = np.empty((width, len(totals)))
    bin_counts = np.empty(width, counts.dtype)
    left = np.empty_like(totals)
    for m in range(packed.member[low], packed.member[high]):
        f = packed.features[m]
        s, c = _bins_of(packed, f, sums, counts, totals, n_rows, bin_sums, bin_counts)
        best[f, 0] = 0.0
        for way in range(2 if c[-1] > 0 else 1):  # missing to the right first, then to the left
            # with missing rows the last cut may part them from all the rest
            last = len(c) - 1 if c[-1] > 0 and way == 0 else len(c) - 2
            if n_outputs == 1:
                gain, b, n_left = _scan_one(s, c, way, last, totals, n_rows, min_rows, l2, parent + floor)
            else:
                gain, b, n_left = _scan(s, c, way, last, totals, n_rows, min_rows, l2, parent + floor, left)
            gain = 0.5 * (gain - parent)
            if b >= 0 and gain > best[f, 0]:
                best[f, 0] = gain
                best[f, 1] = b
                best[f, 2] = way if c[-1] > 0 else (1 if 2 * n_left >= n_rows else 0)


@njit(nogil=True, cache=True, fastmath=True)
def _scan_one(sums, counts, way, last, totals, n_rows, min_rows, l2, top):
    """``_scan`` for one output: fractions are compared without dividing."""
    total_g, total_h = totals[0], totals[1] + 2 * l2
    g, h, n_left = 0.0, l2, 0
    if way == 1:
        g, h, n_left = sums[-1, 0], sums[-1, 1] + l2, counts[-1]
    least = EMPTY * totals[1] + TINY + l2
    found, found_left = -1, 0
    for b in range(last):
        if counts[b] == 0:
            continue
        n_left += counts[b]
        g += sums[b, 0]
        h += sums[b, 1]
        if n_left < min_rows:
            continue
        if n_rows - n_left < min_rows:
            break
        other_g, a, z = total_g - g, max(h, least), max(total_h - h, least)
        gain, unit = g * g * z + other_g * other_g * a, a * z
        if gain > top * unit:
            top, found, found_left = gain / unit, b, n_left
    return top, found, found_left


@njit(nogil=True, cache=True, fastmath=True)
def _scan(sums, counts, way, last, totals, n_rows, min_rows, l2, top, left):
    """The largest ``_gain`` above ``top``; its bin, or -1; how many rows go left."""
    left[:] = 0.0
    n_left = 0
    if way == 1:
        left[:] = sums[-1]
        n_left = counts[-1]
    found, found_left = -1, 0
    for b in range(last):
        if counts[b] == 0:
            continue
        for k in range(len(totals)):
            left[k] += sums[b, k]
        n_left += counts[b]
        if n_left < min_rows:
            continue
        if n_rows - n_left < min_rows:
            break
        gain = _gain(left, totals, l2)
        if gain > top:
            top, found, found_left = gain, b, n_left
    return top, found, found_left


@njit(nogil=True, cache=True, fastmath=True)
def _gain(left, totals, l2):
    """Twice what a cut saves, the parent's term included."""
    n = len(totals) // 2
    gain = 0.0
    for k in range(n):
        g, other_g, least = left[k], totals[k] - left[k], EMPTY * totals[n + k] + TINY
        a, z = max(left[n + k], least) + l2, max(totals[n + k] - left[n + k], least) + l2
        gain += (g * g * z + other_g * other_g * a) / (a * z)
    return gain
