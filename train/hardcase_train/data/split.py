"""Rows drawn into parts, class by class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["CALIBRATION", "random_split", "stratified"]

CALIBRATION = 3
PATTERN = (0, 1, 0, 2, 0, 0, 2, 0, 0)  # train, valid and test: parts of a class, its calibration rows apart


def random_split(y: np.ndarray, seed: int) -> np.ndarray:
    """(n,) 60/10/10/20 for train (0), valid (1), calibration (3), test (2).

    Calibration rows are drawn from all rows alike: a promise is about independent draws, and strata would keep rare
    classes out of them. The others are stratified.
    """
    rng = np.random.default_rng(seed)
    out = np.full(len(y), CALIBRATION, dtype=np.int64)
    others = np.sort(rng.permutation(len(y))[round(0.1 * len(y)) :])
    out[others] = stratified(y[others], rng, PATTERN)
    return out


def stratified(y: np.ndarray, seed: int | np.random.Generator, pattern: Sequence[int]) -> np.ndarray:
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
