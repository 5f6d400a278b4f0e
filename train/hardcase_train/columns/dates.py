# SPDX-License-Identifier: Apache-2.0
"""Parts of dates as columns of numbers: month, day and weekday of a date, and the hour where there is one."""

from __future__ import annotations

from typing import Any

import numpy as np

from .kinds import numbers_in

__all__ = ["date_parts"]


def date_parts(column: Any) -> dict[str, np.ndarray]:
    """The parts of an arrow column of dates, timestamps or times of day, each (n,) float64 with NaN for missing.

    ``month`` (1 to 12), ``day`` (1 to 31), ``weekday`` (Monday is 0) and ``hour`` (0 to 23). A date has no hour, and a
    time of day has nothing else; the hour of timestamps that are all at midnight is left out.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: dict[str, np.ndarray] = {}
    if not pa.types.is_time(column.type):
        functions = (("month", pc.month), ("day", pc.day), ("weekday", pc.day_of_week))
        parts = {name: numbers_in(function(column)) for name, function in functions}
    if not pa.types.is_date(column.type):
        hours = numbers_in(pc.hour(column))
        if pa.types.is_time(column.type) or np.nan_to_num(hours).any():
            parts["hour"] = hours
    return parts
