"""Confidence: how often an answer with such a margin is right, as a small table that a device can look up."""

from __future__ import annotations

import numpy as np
from sklearn.isotonic import IsotonicRegression

__all__ = ["confidence_table"]

MAX_STEPS = 12


def confidence_table(
    margins: np.ndarray, is_right: np.ndarray, weight: np.ndarray | None = None
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Isotonic estimate of P(right | margin), with at most 12 steps.

    Parameters
    ----------
    margins : ndarray of shape (n,), best score minus second
    is_right : ndarray of shape (n,), bool
    weight : ndarray of shape (n,), one for each unless given

    Returns
    -------
    thresholds : strictly increasing margins where the confidence changes
    confidences : basis points, one more than thresholds; one success and one failure are added to each step, so
        that no step claims certainty
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
    said = np.maximum.accumulate([round(10_000 * (g.sum() + 1) / (all_.sum() + 2)) for g, all_ in groups])
    return tuple(float(x) for x in m[starts[1:]]), tuple(int(c) for c in said)
