# SPDX-License-Identifier: Apache-2.0
"""Readings of several decisions as columns, one for each feature: work on a whole column takes less time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .arithmetic import Readings, columns

if TYPE_CHECKING:
    from ...program.definition import Program


class Columns(dict[int, list[float]]):
    """By feature its readings of several decisions, NaN for missing; those of a sensor are made when first asked for.

    Parameters
    ----------
    rows : the readings of each decision
    program : Program

    >>> from hardcase_edge.program.definition import Feature, Program, Sensor, Uplink
    >>> program = Program((Feature("f32"),), (Sensor((0,), (1,)),), Uplink(), (), (), (), 2)
    >>> Columns([{0: [1.5]}, {0: None}, {}, {0: [None]}], program)[0]
    [1.5, nan, nan, nan]
    """

    def __init__(self, rows: Sequence[Readings], program: Program) -> None:
        super().__init__()
        self.rows, self._program = rows, program

    def __missing__(self, feature: int) -> list[float]:
        sensor = self._program.sensor_of[feature]
        features = self._program.sensors[sensor].features
        self.update(zip(features, columns(self.rows, sensor, len(features)), strict=True))
        return self[feature]

    def where_read(self, sensor: int) -> tuple[Columns, list[int]]:
        """The columns of those decisions for which this sensor gave readings, and which ones these are."""
        at = [k for k, row in enumerate(self.rows) if row.get(sensor) is not None]
        if len(at) == len(self.rows):
            return self, at
        return Columns([self.rows[k] for k in at], self._program), at
