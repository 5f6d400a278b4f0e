# SPDX-License-Identifier: Apache-2.0
"""Which rows of a table stand for all: those in the middle of each class, and some on the way out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FAR = 3.0  # spreads, beyond which a reading is just far
BANDS = 8  # of values, each like a class


def typical_rows(X: NDArray[np.float64], y: NDArray[Any], n: int) -> list[int]:
    """Numbers of at most n rows, class by class, of each class as many, from its most typical one outwards.

    A row is the more typical the less its readings are from their medians in its class, in spreads (half of the
    middle half) of the class; those returned are evenly spaced in the nearer half. Where there are more than ``n``
    classes, some have no row.

    Parameters
    ----------
    X : (n_rows, n_features) readings, NaN = missing
    y : (n_rows,) class indices, or values, of which each eighth of the rows is taken as a class

    Examples
    --------
    >>> typical_rows(np.array([[9.0], [1.0], [2.0], [3.0], [4.0]]), np.array([0, 1, 1, 1, 1]), 4)
    [0, 2, 3]
    """
    order = np.argsort(y, kind="stable")
    is_value = y.dtype.kind == "f"
    groups = np.array_split(order, BANDS) if is_value else np.split(order, 1 + np.flatnonzero(np.diff(y[order])))
    groups = [group for group in groups if len(group)]
    kept = np.unique(np.linspace(0, len(groups) - 1, min(n, len(groups))).astype(int))
    found: list[int] = []
    for k in kept.tolist():
        near = groups[k][np.argsort(_distances(X[groups[k]]), kind="stable")]
        half = max(1, len(near) // 2)
        found += near[np.unique(np.linspace(0, half - 1, n // len(kept)).astype(int))].tolist()
    return found


def _distances(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each row of a class how far it is from the middle, the mean of its readings; missing ones count as far."""
    known = X[:, ~np.isnan(X).all(axis=0)]
    if not known.shape[1]:
        return np.zeros(len(X))
    low, middle, high = np.nanquantile(known, [0.25, 0.5, 0.75], axis=0)
    spread = np.where(high > low, (high - low) / 2, 1.0)
    far = np.minimum(np.abs(known - middle) / spread, FAR)
    return np.asarray(np.where(np.isnan(far), FAR, far).mean(axis=1))
