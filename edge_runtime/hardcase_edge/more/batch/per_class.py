# SPDX-License-Identifier: Apache-2.0
"""Counts of answers by class, with recall and precision and their 95 % intervals; classes that are lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .intervals import Interval, effective_rows, paired, share_interval

FAR = 0.1  # of recall, at least so much below the reference's at 95 %


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
    truth = np.asarray(y, np.int64)
    right, reference_right = truth == answers, truth == reference
    lost = reference_right.astype(np.float64) - right
    n, worse, better = (
        np.bincount(truth[rows], minlength=n_classes).tolist() for rows in (truth >= 0, lost > 0, lost < 0)
    )
    losses: list[tuple[float, Interval] | None] = []
    for k in range(n_classes):
        if not n[k]:
            losses.append(None)
            continue
        of_class = None if group is None else truth == k
        n_eff = float(n[k]) if group is None else effective_rows(lost[of_class], group[of_class])
        share = n_eff / n[k]
        losses.append(((worse[k] - better[k]) / n[k], paired(worse[k] * share, better[k] * share, n_eff)))
    return losses


@dataclass(frozen=True, slots=True)
class Gap:
    """One class that is found far less often than by a reference.

    number : of the class
    n : its rows
    own, reference : recall of the answers, and of the reference
    least : lower end of the interval of their difference
    """

    number: int
    n: int
    own: float
    reference: float
    least: float


def recall_gaps(n: Sequence[int], right: Sequence[int], losses: Sequence[tuple[float, Interval] | None]
                ) -> tuple[Gap, ...]:  # fmt: skip
    """The classes that are found far less often, the farthest first; a few rows of a class say nothing.

    Parameters
    ----------
    n, right : of each class its rows, and those that are answered rightly, of a mix to the nearest row
    losses : as ``recall_losses`` gives them

    Examples
    --------
    >>> recall_gaps([40, 20], [40, 0], [(0.0, (-0.07, 0.07)), (1.0, (0.74, 1.0))])
    (Gap(number=1, n=20, own=0.0, reference=1.0, least=0.74),)
    >>> recall_gaps([20], [13], [(0.37, (0.2, 0.5))])[0].reference
    1.0
    """
    gaps = [
        Gap(k, n[k], right[k] / n[k], round(right[k] + n[k] * loss[0]) / n[k], loss[1][0])
        for k, loss in enumerate(losses)
        if loss is not None and loss[1][0] > FAR
    ]
    return tuple(sorted(gaps, key=lambda gap: -gap.least))


def gaps_between(
    y: NDArray[Any], answers: NDArray[Any], reference: NDArray[Any], n_classes: int, group: NDArray[Any] | None = None
) -> tuple[Gap, ...]:
    """The classes that answers find far less often than a reference does; parameters as for ``recall_losses``."""
    truth = np.asarray(y, np.int64)
    n, right = (np.bincount(of, minlength=n_classes).tolist() for of in (truth, truth[truth == answers]))
    return recall_gaps(n, right, recall_losses(truth, answers, reference, n_classes, group))
