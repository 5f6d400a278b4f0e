# SPDX-License-Identifier: Apache-2.0
"""Confidence tables: the probability that an answer is right, by margin (isotonic calibration), or by the value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from scipy.optimize import isotonic_regression
from sklearn.linear_model import PoissonRegressor

from .losses import sigmoid

NEVER = 1e6  # a margin larger than any score

MAX_STEPS = 12  # of a confidence table, which a device stores
MAX_BINS = 8  # of a table by values
BIN_ROWS = 30  # that a bin has at least
MAX_MET = 12  # margins of earlier stages among the features
WRONG_PER_MARGIN = 20  # wrong rows needed for each further margin, or its slope is noise
PRIOR = 2.0  # wrong rows' weight in a label's mean loss
RIDGE = 1e-3  # L2 penalty on the slopes: errors may be linearly separable
VALUE_RIDGE = 1e-4  # of values, on standardised features
LEAST = 1e-12  # expected square of an answer that was always exact
MAX_ROUNDS = 50
SETTLED = 1e-9  # Newton's method ends when no coefficient moves by more


def confidence_table(
    margins: np.ndarray, is_right: np.ndarray, weight: np.ndarray | None = None
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Isotonic estimate of P(right | margin), with at most 12 steps.

    Parameters
    ----------
    margins : ndarray of shape (n,), best score minus second
    is_right : ndarray of shape (n,), bool
    weight : ndarray of shape (n,), ones unless given

    Returns
    -------
    thresholds : strictly increasing margins where the confidence changes, each half-way between those of two rows: at
        a row's own margin, rounding in the last digit would decide on which side the row falls
    confidences : basis points, one more than thresholds; one success and one failure are added to each step, so
        that no step claims certainty

    Examples
    --------
    >>> margins, is_right = np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True])
    >>> confidence_table(margins, is_right)
    ((0.5,), (2500, 7500))
    """
    if len(margins) == 0:
        return (), (5000,)
    order = np.argsort(margins, kind="stable")
    m, right = margins[order], is_right[order].astype(float)
    w = np.ones(len(m)) if weight is None else weight[order]
    levels = _isotonic(m, right, w)
    starts = np.flatnonzero(np.diff(levels, prepend=-1.0) > 0)
    while len(starts) > MAX_STEPS:  # drop the smallest step
        sizes = np.diff(np.append(starts, len(m)))
        starts = np.delete(starts, max(1, int(np.argmin(sizes))))
    starts = starts[np.append(True, np.diff(m[starts]) > 0)]
    groups = zip(np.split(right * w, starts[1:]), np.split(w, starts[1:]), strict=True)
    shares = [round(10_000 * (right_weight.sum() + 1) / (total.sum() + 2)) for right_weight, total in groups]
    below, above = m[starts[1:] - 1], m[starts[1:]]
    middle = (below + above) / 2
    edges = np.where(middle > below, middle, above)  # of neighbouring floats, the middle is one of them
    return tuple(edges.tolist()), tuple(int(c) for c in np.maximum.accumulate(shares))


