"""The tree grower: histogram trees for several outputs at once, aware of what sensors cost.

Growth is best first. Every open leaf keeps the best raw gain of *each sensor*; the split taken is the one with the
largest gain after the penalty of its sensor, and a sensor pays once: as soon as it is bought, every other open leaf
sees its raw gains without penalty, and never with a bonus (Nan and Saligrama 2017, equations (1) and (2)).

    gain = 1/2 sum_k [ GL_k^2/(HL_k + l2) + GR_k^2/(HR_k + l2) - G_k^2/(H_k + l2) ]  -  penalty of the sensor
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from .binning import MISSING_BIN

__all__ = ["GrownTree", "grow"]


@dataclass(frozen=True)
class GrownTree:
    """A tree over bins: ``children`` as in ``hardcase_edge.program.Tree``; leaf k has ``leaves[k]`` (n_outputs,)."""

    features: np.ndarray  # (n_nodes,) int32
    bins: np.ndarray  # (n_nodes,) int32: go left if bin <= this
    missing_left: np.ndarray  # (n_nodes,) bool
    children: np.ndarray  # (n_nodes, 2) int32
    leaves: np.ndarray  # (n_leaves, n_outputs) float64
    leaf_of_row: np.ndarray  # (n,) int32, for the rows it was grown on


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
        Of the loss to be lowered; leaves are ``-G / (H + l2)``.
    penalty : ndarray of shape (n_sensors,), in the loss's unit
        What the first use of a sensor costs; set to 0 *in place* for sensors that this tree uses.
    """
    n_nodes, *parts = _grow(
        codes,
        n_bins.astype(np.int64),
        sensor_of.astype(np.int64),
        np.hstack([gradient, hessian]),
        penalty,
        max_leaves,
        max_depth,
        min_rows,
        l2,
    )
    features, bins, missing_left, children, totals, leaf_of_row = parts
    k = gradient.shape[1]
    leaves = -totals[: n_nodes + 1, :k] / (totals[: n_nodes + 1, k:] + l2)
    return GrownTree(
        features[:n_nodes], bins[:n_nodes], missing_left[:n_nodes], children[:n_nodes], leaves, leaf_of_row
    )


@njit(nogil=True, cache=True, fastmath=True)
def _histogram(codes, rows, steps, usable, hist, counts):
    """Sums per bin of the rows' gradients and hessians (``steps``: gradients, then hessians), and row counts."""
    missing = hist.shape[1] - 1
    hist[:] = 0.0
    counts[:] = 0
    for f in range(codes.shape[0]):
        if not usable[f]:
            continue
        for i in rows:
            b = min(codes[f, i], missing)  # missing rows are counted in the last bin
            counts[f, b] += 1
            for k in range(steps.shape[1]):
                hist[f, b, k] += steps[i, k]


@njit(nogil=True, cache=True, fastmath=True)
def _gain(left, totals, l2):
    """Twice the loss that a split saves, but for the parent's own term."""
    n_outputs = totals.shape[0] // 2
    gain = 0.0
    for k in range(n_outputs):
        g, h = left[k], left[n_outputs + k] + l2
        other_g, other_h = totals[k] - g, totals[n_outputs + k] + 2 * l2 - h
        gain += (g * g * other_h + other_g * other_g * h) / (h * other_h)
    return gain


@njit(nogil=True, cache=True, fastmath=True)
def _best_splits(hist, counts, totals, n_rows, n_bins, sensor_of, usable, min_rows, l2, best):
    """Best raw split per sensor of one leaf: best[s] = gain, feature, bin, missing goes left."""
    n_outputs = totals.shape[0] // 2
    parent = 0.0
    for k in range(n_outputs):
        parent += totals[k] * totals[k] / (totals[n_outputs + k] + l2)
    best[:, 0] = 0.0
    left = np.empty_like(totals)
    missing = hist.shape[1] - 1
    for f in range(hist.shape[0]):
        if not usable[f]:
            continue
        s = sensor_of[f]
        n_missing = counts[f, missing]
        for way in range(2 if n_missing > 0 else 1):  # missing to the right first, then to the left
            left[:] = 0.0
            n_left = 0
            if way == 1:
                left[:] = hist[f, missing]
                n_left = n_missing
            # with missing rows the last cut may part them from all the rest
            last = n_bins[f] if n_missing > 0 and way == 0 else n_bins[f] - 1
            for b in range(last):
                if counts[f, b] == 0:
                    continue
                for k in range(totals.shape[0]):
                    left[k] += hist[f, b, k]
                n_left += counts[f, b]
                if n_left < min_rows:
                    continue
                if n_rows - n_left < min_rows:
                    break
                gain = 0.5 * (_gain(left, totals, l2) - parent)
                if gain > best[s, 0]:
                    best[s, 0] = gain
                    best[s, 1] = f
                    best[s, 2] = b
                    best[s, 3] = way if n_missing > 0 else (1 if 2 * n_left >= n_rows else 0)


