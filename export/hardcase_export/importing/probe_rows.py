"""Rows to try a model on: at its thresholds, a hair beside them, between them and missing. Always the same ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.program.definition import Column, Rank
from hardcase_edge.program.readings import I32_MAX, I32_MIN

__all__ = ["as_held", "probe_rows"]

MOST = 1e300  # beyond which numbers between thresholds are not looked for
MISSING_ROWS, MISSING_CELLS = 0.1, 0.2  # shares, where a reading may be missing


def probe_rows(
    columns: Sequence[Column],
    dtypes: Sequence[str],
    nullable: Sequence[bool],
    n: int,
    seed: int,
    *,
    known: NDArray[np.float64] | None = None,
    reach: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Rows (n, n_features) that their types hold exactly, NaN for missing.

    A third of all cells lies on a threshold or at the next number of its type on either side.

    Parameters
    ----------
    columns : with Rank rules
    known : (m, n_features) rows of the user's own: then the first rows are these, and others vary them
    reach : (n_features, 2) where numbers lie; else what the thresholds span
    """
    random = np.random.default_rng(seed)
    cuts = {c.feature: np.array(c.rule.thresholds, dtype=np.float64) for c in columns if isinstance(c.rule, Rank)}
    X = np.empty((n, len(dtypes)))
    for f in range(len(dtypes)):
        low, high = (0.0, 1.0) if reach is None else reach[f]
        if f in cuts and reach is None:
            low, high = np.clip(cuts[f][[0, -1]], -MOST / 4, MOST / 4)
            margin = max(high / 4 - low / 4, abs(high) / 1000, 1e-6)
            low, high = max(low - margin, -MOST), min(high + margin, MOST)
        X[:, f] = low + (high - low) * random.random(n)
    if known is not None and len(known):
        picked = known[random.integers(0, len(known), n)]
        first = min(n // 3, len(known))
        picked[:first] = known[:first]
        theirs = random.random(X.shape) < 0.7
        theirs[:first] = True
        X = np.where(theirs, picked, X)
    else:
        first = 0
    for f, cut in cuts.items():
        at = np.flatnonzero(random.random(n) < 1 / 3)
        at = at[at >= first]
        X[at, f] = _beside(random.choice(cut, len(at)), random.integers(-1, 2, len(at)), dtypes[f])
    X = np.where(np.isfinite(X) | np.isnan(X), X, 0.0)
    lost = (random.random(X.shape) < MISSING_CELLS) & (random.random(n) < MISSING_ROWS)[:, None]
    lost[:first] = False
    X[lost & np.array(nullable)] = np.nan
    return as_held(X, dtypes, nullable)


def _beside(x: NDArray[np.float64], move: NDArray[np.int64], dtype: str) -> NDArray[np.float64]:
    """The next number below, the number itself, the next above, as ``move`` is -1, 0, 1."""
    if dtype == "i32":
        return x + move
    kind = np.float32 if dtype == "f32" else np.float64
    with np.errstate(over="ignore", under="ignore"):
        return np.where(move == 0, x, np.nextafter(x.astype(kind), np.where(move < 0, -np.inf, np.inf).astype(kind)))


def as_held(X: NDArray[np.float64], dtypes: Sequence[str], nullable: Sequence[bool]) -> NDArray[np.float64]:
    """Rows as ``columns.normalise`` would hold them; where a reading may not be missing, a missing one becomes 0."""
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
