# SPDX-License-Identifier: Apache-2.0
"""Kinds of columns: numbers, booleans, text, dates and others; the numbers and labels in an arrow column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from hardcase_edge.bundle.manifest import MAX_CATEGORIES
from hardcase_edge.program.limits import MAX_NAME
from hardcase_edge.sensors.values import code_of

NUMBER, BOOLEAN, TEXT, DATE, OTHER = "number", "boolean", "text", "date", "other"
NUMERIC = (NUMBER, BOOLEAN)  # what is a number as it stands
MAX_TOTAL = 100_000  # characters of all categories; a bundle's header holds them, with a limit of 256 KiB


def plain(column: Any) -> Any:
    """An arrow column with the values of a dictionary in place of its indices, unless nothing reads such values."""
    from pyarrow import types

    if not types.is_dictionary(column.type) or kind_of_type(column.type) == OTHER:
        return column
    return column.cast(column.type.value_type)


def kind_of(column: Any) -> str:
    """The kind of an arrow column that ``plain`` has made; one of nothing but missing values holds numbers."""
    return kind_of_type(column.type)


def kind_of_type(type_: Any) -> str:
    """The kind of a column of this arrow type; of a dictionary that of its values."""
    from pyarrow import types

    if types.is_dictionary(type_):
        return kind_of_type(type_.value_type)
    kinds = {
        NUMBER: (types.is_integer, types.is_floating, types.is_decimal, types.is_null),
        BOOLEAN: (types.is_boolean,),
        TEXT: (types.is_string, types.is_large_string, types.is_string_view),
        DATE: (types.is_date, types.is_timestamp, types.is_time),
    }
    return next((kind for kind, tests in kinds.items() if any(test(type_) for test in tests)), OTHER)


def left_out(table: Any, schema: Any) -> Any:
    """An arrow table of a whole schema from one that lacks the columns of the kind ``OTHER``, which come back empty."""
    import pyarrow as pa

    empty, read = (
        pa.nulls(table.num_rows, pa.list_(pa.null())),
        dict(zip(table.column_names, table.columns, strict=True)),
    )
    columns = [empty if kind_of_type(field.type) == OTHER else read[field.name] for field in schema]
    return pa.table(columns, names=schema.names)


def numbers_in(column: Any) -> np.ndarray:
    """The values of a column of numbers or booleans, (n,) float64; NaN for missing and infinite ones."""
    import pyarrow as pa

    return finite(column.cast(pa.float64(), safe=False).to_numpy())


def finite(values: Any) -> np.ndarray:
    """Numbers of any shape as float64, NaN in place of infinities and what is masked, zero in place of minus zero."""
    numbers = np.ma.filled(np.asanyarray(values, dtype=np.float64), np.nan) + 0.0
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


def labels_in(column: Any, kind: str) -> Callable[[], list[Any]] | None:
    """A function that gives a column's values as labels, dates as text; None for a column that cannot be labels.

    Decimals become floats, as they do where they are features.
    """
    from pyarrow import types

    if kind == OTHER:
        return None
    if types.is_decimal(column.type):
        column = column.cast("float64", safe=False)
    if kind == DATE:
        return lambda: [None if v is None else v.isoformat() for v in column.to_pylist()]
    values: Callable[[], list[Any]] = column.to_pylist
    return values


# ---------------------------------------------------------------- categories
# Columns that are no numbers, as features: texts by their places in a sorted list, dates by their parts.
#
# Sorted by the texts themselves, a code says nothing about the target. A text that no training row has is missing, as
# it is on a device (``hardcase_edge.sensors.values``): if no training row had a gap there, its sensor has then
# failed.


def texts_in(values: Iterable[Any]) -> tuple[str, ...]:
    """The texts among values, without spaces around them, sorted.

    >>> texts_in(["b", " a", None, "b", ""])
    ('a', 'b')
    """
    return tuple(sorted({text for v in values if isinstance(v, str) and (text := v.strip())}))


def codes_in(values: Iterable[Any], texts: Sequence[str]) -> np.ndarray:
    """The code of each value, (n,) float64; NaN for a value that is neither among the texts nor a code.

    A device takes only texts; a table may have been coded already, as the rows of a build are.

    >>> codes_in(["b", "c", None, "a ", 1.0, 2], ("a", "b"))
    array([ 1., nan, nan,  0.,  1., nan])
    """
    codes = {text: k for k, text in enumerate(texts)}
    own = frozenset(range(len(texts)))
    numbers = (code_of(codes, v) if isinstance(v, str) else v if v in own else None for v in values)
    return np.array([np.nan if k is None else k for k in numbers], dtype=np.float64)


def why_no_category(texts: Sequence[str]) -> str:
    """Why these texts cannot be a category; empty if they can."""
    if len(texts) > MAX_CATEGORIES:
        return f"text with {len(texts)} different values, at most {MAX_CATEGORIES} can be coded"
    if max(map(len, texts), default=0) > MAX_NAME:
        return f"text of {max(map(len, texts))} characters, at most {MAX_NAME} can be coded"
    return ""


# Parts of dates as columns of numbers: month, day and weekday of a date, and the hour where there is one.


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
