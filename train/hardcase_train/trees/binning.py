# SPDX-License-Identifier: Apache-2.0
"""Bins of features (uint8), by value or by quantile, and bundles of exclusive features, so that growing counts.

A feature with few values gets a bin for each value; otherwise all bins hold about the same number of rows. A cut lies
between two neighbouring readings: ``x <= cut`` goes left. A cut is exact in the feature's declared type, so that
training and the device split the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MISSING_BIN = 255
MAX_BINS = 255  # bins 0 to 254
CELLS = 256  # of a column: a byte
TRIES = 32  # shared columns that are tried for a feature, newest first, before it gets one of its own


@dataclass(frozen=True)
class Bins:
    """Cut points of every feature; ``cuts[f]`` strictly increases and has at most 254 entries."""

    cuts: tuple[np.ndarray, ...]

    @property
    def sizes(self) -> np.ndarray:
        """Number of bins of each feature, (n_features,), without the bin for missing."""
        return np.array([len(c) + 1 for c in self.cuts], dtype=np.int64)

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Bins of rows: (n, n_features) floats become (n_features, n) uint8; NaN becomes ``MISSING_BIN``."""
        codes = np.empty((X.shape[1], X.shape[0]), dtype=np.uint8)
        for f, cuts in enumerate(self.cuts):
            column = X[:, f]
            codes[f] = np.searchsorted(cuts, column, side="left")
            codes[f][np.isnan(column)] = MISSING_BIN
        return codes


def make_bins(X: np.ndarray, dtypes: tuple[str, ...], max_bins: int = MAX_BINS) -> Bins:
    """Choose cuts by training rows.

    Parameters
    ----------
    X : ndarray of shape (n, n_features), float64, NaN for missing
    dtypes : declared type of each feature: "i32", "f32" or "f64"
    max_bins : int, 2 to 255

    Examples
    --------
    >>> make_bins(np.array([[0.0], [1.0], [4.0]]), ("f64",)).cuts
    (array([0.5, 2.5]),)
    """
    return Bins(tuple(_cuts(X[:, f], dtype, max_bins) for f, dtype in enumerate(dtypes)))


def _cuts(column: np.ndarray, dtype: str, max_bins: int) -> np.ndarray:
    present = column[~np.isnan(column)]
    values, counts = np.unique(present, return_counts=True)
    if len(values) < 2:
        return np.empty(0)
    low, high = values[:-1], values[1:]
    if len(values) > max_bins:
        share = np.cumsum(counts)[:-1] * (max_bins / len(present))
        places = np.unique(np.searchsorted(share, np.arange(1, max_bins)))
        places = places[places < len(low)]
        low, high = low[places], high[places]
    middle = low / 2 + high / 2 if dtype == "f64" else low + (high - low) / 2  # without overflow
    if dtype == "i32":
        middle = np.floor(middle)
    elif dtype == "f32":
        middle = middle.astype(np.float32).astype(np.float64)
    return np.where(middle < high, middle, low)


# Exclusive feature bundling: sparse features that never leave their usual bin together share a column.
#
# A column has one byte for each row, and the bytes of a row are adjacent. In a shared column (a one-hot group becomes
# one) cell 0 means that all features are at their usual bins, and every other bin of each feature has a cell. The
# sums of a usual bin are the leaf's total minus the other bins (Ke et al., *LightGBM*, 2017). A feature with a column
# of its own has a cell for each bin, and the last one holds its missing rows.


class Packed(NamedTuple):
    """The layout in which the rows of every bin are counted; cells are numbered over all columns."""

    columns: np.ndarray  # (n_columns, n) uint8: each row's cell within the column
    cell: np.ndarray  # (n_columns + 1,) uint32: first cell of each column, then the number of cells
    features: np.ndarray  # (n_packed,) int64: the features in the order of columns
    first: np.ndarray  # (n_features,) int64: a feature's first cell
    usual: np.ndarray  # (n_features,) int64: the bin without a cell, or -1
    n_bins: np.ndarray  # (n_features,) int64


def pack(codes: np.ndarray, n_bins: np.ndarray, is_usable: np.ndarray) -> Packed:
    """Lay out the usable features of ``codes``, (n_features, n) uint8 with ``MISSING_BIN`` for missing."""
    n_features, n = codes.shape
    usual, groups = _groups(codes, n_bins, is_usable)
    columns = np.empty((len(groups), n), dtype=np.uint8)
    cell, first = [0], np.zeros(n_features, dtype=np.int64)
    for c, group in enumerate(groups):
        if len(group) == 1:
            (f,) = group
            usual[f], first[f], size = -1, cell[c], n_bins[f] + 1
            columns[c] = np.minimum(codes[f], n_bins[f])
        else:
            column, size = np.zeros(n, dtype=np.uint8), 1
            for f in group:
                rest = np.flatnonzero(codes[f] != usual[f])
                bins = np.minimum(codes[f, rest], n_bins[f])
                column[rest] = size + bins - (bins > usual[f])
                first[f] = cell[c] + size
                size += n_bins[f]
            columns[c] = column
        cell.append(cell[c] + size)
    features = np.array([f for g in groups for f in g], dtype=np.int64)
    return Packed(columns, np.array(cell, dtype=np.uint32), features, first, usual, n_bins.astype(np.int64))


def _groups(codes: np.ndarray, n_bins: np.ndarray, is_usable: np.ndarray) -> tuple[np.ndarray, list[list[int]]]:
    """The usual bin of each feature, and the features of each column."""
    n = codes.shape[1]
    usual = np.full(len(codes), -1)
    groups: list[list[int]] = []
    shared: list[tuple[list[int], np.ndarray, int]] = []  # features, rows away from a usual bin, cells left
    for f in np.flatnonzero(is_usable):
        counts = np.bincount(codes[f], minlength=CELLS)
        usual[f] = counts.argmax()
        if usual[f] >= n_bins[f] or 2 * counts[usual[f]] < n:
            groups.append([int(f)])
            continue
        other = codes[f] != usual[f]
        for k in range(len(shared) - 1, max(-1, len(shared) - 1 - TRIES), -1):
            group, used, left = shared[k]
            if n_bins[f] <= left and not (used & other).any():
                group.append(int(f))
                shared[k] = group, used | other, left - int(n_bins[f])
                break
        else:
            shared.append(([int(f)], other, CELLS - 1 - int(n_bins[f])))
            groups.append(shared[-1][0])
    return usual, groups
