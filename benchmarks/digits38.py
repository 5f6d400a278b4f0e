# SPDX-License-Identifier: Apache-2.0
"""MNIST's 3 against 8 in four resolutions, where every one of 1,120 pixels costs 1: the data of Xu et al. (2014), 6.7.

Pixels are areas of the picture at 28, 16, 8 and 4 pixels a side. ``HARDCASE_DATA`` names the folder of ``mnist.npz``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from hardcase_train.data.from_arrays import make_problem
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.settings.effort import Effort

SIDES = (28, 16, 8, 4)
N_VALID = 2400
FORWARD_COST = 1120.0  # beside its pixels; f0 knows nothing, so that policies decide alone


def data() -> Path:
    """The folder of data sets that are not in the repository."""
    return Path(os.environ.get("HARDCASE_DATA", Path(__file__).resolve().parent.parent / "data"))


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows and labels (1 for an 8) that train and choose, then those of the test part."""
    with np.load(data() / "mnist.npz") as arrays:
        X, y, parts = arrays["X"], arrays["y"], (arrays["train_idx"], arrays["test_idx"])
    made: list[np.ndarray] = []
    for part in parts:
        rows = part[np.isin(y[part], (3, 8))]
        made += [resolutions(X[rows]), (y[rows] == 8).astype(np.int64)]
    return made[0], made[1], made[2], made[3]


def resolutions(pictures: np.ndarray) -> np.ndarray:
    """(n, 1120) mean brightness of the areas of pictures (n, 28, 28), from 0 to 255."""
    X = pictures.astype(np.float64)
    parts = [(m @ X @ m.T).reshape(len(X), -1) for m in map(_areas, SIDES)]
    return np.hstack(parts).astype(np.float32).astype(np.float64)


def _areas(side: int) -> np.ndarray:
    """(side, 28) the share of each pixel in each area, rows adding up to 1."""
    edges = np.linspace(0, 28, side + 1)
    starts = np.maximum(edges[:-1, None], np.arange(28)[None])
    ends = np.minimum(edges[1:, None], np.arange(1, 29)[None])
    share = np.maximum(ends - starts, 0)
    return np.asarray(share / share.sum(axis=1, keepdims=True))


def problem_of(seed: int, effort: Effort | str) -> Problem:
    """A problem whose validation rows are drawn by this seed; f0 knows nothing."""
    X, y, X_test, y_test = digits()
    order = np.random.default_rng(seed).permutation(len(y))
    valid = np.zeros(len(y), dtype=bool)
    valid[order[:N_VALID]] = True
    made = make_problem(X, y, np.ones(len(y)), 2, None, None, FORWARD_COST, seed, "auto", effort)

    def rows(X: np.ndarray, y: np.ndarray, first: int) -> Rows:
        return Rows(X, y, np.full((len(y), 2), 0.5), np.arange(first, first + len(y)))

    parts = (rows(X[~valid], y[~valid], 0), rows(X[valid], y[valid], 20_000), rows(X_test, y_test, 40_000))
    return replace(made, train=parts[0], valid=parts[1], test=parts[2])
