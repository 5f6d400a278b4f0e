"""What a tree grower does most: sums over the rows of a leaf, cell by cell, and the best cut through a feature's bins.

All kernels run without Python's lock and write only to the columns they are asked for, so that threads may share a
leaf. A feature's best cut is (gain, bin, 1 if missing rows go left), its gain that of ``grower.py`` before penalties.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["best_cuts", "count", "left_sums"]

CACHE = 1 << 18  # bytes of sums that are worth staying in a core's cache
EMPTY = 1e-12  # a share of a leaf's hessian that is taken for rounding: half a leaf counts for no less
TINY = 1e-100  # so that 0 is never divided by 0


@njit(nogil=True, cache=True, fastmath=True)
def count(packed, mine, steps, low, high, sums, counts):
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
        for c in range(first, last):
            at = cell[c] + rows[i, c]
            counts[at] += 1
            for k in range(steps.shape[1]):
                sums[at, k] += steps[i, k]


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
def left_sums(packed, f, b, to_left, sums, counts, totals, n_rows, out):
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
def best_cuts(packed, low, high, sums, counts, totals, n_rows, min_rows, l2, best):
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
    """Twice what the best cut saves, the parent's term included, if above ``top``; its bin, or -1; its rows left."""
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
    n = len(totals) // 2
    gain = 0.0
    for k in range(n):
        g, other_g, least = left[k], totals[k] - left[k], EMPTY * totals[n + k] + TINY
        a, z = max(left[n + k], least) + l2, max(totals[n + k] - left[n + k], least) + l2
        gain += (g * g * z + other_g * other_g * a) / (a * z)
    return gain
