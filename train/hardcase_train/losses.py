"""Losses that boosting lowers: value, gradient and hessian of every row's scores.

Class scores are logits: with two classes one column s stands for the pair (0, s), otherwise one column per class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["AdaptLoss", "ClassLoss", "class_outputs", "log_probability", "sigmoid"]

TINY = 1e-12


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

    def base(self) -> np.ndarray:
        """Scores of the weighted class shares, (n_outputs,)."""
        share = np.bincount(self.y, self.weight, self.n_classes) + 1e-3
        logs = np.log(share / share.sum())
        return logs[1:] - logs[:1] if self.n_outputs == 1 else logs

    def row_loss(self, scores: np.ndarray) -> np.ndarray:
        """-log p(y_i | x_i), (n,)."""
        return -log_probability(scores)[np.arange(len(self.y)), self.y]

    def derivatives(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and diagonal hessian, (n, n_outputs) each, weights included."""
        p = np.exp(log_probability(scores))
        if self.n_outputs == 1:
            p1 = p[:, 1:]
            gradient = p1 - (self.y == 1)[:, None]
            hessian = p1 * (1 - p1)
        else:
            gradient = p.copy()
            gradient[np.arange(len(self.y)), self.y] -= 1
            hessian = p * (1 - p)
        w = self.weight[:, None]
        return gradient * w, np.maximum(hessian, TINY) * w


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

    def derivatives(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and diagonal hessian, (n, n_outputs) each."""
        gradient, hessian = self.classes.derivatives(scores[:, :-1])
        easy = (1 - self.q)[:, None]
        p = sigmoid(scores[:, -1:])
        w = self.classes.weight[:, None]
        return (
            np.hstack([gradient * easy, (p - self.q[:, None]) * w]),
            np.hstack([hessian * easy, np.maximum(p * (1 - p), TINY) * w]),
        )
