"""A classifier for any sensor set in about a millisecond: least squares on sums that all sets share.

Products of standardised readings, up to squares, are summed once over the rows that probes are trained on; the
classifier of a set solves the part of the normal equations that its features have. It is a weak classifier, but a
true one of each set, and it is asked about rows that it has not seen. docs/math.md (43), (44).
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
REACH = 4.0  # deviations: products of far readings would outweigh all others
RIDGE = 1e-2  # of a row's mean square, per feature


def quick_rewards(search: SubsetSearch, is_soft: bool = True) -> Callable[[Subset], np.ndarray]:
    """From a set to each probed row's reward by its classifier, (n,), from 0 to 1.

    Parameters
    ----------
    is_soft : what the classifier adds to the chance of the true class, of what there is to add; else 1.0 where it is
        right, as in the paper. With two classes a set that always says one and a set that always says the other are
        right on every row between them, and no policy can tell where: so the first is what sets are sought by
    """
    problem, judge, seen = search.problem, search.judge, search.probe_train
    train = problem.train
    X, y, weight = train.X[seen], train.y[seen], train.weight[seen]
    standard = make_standard(X, weight)
    bank = QuickBank(standard.transform(X), y, problem.n_classes, weight, problem.sensor_of)
    expanded = bank.expand(standard.transform(judge.X[search.probed]))
    truth = judge.y[search.probed]
    known = bank.share[truth]

    def reward(subset: Subset) -> np.ndarray:
        chances = bank.chances(expanded, subset)
        if not is_soft:
            return (chances.argmax(axis=1) == truth).astype(np.float64)
        added = chances[np.arange(len(truth)), truth] - known
        return np.clip(added / np.maximum(1 - known, RIDGE), 0.0, 1.0)

    return reward


class QuickBank:
    """Least-squares classifiers of one-hot labels, one per sensor set.

    Parameters
    ----------
    Z : (n, n_features) standardised readings, 0 for missing
    y : (n,) class index
    weight : (n,) of the rows
    sensor_of : (n_features,) the sensor of each feature

    Attributes
    ----------
    share : (n_classes,) of the rows' weight
    """

    def __init__(self, Z: np.ndarray, y: np.ndarray, n_classes: int, weight: np.ndarray, sensor_of: np.ndarray) -> None:
        n_features = Z.shape[1]
        left, right = np.triu_indices(n_features) if n_features <= MAX_SQUARED else (np.zeros(0, int),) * 2
        self._pairs = left, right
        first = np.arange(n_features)
        self._needs = sensor_of[np.concatenate([first, left])], sensor_of[np.concatenate([first, right])]
        expanded = self.expand(Z)
        self._mean = np.average(expanded, axis=0, weights=weight)
        centred = (expanded - self._mean) * np.sqrt(weight)[:, None]
        target = np.eye(n_classes)[y]
        self.share = np.average(target, axis=0, weights=weight)
        self._gram = centred.T @ centred / weight.sum()
        self._gram[np.diag_indices_from(self._gram)] += RIDGE
        self._cross = centred.T @ ((target - self.share) * np.sqrt(weight)[:, None]) / weight.sum()

    def expand(self, Z: np.ndarray) -> np.ndarray:
        """Readings, then products of two, (n, n_terms)."""
        Z = np.clip(Z, -REACH, REACH)
        return np.hstack([Z, Z[:, self._pairs[0]] * Z[:, self._pairs[1]]])

    def chances(self, expanded: np.ndarray, subset: Subset) -> np.ndarray:
        """(n, n_classes) least-squares chances by these sensors; they sum to 1 and may lie outside 0 to 1."""
        terms = np.flatnonzero(np.isin(self._needs[0], subset) & np.isin(self._needs[1], subset))
        if not len(terms):
            return np.tile(self.share, (len(expanded), 1))
        weights = cho_solve(cho_factor(self._gram[np.ix_(terms, terms)]), self._cross[terms])
        out: np.ndarray = (expanded[:, terms] - self._mean[terms]) @ weights + self.share
        return out
