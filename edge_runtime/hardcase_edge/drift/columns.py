# SPDX-License-Identifier: Apache-2.0
"""Readings of several decisions as columns, one for each feature: work on a whole column takes less time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .arithmetic import Readings
from .arithmetic import column as column_in_python

__all__ = ["Columns"]


class Columns(dict[int, list[float]]):
    """By feature its readings of several decisions, NaN for missing; a column is made when it is first asked for.

    Parameters
    ----------
    rows : the readings of each decision
    places : by feature its sensor, and its position among that sensor's readings
    column : ``arithmetic.column``, in Python or in C

    >>> Columns([{0: [1.5]}, {0: None}, {}, {0: [None]}], {7: (0, 0)})[7]
    [1.5, nan, nan, nan]
    """

    def __init__(
        self, rows: Sequence[Readings], places: Mapping[int, tuple[int, int]],
        column: Callable[[Sequence[Readings], int, int], list[float]] = column_in_python,
    ) -> None:  # fmt: skip
        super().__init__()
        self.rows, self._places, self._column = rows, places, column

    def __missing__(self, feature: int) -> list[float]:
        column = self[feature] = self._column(self.rows, *self._places[feature])
        return column

    def where_read(self, sensor: int) -> tuple[Columns, list[int]]:
        """The columns of those decisions for which this sensor gave readings, and which ones these are."""
        at = [k for k, row in enumerate(self.rows) if row.get(sensor) is not None]
        if len(at) == len(self.rows):
            return self, at
        return Columns([self.rows[k] for k in at], self._places, self._column), at
