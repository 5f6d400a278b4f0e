# SPDX-License-Identifier: Apache-2.0
"""A model for each sensor set, judged on rows that it has not seen: of any estimator, or linear and quick.

``LinearBank`` sums one Gram matrix and one for each fold, so that the classifier of a set, and its copies without a
fold, solve submatrices. ``cross_validated`` trains an estimator of the user's on every fold. docs/math.md (108).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import clone

from hardcase_edge.more.batch.choices import classes_of

from ...data.problem import N_FOLDS, Subset
from ...linear.part import Linear, make_standard
from ...policy.selection import Judge, Trained
from ...stages.subset_search import SubsetSearch
from .by_answer import ByAnswer
from .sets import members

RIDGE = 1e-3  # L2 penalty, relative to a standardised reading's mean square


class LinearBank:
    """Least-squares classifiers of a judge's problem; ``trained(mask)`` trains each set's once.

    accuracy : share of the judged rows' weight that the classifier of a set answers rightly
    """

    def __init__(self, judge: Judge) -> None:
        problem = judge.problem
        self._judge, self._sensor_of = judge, problem.sensor_of
        self._standard = make_standard(problem.train.X, problem.train.weight)
        self._Z = self._standard.transform(problem.train.X)
        self._valid = self._standard.transform(problem.valid.X)
        goal = np.eye(problem.n_classes) if problem.targets is None else problem.targets
        goal = goal / np.maximum(goal.sum(axis=1, keepdims=True), 1e-12)
        goal = goal[problem.train.y]
        self._goal = goal[:, 1:] - goal[:, :1] if problem.n_outputs == 1 else goal
        self._sums = [self._sum(judge.fold == k) for k in range(N_FOLDS)] if judge.is_crossed else []
        self._whole = self._sum(np.ones(len(self._Z), dtype=np.bool_))
        self._trained: dict[int, Trained] = {}

    @classmethod
    def of(cls, search: SubsetSearch) -> LinearBank:
        """The bank of a search, made once and shared by its methods."""
        return search.once(_bank_of)

    def _sum(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of products of the rows' readings (and a 1) with themselves, and with the goals."""
        weight = self._judge.problem.train.weight[rows][:, None]
        Z = np.column_stack([self._Z[rows], np.ones(int(rows.sum()))])
        return Z.T @ (weight * Z), Z.T @ (weight * self._goal[rows])

    def _coef(self, mask: int, without: int | None = None) -> np.ndarray:
        """(n_features + 1, n_outputs) weights above biases, fitted without a fold; 0 for features of other sensors."""
        gram, cross = self._whole
        if without is not None:
            gram, cross = gram - self._sums[without][0], cross - self._sums[without][1]
        read = np.append(np.isin(self._sensor_of, members(mask)), True)
        terms = np.flatnonzero(read)
        part = gram[np.ix_(terms, terms)].copy()
        part[np.diag_indices(len(terms) - 1)] += RIDGE * part[-1, -1]
        coef = np.zeros((len(read), cross.shape[1]))
        coef[terms] = cho_solve(cho_factor(part), cross[terms])
        return coef

    def trained(self, mask: int) -> Trained:
        """The classifier of a set, with its scores on the judged rows."""
        if mask not in self._trained:
            coef = self._coef(mask)
            part = Linear(self._standard, coef[:-1], coef[-1])

            def score_fold(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
                copy = self._coef(mask, int(self._judge.fold[rows[0]]))
                return np.asarray(self._Z[rows] @ copy[:-1] + copy[-1])

            self._trained[mask] = self._judge.trained(part, part.scores(self._valid), score_fold)
        return self._trained[mask]

    def accuracy(self, mask: int) -> float:
        """The share of right answers."""
        return float(np.average(self.is_right(mask), weights=self._judge.weight))

    def is_right(self, mask: int) -> np.ndarray:
        """Whether the classifier of a set answers each judged row rightly, (n,)."""
        return self._judge.right(classes_of(self.trained(mask).scores))

    def by_answer(self, masks: Sequence[int]) -> ByAnswer:
        """What the classifiers of sets answer to the judged rows."""
        label = np.stack([classes_of(self.trained(mask).scores) for mask in masks])
        is_right = np.stack([self.is_right(mask) for mask in masks])
        weight = self._judge.weight / self._judge.weight.mean()
        return ByAnswer(tuple(masks), label, is_right, weight, self._judge.problem.n_classes)

    def n_bytes(self, mask: int) -> int:
        """Bytes of the classifier's integers: 2 for each weight, 8 for each bias."""
        n_read = int(np.isin(self._sensor_of, members(mask)).sum())
        return int(self._goal.shape[1]) * (2 * n_read + 8)


def _bank_of(search: SubsetSearch) -> LinearBank:
    return LinearBank(search.judge)


def cross_validated(
    estimator: Any, X: np.ndarray, y: np.ndarray, sensors: Sequence[Subset], fold: np.ndarray
) -> Callable[[int], float]:
    """A function of a set, as a bit mask, that gives the accuracy of an estimator on folds that it has not seen.

    Parameters
    ----------
    estimator : a classifier with ``fit`` and ``predict``, cloned for each fold
    sensors : the columns of X that each sensor gives
    fold : (n,) fold of each row, from 0; rows of one group must share it

    Examples
    --------
    >>> from hardcase_train.methods.polydom.sets import mask_of
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X = np.column_stack([np.arange(40) % 2, np.zeros(40)])
    >>> accuracy = cross_validated(DecisionTreeClassifier(), X, X[:, 0], [(0,), (1,)], np.arange(40) // 10)
    >>> accuracy(mask_of([0])), accuracy(mask_of([1]))
    (1.0, 0.5)
    """

    def accuracy(mask: int) -> float:
        columns = [f for k in members(mask) for f in sensors[k]]
        right = np.empty(len(y), dtype=np.bool_)
        for k in np.unique(fold):
            model = clone(estimator).fit(X[fold != k][:, columns], y[fold != k])
            right[fold == k] = model.predict(X[fold == k][:, columns]) == y[fold == k]
        return float(right.mean())

    return accuracy
