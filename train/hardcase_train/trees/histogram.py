# SPDX-License-Identifier: Apache-2.0
"""Compiled core of the tree grower: histograms of leaves, the best split of each feature, the next split.

The code releases the GIL and is single-threaded: it is bound by the caches, and trees are grown in parallel. A
feature's best split is (gain, bin, 1 if missing rows go left), with the gain of ``grower.py`` before penalties. The
compiled code is one file, because numba's cache on disk does not notice changes of a function in another file. Arrays
are copied and added by loops: for ``a[:] = b`` and ``a += b`` numba compiles an error message too, for seconds.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# numba infers the types of compiled functions; those that Python calls are annotated

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from .binning import MISSING_BIN, Packed
from .growth import Growth

CACHE = 1 << 16  # bytes of sums that stay in a core's L1 and L2 caches
STREAMS = 16  # columns that are counted together: each is read from its beginning to its end
EMPTY = 1e-12  # share of a leaf's Hessian; a side with less counts as having this much, for it is rounding
TINY = 1e-100  # avoids 0 / 0


@intrinsic
def _add_four(typing, to, at, of, by):
    """``to[at : at + 4] += of[by : by + 4]`` of flat arrays, as one vector instruction."""

    def make(context, builder, signature, args):
        four = ir.VectorType(ir.DoubleType(), 4)

        def pointer(k):
            data = context.make_array(signature.args[k])(context, builder, args[k]).data
            return builder.bitcast(builder.gep(data, [args[k + 1]]), four.as_pointer())

        to_, of_ = pointer(0), pointer(2)
        builder.store(builder.fadd(builder.load(to_, align=8), builder.load(of_, align=8)), to_, align=8)
        return context.get_dummy_value()

    return types.void(to, at, of, by), make


@njit(nogil=True, cache=True)
def grow_tree(
    t: Growth, packed: Packed, codes: np.ndarray, steps: np.ndarray, sensor_of: np.ndarray, penalty: np.ndarray,
    max_leaves: int, max_depth: int, min_rows: int, l2: float, is_once: bool,
) -> None:  # fmt: skip
    """Grow a whole tree into ``t``; ``penalty`` changes in place."""
    _plant(t, steps)
    none = np.int64(-1)  # numba compiles what is called below once more for a plain -1
    small, large = (np.int64(0), none) if max_leaves > 1 and max_depth > 0 else (none, none)
    while small >= 0:
        _look(t, packed, steps, small, large, min_rows, l2)
        small, large = _split(t, packed, codes, sensor_of, penalty, max_leaves, max_depth, min_rows, is_once)


@njit(nogil=True, cache=True)
def _plant(t, steps):
    """Start with a tree of one leaf."""
    n = len(t.rows)
    for i in range(n):
        t.rows[i] = i
    t.n_leaves[0] = 1
    t.start[0], t.stop[0], t.depth[0], t.parent[0], t.slot[0] = 0, n, 0, -1, 0
    t.best[0, :, 0] = 0.0
    for k in range(t.totals.shape[1]):
        total = 0.0
        for i in range(n):
            total += steps[i, k]
        t.totals[0, k] = total


@njit(nogil=True, cache=True)
def _look(t, packed, steps, small, large, min_rows, l2):
    """Best splits of all features in two leaves: the smaller is counted, the larger is the parent minus it."""
    sums = t.sums[t.slot[small]]
    own = t.rows[t.start[small] : t.stop[small]]
    _gather(own, steps, t.ordered)
    _count(packed, own, t.ordered[: len(own)], sums)
    for a in (small, large):
        if a < 0:
            continue
        if a == large:
            parent, part = t.sums[t.slot[a]].reshape(-1), sums.reshape(-1)
            for k in range(len(part)):
                parent[k] -= part[k]
        size, s = t.stop[a] - t.start[a], t.slot[a]
        if size >= 2 * min_rows:
            _best_cuts(packed, t.sums[s], t.totals[a], size, min_rows, l2, t.best[a])


@njit(nogil=True, cache=True)
def _split(t, packed, codes, sensor_of, penalty, max_leaves, max_depth, min_rows, is_once):
    """Take the best split, repeatedly until its halves need ``_look``; return smaller and larger, or -1, -1."""
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
    """Leaf and feature of the largest gain after penalties; -1, -1 if none is above 0."""
    leaf, feature, top = -1, -1, 1e-12
    for a in range(t.n_leaves[0]):
        for f in range(len(sensor_of)):
            if t.best[a, f, 0] > top:  # penalties are not negative
                net = t.best[a, f, 0] - penalty[sensor_of[f]]
                if net > top:
                    leaf, feature, top = a, f, net
    return leaf, feature


@njit(nogil=True, cache=True)
def _add(t, packed, codes, leaf, f):
    """Apply a leaf's best split on a feature: the leaf becomes the left child, and the right child is new."""
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
    _left_sums(packed, f, b, to_left, t.sums[s], t.totals[leaf], size, t.totals[new])
    for k in range(t.totals.shape[1]):
        t.totals[leaf, k], t.totals[new, k] = t.totals[new, k], t.totals[leaf, k] - t.totals[new, k]
    middle = _part(t.rows, t.spare, t.start[leaf], t.stop[leaf], codes[f], b, to_left)
    t.start[new], t.stop[new], t.stop[leaf] = middle, t.stop[leaf], middle
    return new


