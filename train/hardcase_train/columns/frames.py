# SPDX-License-Identifier: Apache-2.0
"""DataFrames as arrow tables: pandas, polars, arrow itself, or anything that gives columns by name."""

from __future__ import annotations

from typing import Any

from hardcase_edge.errors import InputError, one_line

__all__ = ["frame_columns", "frame_names"]


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
