# SPDX-License-Identifier: Apache-2.0
"""DataFrames as arrow tables: pandas, polars, arrow itself, or anything that gives columns by name."""

from __future__ import annotations

from datetime import date
from numbers import Real
from typing import Any

import numpy as np

from hardcase_edge.errors import InputError, one_line

ABSENT = ("NAType", "NaTType")  # what pandas has in place of a missing value


def frame_names(frame: Any) -> list[Any] | None:
    """The names of a DataFrame's columns; None for something else, such as an array."""
    names = getattr(frame, "column_names", getattr(frame, "columns", None))
    return None if names is None else list(names)


def frame_columns(frame: Any) -> Any:
    """The columns of a DataFrame as an arrow table, without its index; names become text.

    Raises
    ------
    InputError
        A column mixes types, or two columns have one name.
    """
    import pyarrow as pa

    names = frame_names(frame) or []
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"the data has the column {twice!r} twice; rename one")
    arrays = []
    for name in names:
        column = frame[name]
        try:
            if hasattr(column, "to_arrow"):  # polars
                column = column.to_arrow()
            arrays.append(column if isinstance(column, pa.ChunkedArray) else pa.array(column, from_pandas=True))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(
                f"the column {name!r} is neither numbers nor text nor dates ({one_line(error)}); convert or drop it"
            ) from error
    return pa.table(arrays, names=[str(name) for name in names])


def labels_of(what: str, values: Any) -> list[Any]:
    """Labels as Python has them, as a table's: numbers and text, dates as text, None for missing ones.

    Parameters
    ----------
    what : names the values in the message
    values : (n,) a sequence, an array, or a column of a DataFrame

    Raises
    ------
    InputError
        A value is something else.
    """
    array = np.atleast_1d(values)
    if array.dtype.kind == "M":
        array = array.astype("datetime64[us]")  # of nanoseconds, numpy makes plain numbers
    return [_label(what, value) for value in array.tolist()]


def _label(what: str, value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value  # within an array of objects
    if plain is None or type(plain).__name__ in ABSENT:
        return None
    if isinstance(plain, date):
        return plain.isoformat()
    if isinstance(plain, bytes):
        return plain.decode(errors="backslashreplace")
    if not isinstance(plain, str | Real):
        raise InputError(f"{what} holds {str(plain)[:60]!r}, which is neither a number nor text; convert it")
    return plain.strip() if isinstance(plain, str) else plain
