# SPDX-License-Identifier: Apache-2.0
"""95 % confidence intervals of shares, of a quality measure, and of a loss of quality on the same rows.

Accuracies are shares and have intervals that hold for few errors, too. Other measures have normal intervals from the
losses of single rows, where the delta method gives the influence of a row.

References
----------
.. [1] Wilson, Probable inference, the law of succession, and statistical inference, 1927 (the score interval).
.. [2] Bonett and Price, Adjusted Wald confidence interval for a difference of binomial proportions based on paired
   data, 2012.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .quality import Quality

__all__ = ["Interval", "loss_interval", "paired", "quality_interval", "wilson"]

Interval = tuple[float, float]
Array = NDArray[Any]
Z = 1.959963984540054  # 97.5 % quantile of the normal distribution


def wilson(successes: float, n: float) -> Interval:
    """The score interval of a share of ``successes`` in ``n`` trials [1]; (0, 1) without a trial.

    Examples
    --------
    >>> low, high = wilson(10, 10)
    >>> round(low, 4), high
    (0.7225, 1.0)
    """
    if n <= 0:
        return 0.0, 1.0
    share, spread = min(successes / n, 1.0), Z * Z / n
    centre = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return (centre - half if share > 0 else 0.0), (centre + half if share < 1 else 1.0)


def paired(worse: int, better: int, n: int) -> Interval:
    """The interval of a loss of accuracy, (worse - better) / n, measured on the same rows [2].

    Parameters
    ----------
    worse, better : rows on which only the reference is right, and rows on which it alone is wrong

    Examples
    --------
    >>> low, high = paired(worse=3, better=1, n=400)
    >>> round(low, 4), round(high, 4)
    (-0.007, 0.0169)
    """
    lost, gained = (worse + 1) / (n + 2), (better + 1) / (n + 2)
    half = Z * math.sqrt((lost + gained - (lost - gained) ** 2) / (n + 2))
    return max(-1.0, lost - gained - half), min(1.0, lost - gained + half)


def quality_interval(quality: Quality, y: Array, answers: Array) -> Interval:
    """The interval of a measure: Wilson's for accuracy, otherwise normal.

    Parameters
    ----------
    y, answers : (n,) class indices
    """
    if quality.kind == "accuracy":
        return wilson(int(np.sum(np.asarray(y) == answers)), len(y))
    half = Z * _error(quality.row_losses(y, answers))
    value = quality(y, answers)
    return value - half, value + half


def loss_interval(quality: Quality, y: Array, answers: Array, reference: Array) -> tuple[float, Interval]:
    """How much lower the quality of the answers is than that of a reference on the same rows, and the interval.

    Parameters
    ----------
    y, answers, reference : (n,) class indices

    Examples
    --------
    >>> from hardcase_edge.batch.quality import ACCURACY
    >>> y = np.zeros(100, dtype=int)
    >>> loss, (low, high) = loss_interval(ACCURACY, y, y + (np.arange(100) < 4), y)
    >>> round(loss, 2), round(low, 3), round(high, 3)
    (0.04, -0.004, 0.082)
    """
    loss = quality(y, reference) - quality(y, answers)
    right, reference_right = np.asarray(y) == answers, np.asarray(y) == reference
    if quality.kind == "accuracy":
        return loss, paired(int(np.sum(reference_right & ~right)), int(np.sum(right & ~reference_right)), len(y))
    half = Z * _error(quality.row_losses(y, answers) - quality.row_losses(y, reference))
    return loss, (loss - half, loss + half)


def _error(values: Array) -> float:
    """The standard error of the mean of values (n,)."""
    return float(np.std(values) / math.sqrt(len(values)))
