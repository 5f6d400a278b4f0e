# SPDX-License-Identifier: Apache-2.0
"""A linear policy of parts: the graph without edges of the paper, as a support vector machine with weighted rows."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import BaseEstimator

MOST_STEPS = 30


class PartPolicy(BaseEstimator):  # type: ignore[misc]
    """Says for which parts costly features are worth buying: those that score above a threshold.

    The squared hinge with a ridge is minimised in the primal by Newton's steps on the rows within the margin.

    Parameters
    ----------
    C : float
        The inverse of the ridge, on standardised features.
    buy_weight : float or "balanced"
        How much more a part that should buy counts (the class weight, with which the paper reaches large budgets).

    Attributes
    ----------
    weights : (d,) array, on the features as they are
    bias : float
    """

    def __init__(self, C: float = 0.01, buy_weight: float | str = "balanced") -> None:
        self.C = C
        self.buy_weight = buy_weight

    def fit(self, features: np.ndarray, bought: np.ndarray, importance: np.ndarray | None = None) -> Self:
        """Train on (n, d) features, (n,) booleans and (n,) weights; if no part or every part buys, scores are 0."""
        features, bought = np.asarray(features, dtype=np.float64), np.asarray(bought, dtype=bool)
        mean, spread = features.mean(axis=0), features.std(axis=0) + 1e-9
        self.weights, self.bias = np.zeros(features.shape[1]), 0.0
        if bought.any() and not bought.all():
            count, n = bought.sum(), len(bought)
            buy, leave = (n / (2 * count), n / (2 * (n - count))) if self.buy_weight == "balanced" else (
                float(self.buy_weight), 1.0,
            )  # fmt: skip
            weight = np.where(bought, buy, leave) * (1.0 if importance is None else importance)
            scaled = np.hstack([(features - mean) / spread, np.ones((n, 1))])
            w = _squared_hinge(scaled, np.where(bought, 1.0, -1.0), self.C * weight)
            self.weights = w[:-1] / spread
            self.bias = float(w[-1] - self.weights @ mean)
        return self

    def scores(self, features: np.ndarray) -> np.ndarray:
        """(n,) how much each part wants to buy."""
        return np.asarray(features @ self.weights + self.bias, dtype=np.float64)


def _squared_hinge(rows: np.ndarray, sign: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The minimum of |w|^2 / 2 + sum of weight * max(0, 1 - sign * rows w)^2; the last column, the bias, is free."""

    def loss(w: np.ndarray) -> float:
        slack = np.maximum(0.0, 1 - sign * (rows @ w))
        return float(w[:-1] @ w[:-1] / 2 + weight @ slack**2)

    ridge = np.append(np.ones(rows.shape[1] - 1), 1e-9)
    w = np.zeros(rows.shape[1])
    for _ in range(MOST_STEPS):
        slack = 1 - sign * (rows @ w)
        inside = slack > 0
        own, by = rows[inside], weight[inside]
        gradient = ridge * w - 2 * own.T @ (by * sign[inside] * slack[inside])
        step = np.linalg.solve(np.diag(ridge) + 2 * (own * by[:, None]).T @ own, gradient)
        size, current = 1.0, loss(w)
        while size > 1e-6 and loss(w - size * step) > current:
            size /= 2
        w = w - size * step
        if float(np.abs(step).max()) < 1e-6:
            break
    return w
