# SPDX-License-Identifier: Apache-2.0
"""What an import has made: a source model as parts of a program, and their comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.program.definition import Program

from ..sources.source import Source
from .agreement import Match, float_bound
from .leaves import Summed
from .program import Parts, plain
from .sensor_layout import Layout

EVERY, TIES, TESTED = "every row", "every row but ties", "tested"  # rows whose labels are known to agree


@dataclass(frozen=True, slots=True)
class Imported:
    """A source model as parts of a program, and their comparison.

    ``rows``: (n, n_features) on which they were compared. ``proof``: the rows whose labels are known to agree.
    """

    source: Source
    layout: Layout
    parts: Parts
    summed: Summed
    match: Match
    proof: str
    rows: NDArray[np.float64]

    @property
    def bound(self) -> float:
        """Bound on the difference of scores in the source's unit; it includes the source's own rounding."""
        last = 0.5 / 2.0**self.steps if self.steps is not None and self.parts.answer.shift else 0.0
        exact = float_bound(self.source, np.nan_to_num(self.rows))
        return float(self.summed.off.max()) / self.summed.scale + exact + last

    @property
    def steps(self) -> int | None:
        """Of values: a result is the value times 2^steps; None of classes."""
        if self.source.kind.has_classes:
            return None
        return math.frexp(self.summed.scale)[1] - 1 + self.parts.answer.shift

    def program(self) -> Program:
        """A program that acquires the model's sensors and answers."""
        return plain(self.layout.features, self.layout.sensors, self.parts, len(self.layout.classes), self.layout.costs)
