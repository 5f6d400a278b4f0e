# SPDX-License-Identifier: Apache-2.0
"""The rows of a table as readings of sensors, which thousands of devices share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.program.readings import Reading

__all__ = ["Rows"]


@dataclass(slots=True)
class Rows:
    """The readings of each sensor in each row, made when they are first wanted; NaN is a missing reading."""

    rows: NDArray[np.floating]
    features: list[tuple[int, ...]]  # of each sensor
    _made: dict[int, list[list[Reading]]] = field(default_factory=dict)

    def __call__(self, item: int) -> list[list[Reading]]:
        readings = self._made.get(item)
        if readings is None:
            row = self.rows[item].tolist()
            readings = self._made[item] = [[None if (x := row[f]) != x else x for f in some] for some in self.features]
        return readings
