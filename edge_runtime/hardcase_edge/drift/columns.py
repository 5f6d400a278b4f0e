# SPDX-License-Identifier: Apache-2.0
"""Readings of several decisions as columns, one for each feature: work on a whole column takes less time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan

from ..program.readings import Reading

__all__ = ["Columns", "Readings"]

Readings = Mapping[int, Sequence[Reading] | None]  # of one decision, by sensor; None of a sensor that failed


class Columns(dict[int, list[float]]):
    """By feature its readings of several decisions, NaN for missing; a column is made when it is first asked for.

    Parameters
    ----------
    rows : the readings of each decision
    places : by feature its sensor, and its position among that sensor's readings

    >>> Columns([{0: [1.5]}, {0: None}, {}, {0: [None]}], {7: (0, 0)})[7]
    [1.5, nan, nan, nan]
    """

    def __init__(self, rows: Sequence[Readings], places: Mapping[int, tuple[int, int]]) -> None:
        super().__init__()
        self.rows, self._places = rows, places

    def __missing__(self, feature: int) -> list[float]:
        sensor, k = self._places[feature]
        column = self[feature] = [
            nan if (values := row.get(sensor)) is None or (x := values[k]) is None else x for row in self.rows
        ]
        return column

    def where_read(self, sensor: int) -> tuple[Columns, list[int]]:
        """The columns of those decisions for which this sensor gave readings, and which ones these are."""
        at = [k for k, row in enumerate(self.rows) if row.get(sensor) is not None]
        return (self if len(at) == len(self.rows) else Columns([self.rows[k] for k in at], self._places)), at
