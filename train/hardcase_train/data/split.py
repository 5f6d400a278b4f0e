# SPDX-License-Identifier: Apache-2.0
"""Random and stratified splits of rows into train, validation, test and calibration parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["CALIBRATION", "random_split", "stratified"]

CALIBRATION = 3
PATTERN = (0, 1, 0, 2, 0, 0, 2, 0, 0)  # train, valid and test, without the calibration rows


def random_split(y: np.ndarray, seed: int) -> np.ndarray:
    """The part of each row, (n,): train (0) 60 %, valid (1) 10 %, calibration (3) 10 %, test (2) 20 %.

    Calibration rows are a simple random sample: the risk test assumes independent draws, and stratification would
    leave rare classes parts. The other parts are stratified.
    """
    rng = np.random.default_rng(seed)
    parts = np.full(len(y), CALIBRATION, dtype=np.int64)
    others = np.sort(rng.permutation(len(y))[round(0.1 * len(y)) :])
    parts[others] = stratified(y[others], rng, PATTERN)
    return parts


def stratified(y: np.ndarray, seed: int | np.random.Generator, pattern: Sequence[int]) -> np.ndarray:
    """The part of each row, (n,): the rows of each class are dealt to parts by repeating the pattern.

    The pattern begins with training, so that the first row of a rare class is a training row.
    """
    rng = np.random.default_rng(seed)
    parts = np.zeros(len(y), dtype=np.int64)
    n = len(pattern)
    n_dealt = 0  # continues over classes, so that rounding does not favour one part
    for c in range(int(y.max()) + 1):
        rows = rng.permutation(np.flatnonzero(y == c))
        place = (np.arange(len(rows)) + (n_dealt if len(rows) >= n else 0)) % n
        parts[rows] = np.array(pattern)[place]
        n_dealt += len(rows)
    return parts