@njit(nogil=True, cache=True)
def _grow(codes, n_bins, sensor_of, steps, penalty, max_leaves, max_depth, min_rows, l2):
    n_features, n = codes.shape
    n_sums = steps.shape[1]
    n_sensors = penalty.shape[0]
    features = np.zeros(max_leaves, np.int32)
    bins = np.zeros(max_leaves, np.int32)
    missing_left = np.zeros(max_leaves, np.bool_)
    children = np.zeros((max_leaves, 2), np.int32)
    totals = np.zeros((max_leaves, n_sums))
    depth = np.zeros(max_leaves, np.int64)
    parent = np.full(max_leaves, -1)
    side = np.zeros(max_leaves, np.int64)
    start = np.zeros(max_leaves, np.int64)
    stop = np.zeros(max_leaves, np.int64)
    best = np.zeros((max_leaves, n_sensors, 4))
    usable = (sensor_of >= 0) & (n_bins >= 1)
    width = n_bins.max() + 1 if n_features > 0 else 1
    hist = np.empty((max_leaves, n_features, width, n_sums))
    counts = np.empty((max_leaves, n_features, width), np.int64)
    slot = np.zeros(max_leaves, np.int64)  # which histogram is a leaf's
    rows = np.arange(n)
    spare = np.empty(n, np.int64)

    stop[0] = n
    for i in range(n):
        for k in range(n_sums):
            totals[0, k] += steps[i, k]
    _histogram(codes, rows, steps, usable, hist[0], counts[0])
    if max_depth > 0:
        _best_splits(hist[0], counts[0], totals[0], n, n_bins, sensor_of, usable, min_rows, l2, best[0])
    n_leaves = 1
    n_nodes = 0
    while n_leaves < max_leaves:
        leaf, sensor, top = -1, -1, 1e-12
        for a in range(n_leaves):
            for s in range(n_sensors):
                net = best[a, s, 0] - penalty[s]
                if best[a, s, 0] > 0.0 and net > top:
                    leaf, sensor, top = a, s, net
        if leaf < 0:
            break
        penalty[sensor] = 0.0
        f, b, to_left = int(best[leaf, sensor, 1]), int(best[leaf, sensor, 2]), best[leaf, sensor, 3] > 0.5
        # part the rows, keeping their order
        at, other = start[leaf], 0
        for j in range(start[leaf], stop[leaf]):
            i = rows[j]
            code = codes[f, i]
            if (code == MISSING_BIN and to_left) or (code != MISSING_BIN and code <= b):
                rows[at] = i
                at += 1
            else:
                spare[other] = i
                other += 1
        rows[at : at + other] = spare[:other]
        new = n_leaves
        n_leaves += 1
        features[n_nodes], bins[n_nodes], missing_left[n_nodes] = f, b, to_left
        children[n_nodes, 0], children[n_nodes, 1] = -1 - leaf, -1 - new
        if parent[leaf] >= 0:
            children[parent[leaf], side[leaf]] = n_nodes
        parent[leaf], side[leaf], parent[new], side[new] = n_nodes, 0, n_nodes, 1
        n_nodes += 1
        depth[leaf] += 1
        depth[new] = depth[leaf]
        start[new], stop[new], stop[leaf] = at, stop[leaf], at
        # the smaller side is counted, the larger is the difference
        small, large = (leaf, new) if stop[leaf] - start[leaf] <= stop[new] - start[new] else (new, leaf)
        slot[large], slot[small] = slot[leaf], n_leaves - 1
        before = totals[leaf].copy()
        totals[small] = 0.0
        for j in range(start[small], stop[small]):
            for k in range(n_sums):
                totals[small, k] += steps[rows[j], k]
        totals[large] = before - totals[small]
        best[leaf, :, 0] = 0.0
        if depth[leaf] == max_depth or n_leaves == max_leaves or stop[large] - start[large] < 2 * min_rows:
            continue  # neither can be split
        low, high = slot[small], slot[large]
        _histogram(codes, rows[start[small] : stop[small]], steps, usable, hist[low], counts[low])
        hist[high] -= hist[low]
        counts[high] -= counts[low]
        for a in (leaf, new):
            size = stop[a] - start[a]
            if size >= 2 * min_rows:
                h = slot[a]
                _best_splits(hist[h], counts[h], totals[a], size, n_bins, sensor_of, usable, min_rows, l2, best[a])
    leaf_of_row = np.empty(n, np.int32)
    for a in range(n_leaves):
        for j in range(start[a], stop[a]):
            leaf_of_row[rows[j]] = a
    return n_nodes, features, bins, missing_left, children, totals, leaf_of_row
