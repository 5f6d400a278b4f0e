# SPDX-License-Identifier: Apache-2.0
"""Parity of a draft and its quantised program: rows that they decide alike, and the figures of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.batch.quality import ACCURACY, Quality
from hardcase_edge.program.definition import Program
from hardcase_edge.session.session import Decision

from .decide import Figures, decisions, figures

__all__ = ["Parity", "parity"]


@dataclass(frozen=True, slots=True)
class Parity:
    """Shares of rows that are decided alike, and figures before (draft) and after (program).

    ``agreement``: share with the same result, route, cost, sensors and trace. ``labels``: share with the same result.
    """

    agreement: float
    labels: float
    before: Figures
    after: Figures

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
) -> Parity:
    """Decide every row with both; arguments as for ``decide.decisions`` and ``decide.figures``.

    Raises
    ------
    InputError
        There are no rows.
    """
    before = decisions(draft, X, hpc, confidence)
    after = decisions(program, X, hpc, confidence)
    figures_before, figures_after = figures(before, y, quality), figures(after, y, quality)
    return Parity(_share(before, after, _everything), _share(before, after, _label), figures_before, figures_after)


def _everything(d: Decision) -> object:
    return d.result, d.route, d.cost, d.sensors, d.trace


def _label(d: Decision) -> object:
    return d.result


def _share(a: Sequence[Decision], b: Sequence[Decision], of: Callable[[Decision], object]) -> float:
    same = [of(x) == of(y) for x, y in zip(a, b, strict=True)]
    return sum(same) / len(same)
