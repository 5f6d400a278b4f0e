# SPDX-License-Identifier: Apache-2.0
"""Counts of answers by class, with recall and precision and their 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .intervals import wilson

__all__ = ["ClassCount", "per_class"]


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
        """Counts, recall and precision with their intervals, as plain values."""
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