@njit(nogil=True, cache=True)
def _part(rows, spare, start, stop, codes, b, to_left):
    """Stable partition of ``rows[start:stop]``, rows that go left first; return where the others begin."""
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
    for j in range(other):
        rows[at + j] = spare[j]
    return at


@njit(nogil=True, cache=True)
def leaves_of(t: Growth, steps: np.ndarray, l2: float) -> tuple[np.ndarray, np.ndarray]:
    """The leaf of every row (n,), and leaf values (n_leaves, n_outputs) from sums over the leaves' own rows."""
    n_leaves, k = t.n_leaves[0], t.totals.shape[1] // 2
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


@njit(nogil=True, cache=True)
def _gather(leaf_rows, steps, ordered):
    """Copy the steps of a leaf's rows, so that they are then read one after the other."""
    for j in range(len(leaf_rows)):
        for k in range(steps.shape[1]):
            ordered[j, k] = steps[leaf_rows[j], k]


@njit(nogil=True, cache=True)
def _count(packed, leaf_rows, ordered, sums):
    """Sum the steps of a leaf's rows by cell, in blocks of columns whose sums fit the caches."""
    sums[:] = 0.0
    first, n_columns = 0, len(packed.columns)
    while first < n_columns:
        last, most = first + 1, min(n_columns, first + STREAMS)
        while last < most and (packed.cell[last + 1] - packed.cell[first]) * sums.shape[1] * 8 <= CACHE:
            last += 1
        _count_columns(packed.columns, packed.cell, leaf_rows, ordered, first, last, sums)
        first = last


@njit(nogil=True, cache=True)
def _count_columns(columns, cell, leaf_rows, ordered, first, last, sums):
    """Add the steps of every row to the row's cells; unsigned indices, because signed ones may count from the end."""
    flat, step_of, cell_of = sums.reshape(-1), ordered.reshape(-1), columns.reshape(-1)
    width, n, step = np.uint64(ordered.shape[1]), np.uint64(columns.shape[1]), np.uint64(0)
    for i in leaf_rows:
        for c in range(np.uint64(first), np.uint64(last)):
            at = (np.uint64(cell[c]) + np.uint64(cell_of[c * n + np.uint64(i)])) * width
            _add_four(flat, at, step_of, step)  # type: ignore[call-arg]
            for k in range(np.uint64(4), width, np.uint64(4)):
                _add_four(flat, at + k, step_of, step + k)
        step += width


@njit(nogil=True, cache=True)
def _bins_of(packed, f, sums, totals, n_rows, out):
    """A feature's histogram: sums and row counts by bin, missing rows last."""
    n, usual, first, n_sums = packed.n_bins[f], packed.usual[f], packed.first[f], len(totals)
    if usual < 0:
        return sums[first : first + n + 1]
    for k in range(n_sums):
        out[usual, k] = totals[k]
    out[usual, n_sums] = n_rows
    for b in range(n + 1):
        if b != usual:
            at = first + b - (b > usual)
            for k in range(n_sums + 1):
                out[b, k] = sums[at, k]
                out[usual, k] -= sums[at, k]
    return out[: n + 1]


@njit(nogil=True, cache=True)
def _left_sums(packed, f, b, to_left, sums, totals, n_rows, out):
    """Sums over the rows that a split sends to the left."""
    n, n_sums = packed.n_bins[f], len(totals)
    bins = _bins_of(packed, f, sums, totals, n_rows, np.empty((n + 1, sums.shape[1])))
    out[:] = 0.0
    for a in range(min(b + 1, n)):
        for k in range(n_sums):
            out[k] += bins[a, k]
    if to_left:
        for k in range(n_sums):
            out[k] += bins[n, k]


