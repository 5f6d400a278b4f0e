# SPDX-License-Identifier: Apache-2.0
"""All records of a store as a Parquet file: one row each, typed, written by pages; pyarrow is imported here alone."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from hardcase_edge.base.files import write_by
from hardcase_edge.errors import InputError
from hardcase_edge.record_keys import BOOLEAN, INTEGER, KEYS, NUMBER

from .database import Database, utf8

ROWS = 20_000  # of a row group
MOST = 2**63 - 1  # of a whole number in a column


def write_parquet(database: Database, path: str | Path) -> int:
    """Write all records, whole or not at all; returns their number.

    Columns are those of ``record_keys.COLUMNS``. A value of another type than its column is null; lists are JSON.

    Raises
    ------
    InputError
        The store or the file cannot be used, or pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(f"{path} needs pyarrow; pip install 'hardcase-cloud[parquet]', or export a .csv") from error
    types = {INTEGER: pa.int64(), NUMBER: pa.float64(), BOOLEAN: pa.bool_()}
    columns = {key.name: key.type for key in KEYS if key.is_column}
    schema = pa.schema([(name, types.get(type_, pa.string())) for name, type_ in columns.items()])
    n = 0

    def fill(file: BinaryIO) -> None:
        nonlocal n
        with pq.ParquetWriter(file, schema) as writer:
            rows = database.rows()
            while page := list(islice(rows, ROWS)):
                cells = {name: [_cell(type_, row[name]) for row in page] for name, type_ in columns.items()}
                writer.write_table(pa.table(cells, schema=schema))
                n += len(page)

    write_by(path, fill)
    return n


def _cell(type_: str, value: Any) -> Any:
    if type_ == BOOLEAN:
        return value if isinstance(value, bool) else None
    if type_ == INTEGER:
        return value if type(value) is int and abs(value) <= MOST else None
    if type_ == NUMBER:
        return float(value) if type(value) in (int, float) and abs(value) < 1e300 else None
    if value is None or isinstance(value, str):
        return None if value is None else utf8(value)
    return json.dumps(value)
