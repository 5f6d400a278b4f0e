# SPDX-License-Identifier: Apache-2.0
"""Kinds of columns: numbers, booleans, text, dates and others; the numbers and labels in an arrow column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "BOOLEAN",
    "DATE",
    "NUMBER",
    "NUMERIC",
    "OTHER",
    "TEXT",
    "finite",
    "kind_of",
    "kind_of_type",
    "labels_in",
    "left_out",
    "numbers_in",
    "plain",
]

NUMBER, BOOLEAN, TEXT, DATE, OTHER = "number", "boolean", "text", "date", "other"
NUMERIC = (NUMBER, BOOLEAN)  # what is a number as it stands


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
    """Numbers of any shape as float64, NaN in place of infinities, and zero in place of minus zero."""
    numbers = np.asarray(values, dtype=np.float64) + 0.0
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
