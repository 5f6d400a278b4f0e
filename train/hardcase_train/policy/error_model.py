# SPDX-License-Identifier: Apache-2.0
"""Error model: the probability that an answer is wrong, and its expected loss, by logistic regression on its margin.

Errors are rare, so cuts and comparisons of policies use these probabilities instead of counts of errors. The model is
fitted to the judged rows (``selection.Judge``). Problems of values have the expected squared error in its place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from sklearn.linear_model import PoissonRegressor

from .losses import sigmoid

__all__ = ["MAX_MET", "chance_wrong", "cloud_loss", "expected_loss", "expected_square", "met_margins"]

MAX_MET = 12  # margins of earlier stages among the features
WRONG_PER_MARGIN = 20  # wrong rows needed for each further margin, or its slope is noise
PRIOR = 2.0  # wrong rows' weight in a label's mean loss
RIDGE = 1e-3  # L2 penalty on the slopes: errors may be linearly separable
VALUE_RIDGE = 1e-4  # of values, on standardised features
LEAST = 1e-12  # expected square of an answer that was always exact
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


def expected_loss(
    margin: np.ndarray,
    beside: np.ndarray | None,
    label: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    errors: np.ndarray | None,
) -> np.ndarray:
    """Expected loss of an answer, (n,): the probability that it is wrong, times the mean loss of its errors.

    With costs of errors, an answer's label says much about both, so labels with enough wrong rows have models of their
    own, and with two classes each label has.

    Parameters
    ----------
    label : (n,) class index, the answers
    errors : (n_classes, n_classes) losses of answers (columns) to cases of each class; None: each error counts 1
    other parameters : as for ``chance_wrong``
    """
    is_right = label == y
    if errors is None:
        return chance_wrong(margin, beside, is_right, weight)
    n_wrong = np.bincount(label[~is_right], minlength=len(errors))
    own = np.flatnonzero((n_wrong >= WRONG_PER_MARGIN) | (len(errors) == 2))
    out = np.empty(len(y))
    rest = ~np.isin(label, own)
    for rows in [*(label == a for a in own), rest]:
        if rows.any():
            met = None if beside is None else beside[rows]
            chance = chance_wrong(margin[rows], met, is_right[rows], weight[rows])
            out[rows] = chance * _severity(label[rows], y[rows], weight[rows], errors)
    return out


def _severity(label: np.ndarray, y: np.ndarray, weight: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Mean loss of a wrong answer of each row's label, (n,), from the wrong rows and ``PRIOR`` rows of average cost."""
    wrong = label != y
    prior = np.array([np.delete(column, a).mean() for a, column in enumerate(errors.T)])
    total = np.bincount(label[wrong], weight[wrong], len(errors))
    loss = np.bincount(label[wrong], weight[wrong] * errors[y[wrong], label[wrong]], len(errors))
    return np.asarray(((loss + PRIOR * prior) / (total + PRIOR))[label])


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


def cloud_loss(
    stakes: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    errors: np.ndarray | None = None,
    beside: np.ndarray | None = None,
) -> np.ndarray:
    """Expected loss of f0's answer, (n,).

    Parameters
    ----------
    stakes : (n, n_classes) f0's probabilities, weighted by what answers are worth (``data.problem.Rows.stakes``)
    errors, beside : as for ``expected_loss``
    """
    top = np.clip(stakes.max(axis=1) if errors is None else stakes.max(axis=1) / stakes.sum(axis=1), 1e-6, 1 - 1e-6)
    log_odds = np.log(top) - np.log1p(-top)
    return expected_loss(log_odds - log_odds.min(), beside, stakes.argmax(axis=1), y, weight, errors)


def expected_square(
    features: Sequence[np.ndarray], answer: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Expected squared error of each answer, (n,): log-linear in the features.

    Poisson regression gives estimates that sum to the observed errors (quasi-likelihood: McCullagh and Nelder,
    *Generalized Linear Models*, 1989, chapter 9).

    Parameters
    ----------
    features : (n,) each, scores that rise with the error, such as a stage's score of uncertainty; none: the mean
    answer, y : (n,) values
    weight : (n,)
    """
    squares = np.square(answer - y)
    mean = float(np.average(squares, weights=weight))
    z = np.column_stack(features) if features else np.zeros((len(y), 0))
    spread = z.std(axis=0)
    z = (z - z.mean(axis=0))[:, spread > LEAST] / spread[spread > LEAST]
    if mean <= LEAST or not z.shape[1]:
        return np.full(len(y), max(mean, LEAST))
    model = PoissonRegressor(alpha=VALUE_RIDGE, max_iter=200).fit(z, squares / mean, sample_weight=weight)
    return np.asarray(np.maximum(model.predict(z) * mean, LEAST))
