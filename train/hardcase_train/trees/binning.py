# SPDX-License-Identifier: Apache-2.0
"""Bins of features (uint8), by value or by quantile, so that tree growing counts instead of sorting.

A feature with few values gets a bin for each value; otherwise all bins hold about the same number of rows. A cut lies
between two neighbouring readings: ``x <= cut`` goes left. A cut is exact in the feature's declared type, so that
training and the device split the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["MISSING_BIN", "Bins", "make_bins"]

MISSING_BIN = 255
MAX_BINS = 255  # bins 0 to 254


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
