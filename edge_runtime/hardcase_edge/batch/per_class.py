# SPDX-License-Identifier: Apache-2.0
"""Counts of answers by class, with recall and precision and their 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .intervals import Interval, loss_interval, share_interval
from .quality import ACCURACY

__all__ = ["ClassCount", "per_class", "recall_losses"]


@dataclass(frozen=True, slots=True)
class ClassCount:
    """Counts of one class: ``n`` rows are of it, ``answered`` rows were answered with it, ``right`` are both.

    ``recall_95`` and ``precision_95``: 95 % intervals.
    """

    n: int
    answered: int
    right: int
    recall_95: Interval
    precision_95: Interval

    @property
    def recall(self) -> float | None:
        """Share of the class's rows that were answered with it; None if it has no rows."""
        return self.right / self.n if self.n else None

    @property
    def precision(self) -> float | None:
        """Share of the answers with this class that are right; None if there are none."""
        return self.right / self.answered if self.answered else None

    def to_json(self) -> dict[str, Any]:
        """Counts, recall and precision with their intervals, as plain values."""
        return {
            "n": self.n,
            "answered": self.answered,
            "right": self.right,
            "recall": self.recall,
            "recall_95": list(self.recall_95),
            "precision": self.precision,
            "precision_95": list(self.precision_95),
        }


def per_class(
    y: NDArray[Any] | Sequence[int],
    answers: NDArray[Any] | Sequence[int],
    n_classes: int,
    group: NDArray[Any] | None = None,
) -> list[ClassCount]:
    """Counts of each class.

    Parameters
    ----------
    y, answers : (n,) class indices below ``n_classes``
    group : (n,) number of each row's group; None: each row stands for itself

    Examples
    --------
    >>> [(count.n, count.answered, count.right) for count in per_class([0, 0, 1], [0, 1, 1], 2)]
    [(2, 1, 1), (1, 2, 1)]
    """
    truth, answered = np.asarray(y, np.int64), np.asarray(answers, np.int64)
    right = truth == answered

    def interval(rows: NDArray[np.bool_]) -> Interval:
        return share_interval(right[rows], None if group is None else group[rows]) if rows.any() else (0.0, 1.0)

    counts = []
    for k in range(n_classes):
        of_class, as_class = truth == k, answered == k
        n_right = int((of_class & right).sum())
        counts.append(
            ClassCount(int(of_class.sum()), int(as_class.sum()), n_right, interval(of_class), interval(as_class))
        )
    return counts


def recall_losses(
    y: NDArray[Any], answers: NDArray[Any], reference: NDArray[Any], n_classes: int, group: NDArray[Any] | None = None
) -> list[tuple[float, Interval] | None]:
    """How much lower the recall of each class is than that of a reference on the same rows, with its 95 % interval.

    Parameters
    ----------
    y, answers, reference : (n,) class indices below ``n_classes``
    group : as for ``per_class``

    Returns
    -------
    list of (loss, interval), None for a class without rows

    Examples
    --------
    >>> y = np.repeat([0, 1], [40, 20])
    >>> [(loss, round(low, 2)) for loss, (low, _) in recall_losses(y, 0 * y, y, 2)]
    [(0.0, -0.07), (1.0, 0.74)]
    """
    losses: list[tuple[float, Interval] | None] = []
    for k in range(n_classes):
        rows = np.asarray(y) == k
        given = None if group is None else group[rows]
        measured = loss_interval(ACCURACY, y[rows], answers[rows], reference[rows], given) if rows.any() else None
        losses.append(measured)
    return losses
