"""Calibrated chances: how often an answer of this margin is wrong, by a logistic curve fitted to the judged rows.

Errors are rare, so cuts and comparisons are made on chances and not on counted errors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from .losses import sigmoid

__all__ = ["chance_wrong", "cloud_chance", "met_margins"]

MAX_MET = 12  # margins that a chance knows beside its own
WRONG_PER_MARGIN = 20  # fewer wrong rows do not tell what one more margin is worth
RIDGE = 1e-3  # on the slopes of a curve: errors may be parted from the rest without error
MAX_STEPS = 50
SETTLED = 1e-9  # a Newton step that moves no coefficient by more is the last


def chance_wrong(margin: np.ndarray, beside: np.ndarray | None, is_right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Chance that an answer is wrong, (n,): logistic in the margin, its root, and what else is known of a row.

    Parameters
    ----------
    beside : (n,) or (n, k), as a gate's score, or margins that the row met before; None: nothing
    """
    total, wrong = weight.sum(), weight[~is_right].sum()
    if not 0 < wrong < total:
        return np.full(len(margin), (wrong + 1) / (total + 2))
    known = [margin, np.sqrt(np.maximum(margin, 0)), *(() if beside is None else (beside,))]
    z = np.column_stack(known).astype(np.float64)
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
    """What a chance knows beside its own margin: the last of those met, (n, k), one for so many wrong rows.

    Rows come to a state because an earlier one was not sure of them, and are harder than their margin there says.
    None: nothing.
    """
    room = min(MAX_MET, n_wrong // WRONG_PER_MARGIN, len(margins))
    return np.column_stack(margins[len(margins) - room :]) if room else None


@njit(nogil=True, cache=True)
def _logistic(z, y, weight, coef):
    """Penalised log loss, its slope and its second derivatives; few coefficients, so no library's threads wake up."""
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
    """Chance that f0's answer is wrong, (n,), from its probabilities (n, n_classes) and what else is known of a row."""
    top = np.clip(hpc.max(axis=1), 1e-6, 1 - 1e-6)
    sure = np.log(top) - np.log1p(-top)
    return chance_wrong(sure - sure.min(), beside, hpc.argmax(axis=1) == y, weight)
