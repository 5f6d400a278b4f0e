# SPDX-License-Identifier: Apache-2.0
"""The database of records: SQLite, flushed before anything is acknowledged, each (device, boot, sequence) once.

Records carry seconds since their boot, and wall time where the device knew it. ``rows`` gives all records of a boot the
wall time that follows from its latest record with both (docs/SPEC-wire-v1.md, section 5).
"""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from hardcase_edge.errors import InputError, one_line

from .incoming import Incoming

__all__ = ["COLUMNS", "Database"]

APPLICATION_ID = 0x68636472  # "hcdr"
SCHEMA = """\
CREATE TABLE records (
  device TEXT NOT NULL, boot INTEGER NOT NULL, sequence INTEGER NOT NULL, kind TEXT NOT NULL,
  received REAL NOT NULL, record TEXT NOT NULL, PRIMARY KEY (device, boot, sequence)
) WITHOUT ROWID"""
SETTINGS = ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "journal_size_limit=4194304")
COLUMNS = (
    "device", "boot", "sequence", "kind", "received", "time", "at", "bundle", "label", "value", "confidence", "route",
    "cost", "failed", "latency_ms",
)  # fmt: skip
MOST_SECONDS = 1e12  # a time beyond it is not one

T = TypeVar("T")


class Database:
    """A file of records.

    Parameters
    ----------
    path : the file; made if it does not exist
    max_bytes : of the file; when it is full, nothing more is taken

    Raises
    ------
    InputError
        By every method: the file cannot be used, is another program's, or is full.
    """

    def __init__(self, path: str | Path, max_bytes: int = 1 << 40) -> None:
        self._path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.0)
        except sqlite3.Error as error:
            raise InputError(f"the store {path} cannot be opened: {one_line(error)}; name another file") from error
        try:
            self._call(lambda: self._open(max_bytes))
        except BaseException:
            self._db.close()
            raise

    def _open(self, max_bytes: int) -> None:
        for setting in SETTINGS:
            self._db.execute(f"PRAGMA {setting}").fetchall()
        schema = [row[0] for row in self._db.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")]
        is_new = not schema and self._db.execute("PRAGMA application_id").fetchone()[0] == 0
        if is_new:
            self._db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            self._db.execute(SCHEMA)
        elif schema != [SCHEMA]:
            raise InputError(f"{self._path} is not a store of decisions; name another file")
        page = self._db.execute("PRAGMA page_size").fetchone()[0]
        self._db.execute(f"PRAGMA max_page_count={max(1, max_bytes // page)}").fetchone()

    def keep(self, records: Sequence[Incoming], received: float) -> int:
        """Have these records on the disk, each once; returns how many are new.

        Parameters
        ----------
        received : wall time in seconds
        """
        rows = [(r.device, r.boot, r.sequence, r.kind, received, r.text) for r in records]
        return self._call(lambda: self._keep(rows))

    def _keep(self, rows: list[tuple[Any, ...]]) -> int:
        db = self._db
        before = db.total_changes
        db.execute("BEGIN IMMEDIATE")
        try:
            db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)
            db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        return db.total_changes - before

    def rows(self) -> Iterator[dict[str, Any]]:
        """All records in order of device, boot and sequence, with ``COLUMNS`` as keys; absent values are None."""
        offsets = self._offsets()
        for row in self._db.execute("SELECT * FROM records ORDER BY device, boot, sequence"):
            fields = json.loads(row[5])
            at, offset = _seconds(fields.get("at")), offsets.get(row[:2])
            time = _seconds(fields.get("t")) if at is None or offset is None else round(at + offset, 3)
            head = dict(zip(COLUMNS[:5], row[:5], strict=True))
            yield {**head, "time": time, **{key: _plain(fields.get(key)) for key in COLUMNS[6:]}}

    def _offsets(self) -> dict[tuple[str, int], float]:
        """Of each boot of each device the wall time at which it began, by its latest record that knows the time."""
        offsets = {}
        for device, boot, text in self._db.execute(
            "SELECT device, boot, record FROM records ORDER BY device, boot, sequence"
        ):
            fields = json.loads(text)
            t, at = _seconds(fields.get("t")), _seconds(fields.get("at"))
            if t is not None and at is not None:
                offsets[device, boot] = t - at
        return offsets

    def export(self, file: IO[str]) -> int:
        """Write all records as CSV; returns their number."""
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        n = 0
        for row in self.rows():
            writer.writerow(row)
            n += 1
        return n

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _call(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except sqlite3.Error as error:
            raise InputError(
                f"the store {self._path} cannot be used: {one_line(error)}; make room or repair it"
            ) from error


def _seconds(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) <= MOST_SECONDS else None


def _plain(value: Any) -> Any:
    """A cell of CSV: lists and objects as JSON. A text that a spreadsheet would take for a formula gets a quote."""
    if isinstance(value, list | dict):
        value = json.dumps(value)
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
