# SPDX-License-Identifier: Apache-2.0
"""Counts of answers by class, their recall and precision, and 95 % confidence intervals of shares.

References
----------
.. [1] Wilson, Probable inference, the law of succession, and statistical inference, 1927 (the score interval).
.. [2] Bonett and Price, Adjusted Wald confidence interval for a difference of binomial proportions based on paired
   data, 2012.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ClassCount", "Interval", "loss_interval", "per_class", "wilson"]

Interval = tuple[float, float]
Z = 1.959963984540054  # 97.5 % quantile of the normal distribution


@dataclass(frozen=True, slots=True)
class ClassCount:
    """Counts of one class: ``n`` rows are of it, ``answered`` rows were answered with it, ``right`` are both."""

    n: int
    answered: int
    right: int

    @property
    def recall(self) -> float | None:
        """Share of the class's rows that were answered with it; None if it has no rows."""
        return self.right / self.n if self.n else None

    @property
    def precision(self) -> float | None:
        """Share of the answers with this class that are right; None if there are none."""
        return self.right / self.answered if self.answered else None

    def to_json(self) -> dict[str, Any]:
        """Counts, recall and precision with their 95 % intervals, as plain values."""
        return {
            "n": self.n,
            "answered": self.answered,
            "right": self.right,
            "recall": self.recall,
            "recall_95": list(wilson(self.right, self.n)),
            "precision": self.precision,
            "precision_95": list(wilson(self.right, self.answered)),
        }


def per_class(
    y: NDArray[Any] | Sequence[int], answers: NDArray[Any] | Sequence[int], n_classes: int
) -> list[ClassCount]:
    """Counts of each class.

    Parameters
    ----------
    y, answers : (n,) class indices below ``n_classes``

    Examples
    --------
    >>> per_class([0, 0, 1], [0, 1, 1], 2)
    [ClassCount(n=2, answered=1, right=1), ClassCount(n=1, answered=2, right=1)]
    """
    truth, answered = np.asarray(y, np.int64), np.asarray(answers, np.int64)
    counts = (np.bincount(of, minlength=n_classes) for of in (truth, answered, truth[truth == answered]))
    return [ClassCount(*row) for row in np.stack(list(counts), axis=1).tolist()]


def wilson(successes: float, n: float) -> Interval:
    """The 95 % score interval of a share of ``successes`` in ``n`` trials [1]; (0, 1) without a trial.

    Examples
    --------
    >>> low, high = wilson(10, 10)
    >>> round(low, 4), high
    (0.7225, 1.0)
    """
    if n <= 0:
        return 0.0, 1.0
    share, spread = successes / n, Z * Z / n
    centre = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return (centre - half if successes > 0 else 0.0), (centre + half if successes < n else 1.0)


def loss_interval(worse: int, better: int, n: int) -> Interval:
    """The 95 % interval of a loss of accuracy, (worse - better) / n, measured on the same rows [2].

    Parameters
    ----------
    worse, better : rows on which only the reference is right, and rows on which it alone is wrong

    Examples
    --------
    >>> low, high = loss_interval(worse=3, better=1, n=400)
    >>> round(low, 4), round(high, 4)
    (-0.007, 0.0169)
    """
    lost, gained = (worse + 1) / (n + 2), (better + 1) / (n + 2)
    half = Z * math.sqrt((lost + gained - (lost - gained) ** 2) / (n + 2))
    return max(-1.0, lost - gained - half), min(1.0, lost - gained + half)
