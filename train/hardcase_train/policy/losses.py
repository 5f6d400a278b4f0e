# SPDX-License-Identifier: Apache-2.0
"""Losses of class scores, values and gates, with the derivatives that boosting and linear solvers need.

Where errors have different costs, a case has a soft target: each answer's worth (``data.error_costs``).

Boosting needs the gradient and the Hessian's diagonal for each row; a linear solver needs the sum over rows and its
gradient. Class scores are logits: with two classes one column s stands for the pair (0, s), otherwise there is one
column per class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numba import njit

TINY = 1e-12
MAX_STEP = 30.0  # of a row's score: where a row's own class has no probability, Newton's step has no bound
OVERFLOW = 700.0  # the exponential of a larger number is infinite
FLOOR = 1e-6  # lower bound of f0's probability of the true class


def class_outputs(n_classes: int) -> int:
    """The number of score columns of a classifier: 1 for two classes, otherwise ``n_classes``."""
    return 1 if n_classes == 2 else n_classes


def sigmoid(s: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-s)), without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * s)))


def log_probability(scores: np.ndarray) -> np.ndarray:
    """Log of class probabilities, (n, n_classes), from class scores."""
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    top = scores.max(axis=1, keepdims=True)
    return np.asarray(scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True)))


@dataclass
class ClassLoss:
    """Weighted logistic loss, binary or multinomial: ``mean_i w_i * sum_a targets[y_i, a] * -log p(a | x_i)``."""

    y: np.ndarray  # (n,) class index
    n_classes: int
    weight: np.ndarray  # (n,)
    targets: np.ndarray | None = None  # (n_classes, n_classes); None: 1 for the true class, else 0

    def __post_init__(self) -> None:
        self._targets = np.eye(self.n_classes) if self.targets is None else self.targets

    @property
    def n_outputs(self) -> int:
        """Number of score columns."""
        return class_outputs(self.n_classes)

    @property
    def has_classes(self) -> bool:
        """Whether rows of more than one class carry weight."""
        return len(np.unique(self.y[self.weight > 0])) > 1

    def base(self) -> np.ndarray:
        """Scores that stand for the weighted class shares, (n_outputs,): where boosting starts."""
        share = np.bincount(self.y, self.weight, self.n_classes) @ self._targets + 1e-3
        logs = np.log(share / share.sum())
        return np.asarray(logs[1:] - logs[:1] if self.n_outputs == 1 else logs)

    def row_loss(self, scores: np.ndarray) -> np.ndarray:
        """The rows' losses without their weights, (n,)."""
        return self.loss_of(log_probability(scores))

    def loss_of(self, log_p: np.ndarray) -> np.ndarray:
        """The rows' losses without their weights, (n,), for log probabilities (n, n_classes)."""
        if self.targets is None:
            return np.asarray(-log_p[np.arange(len(self.y)), self.y])
        return np.asarray(-(self.targets[self.y] * log_p).sum(axis=1))

    def take(self, rows: np.ndarray) -> ClassLoss:
        """The loss of some rows, by number."""
        return ClassLoss(self.y[rows], self.n_classes, self.weight[rows], self.targets)

    def value_and_slope(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum of the rows' weighted losses, and its gradient, (n, n_outputs)."""
        return _class_value_and_slope(
            np.ascontiguousarray(scores), np.ascontiguousarray(self.y), self.weight, self._targets
        )

    def derivatives(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and diagonal of the Hessian, (n, n_outputs) each, weights included."""
        return _derivatives(scores, self, np.zeros(len(self.y)))


@dataclass
class SquaredLoss:
    """Weighted squared loss of values: ``mean_i w_i * (s_i - y_i)^2``, of one score column."""

    y: np.ndarray  # (n,)
    weight: np.ndarray  # (n,)
    n_outputs = 1

    def base(self) -> np.ndarray:
        """The weighted mean, (1,): where boosting starts."""
        return np.array([np.average(self.y, weights=self.weight)])

    def row_loss(self, scores: np.ndarray) -> np.ndarray:
        """The rows' losses without their weights, (n,)."""
        return np.asarray(np.square(scores[:, 0] - self.y))

    def take(self, rows: np.ndarray) -> SquaredLoss:
        """The loss of some rows, by number."""
        return SquaredLoss(self.y[rows], self.weight[rows])

    def value_and_slope(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum of the rows' weighted losses, and its gradient, (n, 1)."""
        away = scores - self.y[:, None]
        return float(self.weight @ np.square(away[:, 0])), 2 * self.weight[:, None] * away

    def derivatives(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and Hessian, (n, 1) each, weights included."""
        return self.value_and_slope(scores)[1], np.repeat(2 * self.weight[:, None], scores.shape[1], axis=1)


AnswerLoss = ClassLoss | SquaredLoss


@dataclass
class AdaptLoss:
    """The terms of (OPT2) of Nan and Saligrama (2017) in g and f1, for given q and any number of classes.

    mean_i (1 - q_i) [ -log p_f1(y_i | x_i) + log(1 + e^g_i) ] + q_i log(1 + e^-g_i)
    """

    classes: AnswerLoss  # of f1
    q: np.ndarray  # (n,) share of each row that is forwarded

    @property
    def n_outputs(self) -> int:
        """Number of score columns, the gate's included."""
        return self.classes.n_outputs + 1

    @cached_property
    def _kept(self) -> AnswerLoss:
        """The loss of f1 on what is not forwarded: descents ask for it at each step."""
        return replace(self.classes, weight=self.classes.weight * (1 - self.q))

    def value_and_slope(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum over rows, weights included, and its gradient, (n, n_outputs)."""
        weight, g = self.classes.weight, scores[:, -1]
        value, slope = self._kept.value_and_slope(scores[:, :-1])
        gate = np.logaddexp(0.0, g) - self.q * g  # (1 - q) log(1 + e^g) + q log(1 + e^-g)
        return value + float(weight @ gate), np.column_stack([slope, weight * (sigmoid(g) - self.q)])

    def derivatives(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and diagonal of the Hessian, (n, n_outputs) each."""
        if isinstance(self.classes, ClassLoss):
            return _derivatives(scores, self.classes, self.q)
        weight, p = self.classes.weight, sigmoid(scores[:, -1])
        slope, curve = self._kept.derivatives(scores[:, :-1])
        gate = np.column_stack([weight * (p - self.q), weight * np.maximum(p * (1 - p), TINY)])
        return np.column_stack([slope, gate[:, 0]]), np.column_stack([curve, gate[:, 1]])


@njit(nogil=True, cache=True)
def _class_value_and_slope(
    scores: np.ndarray, y: np.ndarray, weight: np.ndarray, targets: np.ndarray
) -> tuple[float, np.ndarray]:
    n, m = scores.shape
    first = 1 if m == 1 else 0  # with one column, class 0 has score 0
    total = 0.0
    slope = np.empty((n, m))
    for i in range(n):
        top = 0.0 if m == 1 else -np.inf
        for k in range(m):
            top = max(top, scores[i, k])
        norm = np.exp(-top) if m == 1 else 0.0
        for k in range(m):
            slope[i, k] = np.exp(scores[i, k] - top)
            norm += slope[i, k]
        worth, true_score = targets[y[i]].sum(), 0.0
        for k in range(m):
            true_score += targets[y[i], first + k] * scores[i, k]
        total += weight[i] * (worth * (top + np.log(norm)) - true_score)
        for k in range(m):
            slope[i, k] *= weight[i] * worth / norm
            slope[i, k] -= weight[i] * targets[y[i], first + k]
    return total, slope


def _derivatives(scores: np.ndarray, c: ClassLoss, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and diagonal of the Hessian by the class scores and, if there is one more column, by the gate's."""
    powers = _exponents(np.ascontiguousarray(scores), c.n_outputs)
    np.exp(powers, out=powers)  # numpy's exp is vectorised, numba's is not
    return _slopes(powers, c.n_outputs, c.y, c.weight, q, c._targets)


@njit(nogil=True, cache=True)
def _exponents(scores: np.ndarray, m: int) -> np.ndarray:
    """Arguments of exp: a class score minus the row's best, for a softmax; a single score negated, for a sigmoid."""
    out = np.empty(scores.shape)
    for i in range(len(scores)):
        top = scores[i, 0]
        for k in range(1, m):
            top = max(top, scores[i, k])
        for k in range(scores.shape[1]):
            out[i, k] = scores[i, k] - top if m > 1 and k < m else min(-scores[i, k], OVERFLOW)
    return out


@njit(nogil=True, cache=True)
def _slopes(
    powers: np.ndarray, m: int, y: np.ndarray, weight: np.ndarray, q: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    gradient, hessian = np.empty(powers.shape), np.empty(powers.shape)
    first = 1 if m == 1 else 0
    for i in range(len(y)):
        easy, worth = weight[i] * (1 - q[i]), targets[y[i]].sum()
        norm = 1.0 if m == 1 else 0.0
        for k in range(m):
            norm += powers[i, k]
        for k in range(m):
            p = 1 / norm if m == 1 else powers[i, k] / norm
            gradient[i, k] = (p * worth - targets[y[i], first + k]) * easy
            hessian[i, k] = max(max(p * (1 - p), TINY) * (easy * worth), abs(gradient[i, k]) / MAX_STEP)
        for k in range(m, powers.shape[1]):
            p = 1 / (1 + powers[i, k])
            gradient[i, k] = (p - q[i]) * weight[i]
            hessian[i, k] = max(p * (1 - p), TINY) * weight[i]
    return gradient, hessian
