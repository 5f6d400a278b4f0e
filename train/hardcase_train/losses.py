"""Losses of scores: what boosting needs (gradient and hessian, row by row) and what a linear solver needs (the sum
and its gradient).

Class scores are logits: with two classes one column s stands for the pair (0, s), otherwise one column per class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

__all__ = ["FLOOR", "AdaptLoss", "ClassLoss", "class_outputs", "log_probability", "sigmoid"]

TINY = 1e-12
FLOOR = 1e-6  # f0's probability of the true class is taken to be at least this


def class_outputs(n_classes: int) -> int:
    """How many score columns a classifier of so many classes has."""
    return 1 if n_classes == 2 else n_classes


def sigmoid(s: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-s)), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * s))


def log_probability(scores: np.ndarray) -> np.ndarray:
    """Log of class probabilities, (n, n_classes), from class scores."""
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    top = scores.max(axis=1, keepdims=True)
    return scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True))


@dataclass
class ClassLoss:
    """Weighted logistic loss, binary or multinomial: ``mean_i w_i * -log p(y_i | x_i)``."""

    y: np.ndarray  # (n,) class index
    n_classes: int
    weight: np.ndarray  # (n,)

    @property
    def n_outputs(self) -> int:
        return class_outputs(self.n_classes)

    @property
    def has_classes(self) -> bool:
        """Whether rows of more than one class carry weight."""
        return len(np.unique(self.y[self.weight > 0])) > 1

    def base(self) -> np.ndarray:
        """Scores of the weighted class shares, (n_outputs,)."""
        share = np.bincount(self.y, self.weight, self.n_classes) + 1e-3
        logs = np.log(share / share.sum())
        return logs[1:] - logs[:1] if self.n_outputs == 1 else logs

    def row_loss(self, scores: np.ndarray) -> np.ndarray:
        """-log p(y_i | x_i), (n,)."""
        return -log_probability(scores)[np.arange(len(self.y)), self.y]

    def value_and_slope(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum of the rows' weighted losses, and its gradient, (n, n_outputs)."""
        return _class_value_and_slope(scores, self.y, self.weight)

    def derivatives(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and diagonal hessian, (n, n_outputs) each, weights included."""
        return _class_derivatives(scores, self.y, self.weight)


@dataclass
class AdaptLoss:
    """The part of (OPT2) of Nan and Saligrama (2017) that g and f1 share, for given q, any number of classes.

    mean_i (1 - q_i) [ -log p_f1(y_i | x_i) + log(1 + e^g_i) ] + q_i log(1 + e^-g_i)
    """

    classes: ClassLoss
    q: np.ndarray  # (n,) share of each row that the cloud should take

    @property
    def n_outputs(self) -> int:
        return self.classes.n_outputs + 1

    def value_and_slope(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum over rows, weights included, and its gradient, (n, n_outputs)."""
        weight, g = self.classes.weight, scores[:, -1]
        value, slope = _class_value_and_slope(scores[:, :-1], self.classes.y, weight * (1 - self.q))
        gate = np.logaddexp(0.0, g) - self.q * g  # (1 - q) log(1 + e^g) + q log(1 + e^-g)
        return value + float(weight @ gate), np.column_stack([slope, weight * (sigmoid(g) - self.q)])

    def derivatives(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and diagonal hessian, (n, n_outputs) each."""
        return _adapt_derivatives(scores, self.classes.y, self.classes.weight, self.q)


@njit(nogil=True, cache=True)
def _class_value_and_slope(scores, y, weight):
    n, m = scores.shape
    total = 0.0
    slope = np.empty((n, m))
    for i in range(n):
        top = 0.0 if m == 1 else -np.inf  # with one column class 0 has the score 0
        for k in range(m):
            top = max(top, scores[i, k])
        norm = np.exp(-top) if m == 1 else 0.0
        for k in range(m):
            slope[i, k] = np.exp(scores[i, k] - top)
            norm += slope[i, k]
        column = y[i] - 1 if m == 1 else y[i]
        said = scores[i, column] if column >= 0 else 0.0
        total += weight[i] * (top + np.log(norm) - said)
        for k in range(m):
            slope[i, k] *= weight[i] / norm
        if column >= 0:
            slope[i, column] -= weight[i]
    return total, slope


@njit(nogil=True, cache=True)
def _class_derivatives(scores, y, weight):
    gradient, hessian = np.empty_like(scores), np.empty_like(scores)
    for i in range(len(y)):
        _class_row(scores[i], y[i], weight[i], gradient[i], hessian[i])
    return gradient, hessian


@njit(nogil=True, cache=True)
def _adapt_derivatives(scores, y, weight, q):
    gradient, hessian = np.empty_like(scores), np.empty_like(scores)
    for i in range(len(y)):
        _class_row(scores[i, :-1], y[i], weight[i] * (1 - q[i]), gradient[i], hessian[i])
        p = 0.5 * (1 + np.tanh(0.5 * scores[i, -1]))
        gradient[i, -1] = (p - q[i]) * weight[i]
        hessian[i, -1] = max(p * (1 - p), TINY) * weight[i]
    return gradient, hessian


@njit(nogil=True, cache=True)
def _class_row(scores, y, weight, gradient, hessian):
    """Derivatives by the class scores of one row, into the first places of ``gradient`` and ``hessian``."""
    m = len(scores)
    if m == 1:
        gradient[0] = 0.5 * (1 + np.tanh(0.5 * scores[0]))
    else:
        top, norm = scores.max(), 0.0
        for k in range(m):
            gradient[k] = np.exp(scores[k] - top)
            norm += gradient[k]
        for k in range(m):
            gradient[k] /= norm
    for k in range(m):
        p = gradient[k]
        hessian[k] = max(p * (1 - p), TINY) * weight
        gradient[k] = (p - (y == (1 if m == 1 else k))) * weight
