# SPDX-License-Identifier: Apache-2.0
"""Quality measures of answers with one signature, and accuracy, by which fronts are built.

A measure is a loss, one number for each row, 0 for the best answer. Quality is 1 minus the weighted mean loss, so 1 is
best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hardcase_edge.batch.evaluate import Outcome

__all__ = ["ACCURACY", "Quality", "figures_of"]


@dataclass(frozen=True)
class Quality:
    """A measure of answers.

    name : printed in reports
    loss : function of labels y (n,) and answers (n,); returns the loss of each row, (n,) float64, at least 0
    """

    name: str
    loss: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def __call__(self, y: np.ndarray, answer: np.ndarray, weight: np.ndarray | None = None) -> float:
        """1 minus the weighted mean loss; ``weight`` (n,), ones unless given.

        Examples
        --------
        >>> ACCURACY(np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2]))
        0.75
        """
        return float(1.0 - np.average(self.loss(y, answer), weights=weight))


def _error(y: np.ndarray, answer: np.ndarray) -> np.ndarray:
    return np.asarray(np.asarray(y) != np.asarray(answer), dtype=np.float64)


ACCURACY = Quality("accuracy", _error)


def figures_of(outcome: Outcome, y: np.ndarray, weight: np.ndarray | None = None) -> dict[str, float]:
    """Weighted quality, mean cost (user's unit) and forward rate; ``weight`` (n,), ones unless given."""
    return {
        "quality": ACCURACY(y, outcome.label, weight),
        "cost": float(np.average(outcome.cost, weights=weight)),
        "forward_rate": float(np.average(outcome.forwarded, weights=weight)),
    }
