# SPDX-License-Identifier: Apache-2.0
"""Confidence tables: the probability that an answer is right, by margin (isotonic calibration), or by the value."""

from __future__ import annotations

import numpy as np
from sklearn.isotonic import IsotonicRegression

__all__ = ["NEVER", "confidence_at", "confidence_table", "margin_at", "value_table"]

NEVER = 1e6  # a margin larger than any score

MAX_STEPS = 12  # of a confidence table, which a device stores
MAX_BINS = 8  # of a table by values
BIN_ROWS = 30  # that a bin has at least


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
    levels = IsotonicRegression(y_min=0.0, y_max=1.0).fit(m, right, w).predict(m)
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
