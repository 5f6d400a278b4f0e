# SPDX-License-Identifier: Apache-2.0
"""Parquet and Feather files, read in a separate process, so that a file that ends the reader ends that process alone.

    python -P -m hardcase_train.columns.own_process FORMAT WHAT FOLDER

is that process: it reads the file from standard input, and writes the table to ``table.arrow`` in the folder, or what
was wrong to ``error.json``. Columns that nothing reads, such as lists, are not unpacked: they come back empty.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hardcase_edge.errors import InputError, one_line
from hardcase_edge.more.batch.tables import NUMBER_BYTES, check_size

from .feather import read_feather
from .kinds import OTHER, kind_of_type, left_out

TIMEOUT_S = 600.0  # a gigabyte takes seconds
ATTEMPTS = 2  # of a reader that a signal ends
MAX_SAID = 500  # characters of what was wrong


def read_apart(form: str, what: str, data: bytes) -> Any:
    """The arrow table in these bytes, as another process reads it; columns that nothing reads are empty.

    Parameters
    ----------
    form : ``.parquet``, ``.feather`` or ``.arrow``
    what : names the file in messages

    Raises
    ------
    InputError
        The table would take more memory than the limit.
    ValueError
        The file is damaged, or has ended its reader twice.
    """
    import pyarrow as pa

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        status = _run([form, what, name], data)
        if (folder / "error.json").is_file():
            is_ours, said = json.loads((folder / "error.json").read_text(encoding="utf-8"))
            raise InputError(said) if is_ours else ValueError(said)
        if status:
            how = f"signal {-status}" if status < 0 else f"status {status}"
            raise ValueError(f"it ended its reader ({how}); write it again with another program")
        table = folder / "table.arrow"
        # on Windows a file that is mapped cannot be removed
        source = pa.OSFile(str(table)) if os.name == "nt" else pa.memory_map(str(table))
        with source, pa.ipc.open_stream(source) as file:
            return file.read_all()


def _run(words: list[str], data: bytes) -> int:
    """The exit status of the separate process; what a signal ends runs again, as the machine may have sent it."""
    for _ in range(ATTEMPTS):
        command = [sys.executable, "-P", "-m", __spec__.name, *words]
        try:
            process = subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"its reader was stopped after {TIMEOUT_S:g} s") from error
        if process.returncode >= 0:
            break
    return process.returncode


# ---------------------------------------------------------------- the separate process


def main(form: str, what: str, folder: Path) -> int:
    """Do the job in the folder; returns the exit status, 2 if the file is refused."""
    import pyarrow as pa

    with contextlib.suppress(ImportError):
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    data = sys.stdin.buffer.read()
    try:
        table = read_here(form, what, data)
        with pa.OSFile(str(folder / "table.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as file:
            file.write_table(table)
    except Exception as error:  # pyarrow raises many kinds on a damaged file
        said = str(error) if isinstance(error, InputError) else one_line(error)[:MAX_SAID]
        text = json.dumps([isinstance(error, InputError), said])
        (folder / "error.json").write_text(text, encoding="utf-8")
        return 2
    return 0


def read_here(form: str, what: str, data: bytes) -> Any:
    """As ``read_apart``, in this process, which a file may end."""
    return _read_parquet(what, data) if form == ".parquet" else read_feather(what, data)


def _read_parquet(what: str, data: bytes) -> Any:
    """The columns, after the footer has said how much they take; texts stay as codes, which take no more than that."""
    import pyarrow as pa
    import pyarrow.parquet

    with pa.parquet.ParquetFile(pa.BufferReader(data)) as file:
        footer = file.metadata
        groups = [footer.row_group(k) for k in range(footer.num_row_groups)]
        chunks = [group.column(k) for group in groups for k in range(footer.num_columns)]
        check_size(what, sum(max(c.num_values * NUMBER_BYTES, c.total_uncompressed_size) for c in chunks))
        check_size(what, max(footer.num_rows, sum(g.num_rows for g in groups)) * footer.num_columns * NUMBER_BYTES)
        schema = file.schema_arrow
    texts = sorted({chunk.path_in_schema for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"})
    wanted = [field.name for field in schema if kind_of_type(field.type) != OTHER]
    with pa.parquet.ParquetFile(pa.BufferReader(data), read_dictionary=texts) as file:
        return file.read() if len(wanted) == len(schema) else left_out(file.read(columns=wanted), schema)


if __name__ == "__main__":
    # at once: in an ordinary end pyarrow's threads now and then abort the process, whose table is written by then
    os._exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