@njit(nogil=True, cache=True)
def _best_cuts(packed, sums, totals, n_rows, min_rows, l2, best):
    """The best split of every feature in one leaf; a gain of 0 if there is none."""
    n_sums = len(totals)
    n_outputs = n_sums // 2
    parent = 0.0
    for k in range(n_outputs):
        h = totals[n_outputs + k] + l2
        if h > 0.0:
            parent += totals[k] * totals[k] / h
    floor = 1e-12 * parent  # a smaller gain is rounding
    width = 1
    for n in packed.n_bins:
        width = max(width, n + 1)
    scratch = np.empty((width, sums.shape[1]))
    left, terms = np.empty_like(totals), np.empty(n_outputs)
    for f in packed.features:
        bins = _bins_of(packed, f, sums, totals, n_rows, scratch)
        has_missing = bins[-1, n_sums] > 0
        best[f, 0] = 0.0
        for way in range(2 if has_missing else 1):  # missing to the right first, then to the left
            # if missing rows go right, the last bin's split separates them from all others
            last = len(bins) - 1 if has_missing and way == 0 else len(bins) - 2
            if n_outputs == 1:
                gain, b, n_left = _scan_one(bins, way, last, totals, n_rows, min_rows, l2, parent + floor)
            else:
                gain, b, n_left = _scan(bins, way, last, totals, n_rows, min_rows, l2, parent + floor, left, terms)
            gain = 0.5 * (gain - parent)
            if b >= 0 and gain > best[f, 0]:
                best[f, 0] = gain
                best[f, 1] = b
                best[f, 2] = way if has_missing else (1 if 2 * n_left >= n_rows else 0)


@njit(nogil=True, cache=True)
def _scan_one(bins, way, last, totals, n_rows, min_rows, l2, top):
    """``_scan`` for one output, which compares fractions without dividing."""
    total_g, total_h = totals[0], totals[1] + 2 * l2
    g, h, n_left = 0.0, l2, 0.0
    if way == 1:
        g, h, n_left = bins[-1, 0], bins[-1, 1] + l2, bins[-1, 2]
    least = EMPTY * totals[1] + TINY + l2
    best_bin, best_left = -1, 0.0
    for b in range(last):
        if bins[b, 2] == 0.0:
            continue
        g += bins[b, 0]
        h += bins[b, 1]
        n_left += bins[b, 2]
        if n_left < min_rows:
            continue
        if n_rows - n_left < min_rows:
            break
        other_g, a, z = total_g - g, max(h, least), max(total_h - h, least)
        gain, unit = g * g * z + other_g * other_g * a, a * z
        if gain > top * unit:
            top, best_bin, best_left = gain / unit, b, n_left
    return top, best_bin, best_left


@njit(nogil=True, cache=True)
def _scan(bins, way, last, totals, n_rows, min_rows, l2, top, left, terms):
    """The largest ``_gain`` above ``top``, its bin (or -1), and the number of rows that go left."""
    n_sums = len(totals)
    left[:] = 0.0
    n_left = 0.0
    if way == 1:
        for k in range(n_sums):
            left[k] = bins[-1, k]
        n_left = bins[-1, n_sums]
    best_bin, best_left = -1, 0.0
    for b in range(last):
        if bins[b, n_sums] == 0.0:
            continue
        for k in range(n_sums):
            left[k] += bins[b, k]
        n_left += bins[b, n_sums]
        if n_left < min_rows:
            continue
        if n_rows - n_left < min_rows:
            break
        gain = _gain(left, totals, l2, terms)
        if gain > top:
            top, best_bin, best_left = gain, b, n_left
    return top, best_bin, best_left


@njit(nogil=True, cache=True)
def _gain(left, totals, l2, terms):
    """Twice the gain of a split, plus the parent's term; ``terms``, in a loop of their own, are made side by side."""
    n, gain = len(terms), 0.0
    for k in range(n):
        g, other_g, least = left[k], totals[k] - left[k], EMPTY * totals[n + k] + TINY
        a, z = max(left[n + k], least) + l2, max(totals[n + k] - left[n + k], least) + l2
        terms[k] = (g * g * z + other_g * other_g * a) / (a * z)
    for k in range(n):
        gain += terms[k]
    return gain
