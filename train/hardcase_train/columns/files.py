# SPDX-License-Identifier: Apache-2.0
"""Files of columns as arrow tables: .csv with commas, semicolons or tabs, .parquet, and Feather (.feather, .arrow).

A CSV file is UTF-8, or else Latin-1. ``hardcase_edge.base.cells`` defines its separator and its missing values, so that
a device that replays the file reads what training has read. A decimal comma needs another separator.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from hardcase_edge.base.cells import (
    FALSE_WORDS,
    LATIN_1,
    MISSING_WORDS,
    TRUE_WORDS,
    column_names,
    is_open,
    number_in,
    separator_of,
)
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.tables import NUMBER_BYTES, check_size

from .own_process import read_apart

ARROW_FORMATS = (".csv", ".parquet", ".feather", ".arrow")
SAMPLE_BYTES = 1024 * 1024  # of a CSV file, in which a decimal comma is looked for
DATE_FORMATS = tuple(
    day + time for day in ("%Y/%m/%d", "%d.%m.%Y") for time in ("", " %H:%M", " %H:%M:%S")
)  # and ISO 8601
DECIMAL_COMMA, DECIMAL_POINT = (
    re.compile(rb'[;\t"\n] *[+-]?\d*' + mark + rb'\d+(?:[eE][+-]?\d+)? *(?=[;\t"\r\n])') for mark in (rb",", rb"\.")
)


def read_columns(path: Path, data: bytes, as_text: Collection[str] = ()) -> tuple[Any, tuple[str, ...]]:
    """The arrow table in these bytes, and a line for each thing about them that its user should know.

    Parameters
    ----------
    path : of the file, whose suffix names its format, one of ``ARROW_FORMATS``
    as_text : columns of a CSV file that are text even if they look like numbers

    Raises
    ------
    InputError
        The table would take more memory than the limit, or the file is not text.
    pyarrow.ArrowException, ValueError
        The file is damaged, or has ended the process that read it.
    """
    if path.suffix == ".csv":
        return _read_csv(path, data, as_text)
    what = f"data file {path}"
    table = read_apart(path.suffix, what, data)
    check_size(what, _text_bytes(table))
    return table, ()


def _text_bytes(table: Any) -> int:
    """Bytes of all texts that are stored as codes, once each code is its text."""
    import pyarrow as pa
    import pyarrow.compute

    n_bytes = 0
    for column in table.columns:
        values = column.type.value_type if pa.types.is_dictionary(column.type) else None
        if values in (pa.string(), pa.large_string()):
            for chunk in column.chunks:
                lengths = pa.compute.binary_length(chunk.dictionary).take(chunk.indices)
                n_bytes += pa.compute.sum(lengths).as_py() or 0
    return n_bytes


def _read_csv(path: Path, data: bytes, as_text: Collection[str]) -> tuple[Any, tuple[str, ...]]:
    import pyarrow as pa
    import pyarrow.csv

    if b"\0" in data[:SAMPLE_BYTES]:
        raise InputError(f"data file {path} is not a text file in UTF-8 or Latin-1; save it as one of them")
    data, notes = _utf_8(path, data.removeprefix(b"\xef\xbb\xbf"))
    separator = separator_of(_header(data))
    n_cells = data.count(separator.encode()) + max(data.count(b"\n"), data.count(b"\r")) + 1
    check_size(f"data file {path}", n_cells * NUMBER_BYTES)
    if f"{separator} " in _header(data) and b'"' not in data:  # without these spaces arrow reads booleans and dates
        data = re.sub(f"{separator} +".encode(), separator.encode(), data)
    header = _header(data)
    cells = next(csv.reader([header], delimiter=separator), [])
    if cells and all(map(_is_number, cells)):
        notes = (*notes, f"{path.name} seems to have no header: its first row, which names the columns, is numbers")
    text_cells = [cell for cell, name in zip(cells, column_names(cells), strict=True) if name in as_text]
    table = pa.csv.read_csv(
        pa.BufferReader(data),
        pa.csv.ReadOptions(use_threads=False),  # a thread of its pool that starts as Python ends aborts the process
        parse_options=pa.csv.ParseOptions(delimiter=separator, newlines_in_values=b'"' in data),
        convert_options=pa.csv.ConvertOptions(
            strings_can_be_null=True,
            null_values=[space + word for word in MISSING_WORDS for space in ("", " ")],
            true_values=list(TRUE_WORDS),
            false_values=list(FALSE_WORDS),
            timestamp_parsers=[pa.csv.ISO8601, *DATE_FORMATS],
            decimal_point="," if separator != "," and _has_decimal_comma(data[:SAMPLE_BYTES]) else ".",
            column_types=dict.fromkeys(text_cells, pa.string()),
        ),
    )
    return table.rename_columns(column_names(table.column_names)), notes


def _utf_8(path: Path, data: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The text in UTF-8, and a note if it was not."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode(errors=LATIN_1).encode(), (f"{path.name} is not UTF-8 and was read as Latin-1",)
    return data, ()


def _header(data: bytes) -> str:
    """The first row that is not blank, without the end of its line."""
    header, is_within = "", False
    for raw in data[:SAMPLE_BYTES].splitlines(keepends=True):
        if header or raw.strip():
            line = raw.decode(errors="replace")
            header, is_within = header + line, is_open(line, is_within)
            if not is_within:
                break
    return header.rstrip("\r\n")


def _is_number(cell: str) -> bool:
    try:
        return number_in(cell, ";") is not None
    except ValueError:
        return False


def _has_decimal_comma(sample: bytes) -> bool:
    return len(DECIMAL_COMMA.findall(sample)) > len(DECIMAL_POINT.findall(sample))
