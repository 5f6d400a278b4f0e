# SPDX-License-Identifier: Apache-2.0
"""Parity of a draft and its quantised program: rows that they decide alike, and the figures of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.batch.per_class import ClassCount, per_class
from hardcase_edge.program.definition import Program
from hardcase_edge.session.session import Decision

from .decide import Figures, decisions, figures

__all__ = ["Parity", "parity"]


@dataclass(frozen=True, slots=True)
class Parity:
    """Shares of rows that are decided alike, and figures before (draft) and after (program).

    ``agreement``: share with the same result, route, cost, sensors and trace. ``labels``: share with the same result.
    ``classes``: counts of the program's answers by class, empty for a program of values. ``worse``: rows that the
    program gets wrong and f0 right, ``better``: the reverse; without f0's answers f0 counts as always right.
    """

    agreement: float
    labels: float
    before: Figures
    after: Figures
    classes: tuple[ClassCount, ...]
    worse: int
    better: int

    @property
    def f0_accuracy(self) -> float:
        """The share of the same rows that f0 answers right."""
        return (sum(count.right for count in self.classes) + self.worse - self.better) / self.after.n

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "agreement": self.agreement,
            "labels": self.labels,
            "before": self.before.to_json(),
            "after": self.after.to_json(),
        }


def parity(
    draft: Program,
    program: Program,
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    hpc: NDArray[np.int64] | None,
    confidence: NDArray[np.int64] | None = None,
) -> Parity:
    """Decide every row with both; arguments as for ``decide.decisions`` and ``decide.figures``.

    Raises
    ------
    InputError
        There are no rows.
    """
    before = decisions(draft, X, hpc, confidence)
    after = decisions(program, X, hpc, confidence)
    worse, better = _beside(after, y, y if hpc is None else hpc)
    return Parity(
        agreement=_share(before, after, _everything),
        labels=_share(before, after, _label),
        before=figures(before, y),
        after=figures(after, y),
        classes=tuple(per_class(y, [int(d.result) for d in after], program.n_classes)) if program.n_classes else (),
        worse=worse,
        better=better,
    )


def _beside(after: Sequence[Decision], y: NDArray[np.int64], hpc: NDArray[np.int64]) -> tuple[int, int]:
    """Rows on which the program is wrong and f0 right, and the reverse."""
    right, f0_right = np.array([d.result for d in after]) == y, hpc == y
    return int((f0_right & ~right).sum()), int((right & ~f0_right).sum())


def _everything(d: Decision) -> object:
    return d.result, d.route, d.cost, d.sensors, d.trace


def _label(d: Decision) -> object:
    return d.result


def _share(a: Sequence[Decision], b: Sequence[Decision], of: Callable[[Decision], object]) -> float:
    same = [of(x) == of(y) for x, y in zip(a, b, strict=True)]
    return sum(same) / len(same)
