# SPDX-License-Identifier: Apache-2.0
"""Error model: the probability that an answer is wrong, by logistic regression on its margin.

Errors are rare, so cuts and comparisons of policies use these probabilities instead of counts of errors. The model is
fitted to the judged rows (``selection.Judge``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from .losses import sigmoid

__all__ = ["chance_wrong", "cloud_chance", "met_margins"]

MAX_MET = 12  # margins of earlier stages among the features
WRONG_PER_MARGIN = 20  # wrong rows needed for each further margin, or its slope is noise
RIDGE = 1e-3  # L2 penalty on the slopes: errors may be linearly separable
MAX_STEPS = 50
SETTLED = 1e-9  # Newton's method ends when no coefficient moves by more


def chance_wrong(margin: np.ndarray, beside: np.ndarray | None, is_right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Probability that an answer is wrong, (n,): logistic in the margin, its root, and additional features.

    Parameters
    ----------
    margin : (n,), best score minus second
    beside : (n,) or (n, k), additional features, as a gate's score or the margins of earlier stages; None for none
    is_right : (n,) bool, to which the model is fitted
    weight : (n,)
    """
    total, wrong = weight.sum(), weight[~is_right].sum()
    if not 0 < wrong < total:
        return np.full(len(margin), (wrong + 1) / (total + 2))
    features = [margin, np.sqrt(np.maximum(margin, 0)), *(() if beside is None else (beside,))]
    z = np.column_stack(features).astype(np.float64)
    z = (z - z.mean(axis=0)) / np.maximum(z.std(axis=0), 1e-12)
    z = np.ascontiguousarray(np.column_stack([z, np.ones(len(z))]))
    is_wrong = (~is_right).astype(np.float64)
    coef = np.zeros(z.shape[1])
    coef[-1] = np.log(wrong / (total - wrong))
    loss, slope, curve = _logistic(z, is_wrong, weight, coef)
    for _ in range(MAX_STEPS):
        step = np.linalg.solve(curve, slope)
        new = _logistic(z, is_wrong, weight, coef - step)
        while new[0] > loss and np.abs(step).max() > SETTLED:
            step /= 2
            new = _logistic(z, is_wrong, weight, coef - step)
        if new[0] >= loss:
            break
        coef, (loss, slope, curve) = coef - step, new
        if np.abs(step).max() <= SETTLED:
            break
    return sigmoid(z @ coef)


def met_margins(margins: Sequence[np.ndarray], n_wrong: int) -> np.ndarray | None:
    """Margins of earlier stages, the additional features of the error model, (n, k); None if there are none.

    A row reaches a stage because earlier ones were not sure of it, so it is harder than its margin there suggests. The
    last margins are taken, one for each ``WRONG_PER_MARGIN`` of the ``n_wrong`` wrong rows.
    """
    n_met = min(MAX_MET, n_wrong // WRONG_PER_MARGIN, len(margins))
    return np.column_stack(margins[len(margins) - n_met :]) if n_met else None


@njit(nogil=True, cache=True)
def _logistic(
    z: np.ndarray, y: np.ndarray, weight: np.ndarray, coef: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Penalised log loss, gradient and Hessian; for so few coefficients, the threads of BLAS only cost time."""
    k = len(coef)
    loss, slope, curve = 0.0, np.zeros(k), np.zeros((k, k))
    for j in range(k - 1):
        loss += 0.5 * RIDGE * coef[j] ** 2
        slope[j] = RIDGE * coef[j]
        curve[j, j] = RIDGE
    for i in range(len(y)):
        s = 0.0
        for j in range(k):
            s += z[i, j] * coef[j]
        e = np.exp(-abs(s))
        p = 1 / (1 + e) if s >= 0 else e / (1 + e)
        loss += weight[i] * (max(s, 0.0) - y[i] * s + np.log1p(e))
        for j in range(k):
            slope[j] += weight[i] * (p - y[i]) * z[i, j]
            for m in range(k):
                curve[j, m] += weight[i] * p * (1 - p) * z[i, j] * z[i, m]
    return loss, slope, curve


def cloud_chance(hpc: np.ndarray, y: np.ndarray, weight: np.ndarray, beside: np.ndarray | None = None) -> np.ndarray:
    """Probability that f0's answer is wrong, (n,), from f0's probabilities (n, n_classes) and additional features."""
    top = np.clip(hpc.max(axis=1), 1e-6, 1 - 1e-6)
    log_odds = np.log(top) - np.log1p(-top)
    return chance_wrong(log_odds - log_odds.min(), beside, hpc.argmax(axis=1) == y, weight)
