# SPDX-License-Identifier: Apache-2.0
"""Least-squares classifiers for any sensor set, in about a millisecond, from one shared Gram matrix.

The Gram matrix of standardised readings and their products is summed once over the rows on which probes train. The
classifier of a set solves the submatrix of its features. It is a weak classifier, but each set has its own, and it is
evaluated on rows that it has not seen. docs/math.md (43), (44).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..data.problem import Subset
from ..linear.standardise import make_standard
from .subset_search import SubsetSearch

__all__ = ["QuickBank", "quick_rewards"]

MAX_SQUARED = 64  # features; with more, products are left out
REACH = 4.0  # deviations at which readings are clipped: products of outliers would dominate
RIDGE = 1e-2  # L2 penalty, relative to a standardised reading's mean square


def quick_rewards(search: SubsetSearch) -> Callable[[Subset], np.ndarray]:
    """A function of a sensor set that returns each probed row's reward by the set's classifier, (n,), from 0 to 1.

    It is the rise of the true class's probability over its share, relative to the largest possible rise. In the paper
    it is 1 where the classifier is right; then, with two classes, one set that always answers the first and one that
    always answers the second have together the full reward, although no policy can tell which is right.
    """
    problem, judge, rows = search.problem, search.judge, search.probe_train
    train = problem.train
    X, y, weight = train.X[rows], train.y[rows], train.weight[rows]
    standard = make_standard(X, weight)
    bank = QuickBank(standard.transform(X), y, problem.n_classes, weight, problem.sensor_of, problem.targets)
    expanded = bank.expand(standard.transform(judge.X[search.probed]))
    truth = judge.y[search.probed]
    share = bank.share[truth]

    def reward(subset: Subset) -> np.ndarray:
        proba = bank.chances(expanded, subset)
        rise = proba[np.arange(len(truth)), truth] - share
        return np.asarray(np.clip(rise / np.maximum(1 - share, RIDGE), 0.0, 1.0))

    return reward


class QuickBank:
    """Least-squares classifiers of one-hot labels, one per sensor set.

    Parameters
    ----------
    Z : (n, n_features) standardised readings, 0 for missing
    y : (n,) class index
    weight : (n,) row weights
    sensor_of : (n_features,) the sensor of each feature
    targets : (n_classes, n_classes) what answers are worth to cases of each class; None: 1 for the class itself, else 0

    Attributes
    ----------
    share : (n_classes,) share of each class in the total weight
    """

    def __init__(
        self,
        Z: np.ndarray,
        y: np.ndarray,
        n_classes: int,
        weight: np.ndarray,
        sensor_of: np.ndarray,
        targets: np.ndarray | None = None,
    ) -> None:
        if targets is not None:
            weight = weight * targets.sum(axis=1)[y]
            targets = targets / np.maximum(targets.sum(axis=1, keepdims=True), 1e-12)
        n_features = Z.shape[1]
        left, right = np.triu_indices(n_features) if n_features <= MAX_SQUARED else (np.zeros(0, int),) * 2
        self._pairs = left, right
        first = np.arange(n_features)
        self._needs = sensor_of[np.concatenate([first, left])], sensor_of[np.concatenate([first, right])]
        expanded = self.expand(Z)
        self._mean = np.average(expanded, axis=0, weights=weight)
        centred = (expanded - self._mean) * np.sqrt(weight)[:, None]
        target = (np.eye(n_classes) if targets is None else targets)[y]
        self.share = np.average(target, axis=0, weights=weight)
        self._gram = centred.T @ centred / weight.sum()
        self._gram[np.diag_indices_from(self._gram)] += RIDGE
        self._cross = centred.T @ ((target - self.share) * np.sqrt(weight)[:, None]) / weight.sum()

    def expand(self, Z: np.ndarray) -> np.ndarray:
        """Readings and their pairwise products, (n, n_terms)."""
        Z = np.clip(Z, -REACH, REACH)
        return np.hstack([Z, Z[:, self._pairs[0]] * Z[:, self._pairs[1]]])

    def chances(self, expanded: np.ndarray, subset: Subset) -> np.ndarray:
        """Least-squares estimates of class probabilities, (n, n_classes); they sum to 1 but may lie outside 0 to 1."""
        terms = np.flatnonzero(np.isin(self._needs[0], subset) & np.isin(self._needs[1], subset))
        if not len(terms):
            return np.tile(self.share, (len(expanded), 1))
        weights = cho_solve(cho_factor(self._gram[np.ix_(terms, terms)]), self._cross[terms])
        return np.asarray((expanded[:, terms] - self._mean[terms]) @ weights + self.share)
