# SPDX-License-Identifier: Apache-2.0
"""95 % confidence intervals of shares, of a quality measure, and of a loss of quality on the same rows.

Accuracies are shares and have intervals that hold for few errors, too. Other measures have normal intervals from the
losses of single rows, where the delta method gives the influence of a row. Rows that come in groups count for fewer;
docs/math.md (83).

References
----------
.. [1] Wilson, Probable inference, the law of succession, and statistical inference, 1927 (the score interval).
.. [2] Bonett and Price, Adjusted Wald confidence interval for a difference of binomial proportions based on paired
   data, 2012.
.. [3] Korn and Graubard, Confidence intervals for proportions with small expected number of positive counts estimated
   from survey data, 1998 (the effective number of rows that come in groups).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .quality import Quality

Interval = tuple[float, float]
Array = NDArray[Any]
Z = 1.959963984540054  # 97.5 % quantile of the normal distribution
T = (12.706, 4.303)  # and of Student's t with 1 and 2 degrees of freedom


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


def paired(worse: float, better: float, n: float) -> Interval:
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


def effective_rows(values: Array, group: Array | None) -> float:
    """The number of independent rows that say as much about a mean as these rows do; n without groups [3].

    Few groups also count for fewer, as normal intervals of so many rows are to be those of Student's t over groups.

    Parameters
    ----------
    values : (n,) such as 0 or 1
    group : (n,) number of the group of each row; rows of one group may be alike. None: each row stands for itself

    Examples
    --------
    >>> right, machine = np.array([1, 1, 1, 0, 0, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
    >>> effective_rows(right, None), round(effective_rows(right, machine), 6)
    (9.0, 0.414938)
    """
    n = len(values)
    if group is None or n == 0:
        return float(n)
    numbers = np.unique(group, return_inverse=True)[1]
    n_groups, spread = int(numbers.max()) + 1, float(np.var(values))
    few = (Z / _student(max(1, n_groups - 1))) ** 2
    if n_groups < 2 or spread == 0:  # no differences to learn from: each group counts as one row
        return n_groups * few
    sums = np.bincount(numbers, weights=values - np.mean(values))
    variance = n_groups / (n_groups - 1) * float(np.square(sums).sum()) / n**2
    return (min(float(n), max(1.0, spread / variance)) if variance else float(n)) * few


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, by the expansion of Cornish and Fisher from 3 degrees of freedom on."""
    if freedom <= len(T):
        return T[freedom - 1]
    first, second = (Z**3 + Z) / 4, (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    third = (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384
    return float(Z + first / freedom + second / freedom**2 + third / freedom**3)


def share_interval(values: Array, group: Array | None = None) -> Interval:
    """The interval of the share of ones in values (n,); groups as for ``effective_rows``."""
    n = effective_rows(np.asarray(values, dtype=np.float64), group)
    return wilson(float(np.mean(values)) * n if n else 0.0, n)


def quality_interval(quality: Quality, y: Array, answers: Array, group: Array | None = None) -> Interval:
    """The interval of a measure: Wilson's for accuracy, otherwise normal, up to 1 at most.

    Parameters
    ----------
    y, answers : (n,) class indices or values
    group : as for ``effective_rows``
    """
    if quality.kind == "accuracy":
        return share_interval(np.asarray(y) == answers, group)
    half = Z * _error(quality.row_losses(y, answers, group=group), group)
    value = quality(y, answers, group=group)
    return value - half, min(1.0, value + half)


def loss_interval(
    quality: Quality, y: Array, answers: Array, reference: Array, group: Array | None = None
) -> tuple[float, Interval]:
    """How much lower the quality of the answers is than that of a reference on the same rows, and the interval.

    Parameters
    ----------
    y, answers, reference : (n,) class indices or values
    group : as for ``effective_rows``

    Examples
    --------
    >>> from hardcase_edge.more.batch.quality import ACCURACY
    >>> y = np.zeros(100, dtype=int)
    >>> loss, (low, high) = loss_interval(ACCURACY, y, y + (np.arange(100) < 4), y)
    >>> round(loss, 2), round(low, 3), round(high, 3)
    (0.04, -0.007, 0.086)
    """
    loss = quality(y, reference, group=group) - quality(y, answers, group=group)
    if quality.kind == "accuracy":
        right, reference_right = np.asarray(y) == answers, np.asarray(y) == reference
        n = effective_rows(reference_right.astype(np.float64) - right, group)
        worse, better = (float(np.sum(rows)) for rows in (reference_right & ~right, right & ~reference_right))
        return loss, paired(worse * n / len(right), better * n / len(right), n)
    half = Z * _error(
        quality.row_losses(y, answers, group=group) - quality.row_losses(y, reference, group=group), group
    )
    return loss, (loss - half, loss + half)


def _error(values: Array, group: Array | None) -> float:
    """The standard error of the mean of values (n,), of as many rows as count [3]."""
    n = max(1.0, effective_rows(values, None) - 1) if group is None else effective_rows(values, group)
    return float(np.std(values)) / math.sqrt(n)
