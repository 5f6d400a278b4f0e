# SPDX-License-Identifier: Apache-2.0
"""Parity of a draft and its quantised program: rows that they decide alike, and the figures of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.batch.intervals import Interval, loss_interval, quality_interval
from hardcase_edge.batch.per_class import ClassCount, per_class
from hardcase_edge.batch.quality import ACCURACY, Quality
from hardcase_edge.program.definition import Program
from hardcase_edge.session.session import Decision

from .decide import Figures, decisions, figures

__all__ = ["BesideF0", "Parity", "parity"]


@dataclass(frozen=True, slots=True)
class BesideF0:
    """A program's answers beside f0's to the same rows, with 95 % intervals.

    ``quality_95``: interval of the program's quality. ``f0``: f0's quality. ``loss``: how much lower the program's is,
    and ``loss_95`` its interval. ``classes``: counts of the program's answers by class.
    """

    quality_95: Interval
    f0: float
    loss: float
    loss_95: Interval
    classes: tuple[ClassCount, ...]


@dataclass(frozen=True, slots=True)
class Parity:
    """Shares of rows that are decided alike, and figures before (draft) and after (program).

    ``agreement``: share with the same result, route, cost, sensors and trace. ``labels``: share with the same result.
    ``beside``: the program beside f0; None without f0's answers, and for a program of values.
    """

    agreement: float
    labels: float
    before: Figures
    after: Figures
    beside: BesideF0 | None = None

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
    quality: Quality = ACCURACY,
    group: NDArray[np.int64] | None = None,
) -> Parity:
    """Decide every row with both; arguments as for ``decide.decisions`` and ``decide.figures``.

    Parameters
    ----------
    group : (n,) number of each row's group, for intervals; None: each row stands for itself

    Raises
    ------
    InputError
        There are no rows.
    """
    before = decisions(draft, X, hpc, confidence)
    after = decisions(program, X, hpc, confidence)
    return Parity(
        agreement=_share(before, after, _everything),
        labels=_share(before, after, _label),
        before=figures(before, y, quality),
        after=figures(after, y, quality),
        beside=None if hpc is None or not program.n_classes else _beside(program, after, y, hpc, quality, group),
    )


def _beside(
    program: Program,
    after: Sequence[Decision],
    y: NDArray[np.int64],
    hpc: NDArray[np.int64],
    quality: Quality,
    group: NDArray[np.int64] | None,
) -> BesideF0:
    answers = np.array([d.result for d in after], dtype=np.int64)
    loss, interval = loss_interval(quality, y, answers, hpc, group)
    counts = tuple(per_class(y, answers, program.n_classes, group))
    return BesideF0(quality_interval(quality, y, answers, group), quality(y, hpc), loss, interval, counts)


def _everything(d: Decision) -> object:
    return d.result, d.route, d.cost, d.sensors, d.trace


def _label(d: Decision) -> object:
    return d.result


def _share(a: Sequence[Decision], b: Sequence[Decision], of: Callable[[Decision], object]) -> float:
    same = [of(x) == of(y) for x, y in zip(a, b, strict=True)]
    return sum(same) / len(same)
