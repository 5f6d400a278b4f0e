# SPDX-License-Identifier: Apache-2.0
"""Rows to compare a model on: at thresholds, one ulp either side, between them, and missing; always the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.program.definition import Column, Rank
from hardcase_edge.program.readings import I32_MAX, I32_MIN

LARGEST = 1e300  # of the thresholds probed: a larger one has no reading above it, and few sources take such numbers
MISSING_ROWS, MISSING_CELLS = 0.1, 0.2  # shares, of rows and of their cells, where a reading may be missing


def probe_rows(
    columns: Sequence[Column],
    dtypes: Sequence[str],
    nullable: Sequence[bool],
    n: int,
    seed: int,
    *,
    user_rows: NDArray[np.float64] | None = None,
    reach: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Rows (n, n_features) of numbers that their types hold exactly, NaN = missing.

    A third of all cells lies on a threshold or at the next number of its type on either side.

    Parameters
    ----------
    columns : columns with Rank rules, whose thresholds are probed
    user_rows : (m, n_features) the user's own rows; the first rows are these, and the others vary them
    reach : (n_features, 2) range of each feature; None for the span of its thresholds
    """
    random = np.random.default_rng(seed)
    cuts = {}
    for c in columns:
        within = [t for t in c.rule.thresholds if abs(t) <= LARGEST] if isinstance(c.rule, Rank) else []
        if within:
            cuts[c.feature] = np.array(within, dtype=np.float64)
    X = np.empty((n, len(dtypes)))
    for f in range(len(dtypes)):
        low, high = (0.0, 1.0) if reach is None else reach[f]
        if f in cuts and reach is None:
            low, high = np.clip(cuts[f][[0, -1]], -LARGEST / 4, LARGEST / 4)
            margin = max(high / 4 - low / 4, abs(high) / 1000, 1e-6)
            low, high = max(low - margin, -LARGEST), min(high + margin, LARGEST)
        X[:, f] = low + (high - low) * random.random(n)
    if user_rows is not None and len(user_rows):
        picked = user_rows[random.integers(0, len(user_rows), n)]
        first = min(n // 3, len(user_rows))
        picked[:first] = user_rows[:first]
        from_user = random.random(X.shape) < 0.7
        from_user[:first] = True
        X = np.where(from_user, picked, X)
    else:
        first = 0
    for f, cut in cuts.items():
        on_threshold = np.flatnonzero(random.random(n) < 1 / 3)
        on_threshold = on_threshold[on_threshold >= first]
        X[on_threshold, f] = _neighbours(
            random.choice(cut, len(on_threshold)), random.integers(-1, 2, len(on_threshold)), dtypes[f]
        )
    X = np.where(np.isfinite(X) | np.isnan(X), X, 0.0)
    is_missing = (random.random(X.shape) < MISSING_CELLS) & (random.random(n) < MISSING_ROWS)[:, None]
    is_missing[:first] = False
    X[is_missing & np.array(nullable)] = np.nan
    return as_held(X, dtypes, nullable)


def _neighbours(x: NDArray[np.float64], move: NDArray[np.int64], dtype: str) -> NDArray[np.float64]:
    """The next smaller number of the type, the number itself, or the next larger, for ``move`` -1, 0 or 1."""
    if dtype == "i32":
        return x + move
    kind = np.float32 if dtype == "f32" else np.float64
    with np.errstate(over="ignore", under="ignore"):
        return np.where(move == 0, x, np.nextafter(x.astype(kind), np.where(move < 0, -np.inf, np.inf).astype(kind)))


def as_held(X: NDArray[np.float64], dtypes: Sequence[str], nullable: Sequence[bool]) -> NDArray[np.float64]:
    """Rows as ``program.readings.normalise`` holds them; 0 replaces a missing reading that may not be missing."""
    out = X + 0.0
    for f, dtype in enumerate(dtypes):
        x = out[:, f]
        if dtype == "i32":
            with np.errstate(invalid="ignore"):
                x = np.clip(np.rint(x), I32_MIN + 1, I32_MAX)
        elif dtype == "f32":
            with np.errstate(over="ignore"):
                x = x.astype(np.float32).astype(np.float64)
        x = np.where(np.isinf(x), np.nan, x)
        out[:, f] = x + 0.0 if nullable[f] else np.nan_to_num(x) + 0.0
    return out
