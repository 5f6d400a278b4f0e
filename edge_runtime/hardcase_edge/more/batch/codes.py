# SPDX-License-Identifier: Apache-2.0
"""The codes of many readings, one column at a time, equal to those of ``program.readings``.

Readings are (n, n_features) float64 as the declared types hold them, NaN for missing; codes are (n_columns, n) int32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...program.definition import CODE_MAX, MISSING, Affine, Column, Rank
from ...program.readings import I32_MAX, I32_MIN


def codes_of(columns: Sequence[Column], X: NDArray[np.float64]) -> NDArray[np.int32]:
    """The codes of all columns, (n_columns, n), for rows on which every sensor was read."""
    codes = np.full((len(columns), len(X)), MISSING, dtype=np.int32)
    for k, column in enumerate(columns):
        x = X[:, column.feature]
        present = ~np.isnan(x)
        codes[k, present] = column_codes(column, x[present])
    return codes


def column_codes(column: Column, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """The codes of present readings in one column, (n,)."""
    if isinstance(column.rule, Rank):
        thresholds = np.array(column.rule.thresholds, dtype=np.float64)
        return np.searchsorted(thresholds, x, side="left") - CODE_MAX
    return affine_codes(column.rule, x)


def affine_codes(rule: Affine, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """The codes of present readings by an affine rule, (n,)."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(x, rule.frac)
    whole = np.where((scaled == 0) & (x < 0), -1.0, np.floor(scaled))  # ldexp can underflow to 0; the floor is then -1
    fixed = np.clip(whole, I32_MIN, I32_MAX).astype(np.int64)
    codes: NDArray[np.int64] = np.clip((fixed * rule.mul + rule.add) >> rule.shift, rule.low, rule.high)
    return codes
