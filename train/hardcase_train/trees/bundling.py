"""Bins, laid out for counting: one byte per column and row, the bytes of a row side by side.

Features of which no two leave their usual bin in the same row share a column (a one-hot group becomes one byte):
cell 0 says that all are at their usual bins, and every other bin of each has a cell. What a usual bin holds is the
leaf's total less the rest. A feature with a column of its own has a cell per bin, its missing rows in the last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Packed", "pack"]

CELLS = 256  # of a column
TRIES = 32  # a feature is tried in so many columns, the newest first, before it gets its own


class Packed(NamedTuple):
    """Where the rows of every bin are counted; cells are numbered through, column after column."""

    rows: np.ndarray  # (n, n_columns) uint8: each row's cell within the column
    cell: np.ndarray  # (n_columns + 1,) uint32: first cell of each column, then how many there are
    features: np.ndarray  # (n_packed,) int64: the features, column after column
    first: np.ndarray  # (n_features,) int64: a feature's first cell
    usual: np.ndarray  # (n_features,) int64: the bin that has no cell, or -1
    n_bins: np.ndarray  # (n_features,) int64


def pack(codes: np.ndarray, n_bins: np.ndarray, is_usable: np.ndarray) -> Packed:
    """Lay out the usable features of ``codes``, (n_features, n) uint8 with ``MISSING_BIN`` for missing."""
    n_features, n = codes.shape
    usual, groups = _groups(codes, n_bins, is_usable)
    rows = np.empty((n, len(groups)), dtype=np.uint8)
    cell, first = [0], np.zeros(n_features, dtype=np.int64)
    for c, group in enumerate(groups):
        if len(group) == 1:
            (f,) = group
            usual[f], first[f], size = -1, cell[c], n_bins[f] + 1
            rows[:, c] = np.minimum(codes[f], n_bins[f])
        else:
            column, size = np.zeros(n, dtype=np.uint8), 1
            for f in group:
                at = np.flatnonzero(codes[f] != usual[f])
                bins = np.minimum(codes[f, at], n_bins[f])
                column[at] = size + bins - (bins > usual[f])
                first[f] = cell[c] + size
                size += n_bins[f]
            rows[:, c] = column
        cell.append(cell[c] + size)
    features = np.array([f for g in groups for f in g], dtype=np.int64)
    return Packed(rows, np.array(cell, dtype=np.uint32), features, first, usual, n_bins.astype(np.int64))


def _groups(codes: np.ndarray, n_bins: np.ndarray, is_usable: np.ndarray) -> tuple[np.ndarray, list[list[int]]]:
    """Every feature's usual bin, and the features of each column."""
    n = codes.shape[1]
    usual = np.full(len(codes), -1)
    groups: list[list[int]] = []
    shared: list[tuple[list[int], np.ndarray, int]] = []  # features, rows taken, cells left
    for f in np.flatnonzero(is_usable):
        held = np.bincount(codes[f], minlength=CELLS)
        usual[f] = held.argmax()
        if usual[f] >= n_bins[f] or 2 * held[usual[f]] < n:
            groups.append([int(f)])
            continue
        other = codes[f] != usual[f]
        for k in range(len(shared) - 1, max(-1, len(shared) - 1 - TRIES), -1):
            group, taken, left = shared[k]
            if n_bins[f] <= left and not (taken & other).any():
                group.append(int(f))
                shared[k] = group, taken | other, left - int(n_bins[f])
                break
        else:
            shared.append(([int(f)], other, CELLS - 1 - int(n_bins[f])))
            groups.append(shared[-1][0])
    return usual, groups
