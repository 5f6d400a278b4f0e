# SPDX-License-Identifier: Apache-2.0
"""Whether like labels need like sensors: the criterion of Xu et al. (2014), 6.8, for trees of classifiers.

For each two neighbouring labels a linear classifier with a lasso tells them apart, and two such classifiers overlap by
the share (Jaccard's) of the sensors that both have among those that either has. Where the overlap falls with the
distance of the labels, a tree that sends rows by their predicted label buys other sensors on other paths.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from sklearn.linear_model import LogisticRegression

from ..data.problem import Problem
from .part import make_standard

LASSO = 0.02  # in mean loss
MAX_LABELS = 32
MAX_ROWS = 20_000  # of two labels together
FEW_ROWS = 10  # of a label, which then counts to the one below


def label_overlap(problem: Problem, y: np.ndarray) -> np.ndarray:
    """(n_labels - 1, n_labels - 1) overlap of the classifiers of neighbouring labels; empty for two labels or many.

    y : (n_train,) the training rows' labels, as numbers in their order
    """
    labels, counts = np.unique(y, return_counts=True)
    labels = labels[counts >= FEW_ROWS]
    if not 3 <= len(labels) <= MAX_LABELS:
        return np.zeros((0, 0))
    standard = make_standard(problem.train.X, problem.train.weight)
    chosen = [_sensors(problem, standard.transform(problem.train.X), y, pair) for pair in pairwise(labels)]
    return np.array([[len(a & b) / max(len(a | b), 1) for b in chosen] for a in chosen])


def overlap_by_distance(overlap: np.ndarray) -> list[float]:
    """The mean overlap of classifiers that are 1, 2, ... labels apart.

    >>> overlap_by_distance(np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.3], [0.2, 0.3, 1.0]]))
    [0.4, 0.2]
    """
    return [float(np.diagonal(overlap, k).mean()) for k in range(1, len(overlap))]


def _sensors(problem: Problem, Z: np.ndarray, y: np.ndarray, pair: tuple[float, float]) -> set[int]:
    """The sensors by which a lasso tells two labels apart."""
    rows = np.flatnonzero(np.isin(y, pair))
    rows = np.random.default_rng(problem.seed).permutation(rows)[:MAX_ROWS]
    weight = problem.train.weight[rows]
    model = LogisticRegression(
        l1_ratio=1.0, solver="liblinear", C=1 / (LASSO * weight.sum()), random_state=0, intercept_scaling=100.0
    )
    model.fit(Z[rows], y[rows] == pair[1], sample_weight=weight)
    return {int(s) for s in problem.sensor_of[np.flatnonzero(model.coef_[0])]}
