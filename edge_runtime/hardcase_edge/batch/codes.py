"""Readings become codes, a column at a time: what ``program.readings`` computes one by one.

Readings are (n, n_features) float64 as the declared types hold them, NaN for missing; codes are (n_columns, n) int32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..program.definition import CODE_MAX, MISSING, Affine, Column, Rank
from ..program.readings import I32_MAX, I32_MIN

__all__ = ["affine_codes", "codes_of", "column_codes"]


def codes_of(columns: Sequence[Column], X: NDArray[np.float64]) -> NDArray[np.int32]:
    """Codes of all columns, (n_columns, n), every sensor read."""
    codes = np.full((len(columns), len(X)), MISSING, dtype=np.int32)
    for k, column in enumerate(columns):
        x = X[:, column.feature]
        present = ~np.isnan(x)
        codes[k, present] = column_codes(column, x[present])
    return codes


def column_codes(column: Column, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """One column's codes of present readings, (n,)."""
    if isinstance(column.rule, Rank):
        thresholds = np.array(column.rule.thresholds, dtype=np.float64)
        return np.searchsorted(thresholds, x, side="left") - CODE_MAX
    return affine_codes(column.rule, x)


def affine_codes(rule: Affine, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """An affine rule's codes of present readings, (n,)."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(x, rule.frac)
    whole = np.where((scaled == 0) & (x < 0), -1.0, np.floor(scaled))  # too small for a float, not for the floor
    fixed = np.clip(whole, I32_MIN, I32_MAX).astype(np.int64)
    codes: NDArray[np.int64] = np.clip((fixed * rule.mul + rule.add) >> rule.shift, rule.low, rule.high)
    return codes