def _isotonic(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The weighted least squares fit (n,) of y, from 0 to 1, that rises with x, which is sorted.

    It is what scikit-learn's IsotonicRegression predicts, in a fifteenth of the time: this runs for each answer of each
    policy that is tried.
    """
    order = np.lexsort((y, x))
    order = order[weight[order] > 0]
    x_of, y_of, w_of = x[order], y[order], weight[order]
    group = np.cumsum(np.diff(x_of, prepend=-np.inf) >= np.finfo(x.dtype).resolution) - 1
    total = np.bincount(group, w_of)
    fitted = isotonic_regression(np.bincount(group, w_of * y_of) / total, weights=total).x
    knots = x_of[np.searchsorted(group, np.arange(len(total)))]
    return np.asarray(np.interp(x, knots, np.clip(fitted, 0.0, 1.0)))


def value_table(
    values: np.ndarray, is_right: np.ndarray, weight: np.ndarray
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The share of right answers by the answered value, in at most 8 bins of about as many rows (histogram binning).

    Parameters
    ----------
    values : ndarray of shape (n,), the answers
    is_right : ndarray of shape (n,), bool
    weight : ndarray of shape (n,)

    Returns
    -------
    thresholds, confidences : as of ``confidence_table``, but confidences need not rise

    Examples
    --------
    >>> values, is_right = np.arange(60.0), np.arange(60) < 30
    >>> value_table(values, is_right, np.ones(60))
    ((29.5,), (9688, 312))
    """
    n_bins = max(1, min(MAX_BINS, len(values) // BIN_ROWS))
    distinct = np.unique(values)
    places = np.searchsorted(distinct, np.quantile(values, np.linspace(0, 1, n_bins + 1)[1:-1])) if n_bins > 1 else []
    thresholds = sorted({float(distinct[k - 1] / 2 + distinct[k] / 2) for k in places if k > 0})
    bins = np.searchsorted(thresholds, values, side="right")
    right, total = (np.bincount(bins, w, len(thresholds) + 1) for w in (weight * is_right, weight))
    return tuple(thresholds), tuple(round(10_000 * (r + 1) / (t + 2)) for r, t in zip(right, total, strict=True))


def confidence_at(table: tuple[tuple[float, ...], tuple[int, ...]], margins: np.ndarray) -> np.ndarray:
    """The confidence, from 0 to 1, that a table states for each margin (n,)."""
    thresholds, confidences = table
    return np.asarray(np.array(confidences)[np.searchsorted(thresholds, margins, side="right")] / 10_000)


def margin_at(table: tuple[tuple[float, ...], tuple[int, ...]], level: float) -> float:
    """The threshold on the margin from which on the confidence reaches ``level``, 0 to 1; ``NEVER`` if none does."""
    thresholds, confidences = table
    steps = [k for k, c in enumerate(confidences) if c >= level * 10_000]
    if not steps:
        return NEVER
    return thresholds[steps[0] - 1] if steps[0] else 0.0


# ---------------------------------------------------------------- of several models
# Error model: the probability that an answer is wrong, and its expected loss, by logistic regression on its margin.
#
# Errors are rare, so cuts and comparisons of policies use these probabilities instead of counts of errors. The model is
# fitted to the judged rows (``selection.Judge``). Problems of values have the expected squared error in its place.


def chance_wrong(margin: np.ndarray, more: np.ndarray | None, is_right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Probability that an answer is wrong, (n,): logistic in the margin, its root, and additional features.

    Parameters
    ----------
    margin : (n,), best score minus second
    more : (n,) or (n, k), additional features, as a gate's score or the margins of earlier stages; None for none
    is_right : (n,) bool, to which the model is fitted
    weight : (n,)
    """
    total, wrong = weight.sum(), weight[~is_right].sum()
    if not 0 < wrong < total:
        return np.full(len(margin), (wrong + 1) / (total + 2))
    features = [margin, np.sqrt(np.maximum(margin, 0)), *(() if more is None else (more,))]
    z = np.column_stack(features).astype(np.float64)
    z = (z - z.mean(axis=0)) / np.maximum(z.std(axis=0), 1e-12)
    z = np.ascontiguousarray(np.column_stack([z, np.ones(len(z))]))
    is_wrong = (~is_right).astype(np.float64)
    coef = np.zeros(z.shape[1])
    coef[-1] = np.log(wrong / (total - wrong))
    loss, slope, curve = _logistic(z, is_wrong, weight, coef)
    for _ in range(MAX_ROUNDS):
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
    more: np.ndarray | None,
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
        return chance_wrong(margin, more, is_right, weight)
    n_wrong = np.bincount(label[~is_right], minlength=len(errors))
    own = np.flatnonzero((n_wrong >= WRONG_PER_MARGIN) | (len(errors) == 2))
    out = np.empty(len(y))
    rest = ~np.isin(label, own)
    for rows in [*(label == a for a in own), rest]:
        if rows.any():
            met = None if more is None else more[rows]
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
    more: np.ndarray | None = None,
) -> np.ndarray:
    """Expected loss of f0's answer, (n,).

    Parameters
    ----------
    stakes : (n, n_classes) f0's probabilities, weighted by what answers are worth (``data.problem.Rows.stakes``)
    errors, beside : as for ``expected_loss``
    """
    top = np.clip(stakes.max(axis=1) if errors is None else stakes.max(axis=1) / stakes.sum(axis=1), 1e-6, 1 - 1e-6)
    log_odds = np.log(top) - np.log1p(-top)
    return expected_loss(log_odds - log_odds.min(), more, stakes.argmax(axis=1), y, weight, errors)


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
