"""Rows drawn into parts, class by class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["stratified"]


def stratified(y: np.ndarray, seed: int, pattern: Sequence[int]) -> np.ndarray:
    """The part of each row, (n,): every class is dealt out by the pattern, again and again.

    Of a rare class, parts get their rows in the pattern's order; so it begins with training.
    """
    rng = np.random.default_rng(seed)
    out = np.zeros(len(y), dtype=np.int64)
    n = len(pattern)
    taken = 0  # runs on over classes, so that rounding does not favour one part
    for c in range(int(y.max()) + 1):
        rows = rng.permutation(np.flatnonzero(y == c))
        place = (np.arange(len(rows)) + (taken if len(rows) >= n else 0)) % n
        out[rows] = np.array(pattern)[place]
        taken += len(rows)
    return out
