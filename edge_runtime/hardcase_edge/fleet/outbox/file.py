# SPDX-License-Identifier: Apache-2.0
"""The outbox on the disk: an SQLite file whose commits are flushed before they count.

It runs with a write-ahead log and ``synchronous=FULL``, because NORMAL loses commits at a power cut. Every row has a
checksum, which SQLite's pages have not. A file that is damaged, or that holds another schema, is moved aside as
``outbox.bad``, in place of an older one, and a new file begins.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zlib import crc32

from ...base.files import make_private
from ...settings.values import SAMPLE
from .records import Made, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

T = TypeVar("T")

DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_SCHEMA}
SCHEMA = (
    "CREATE TABLE records (id INTEGER PRIMARY KEY, boot INTEGER NOT NULL, sequence INTEGER NOT NULL, made REAL, "
    "is_audit INTEGER NOT NULL, payload BLOB NOT NULL, crc INTEGER NOT NULL)"
)
SETTINGS = (
    "locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=256",
    "journal_size_limit=1048576", "cache_size=-512", "cell_size_check=ON", "trusted_schema=OFF",
)  # fmt: skip
COUNTED = "count(*), coalesce(sum(length(payload)), 0)"
MOST_ID = 2**62  # more than any device counts; SQLite's own end is 2**63
OVERHEAD = 64  # bytes that a row takes in the file besides its payload
PAYLOAD: Final = 5  # places in a row
CRC: Final = 6
ROOM = 0.95  # how full the outbox is when something had to go
_SEAL = struct.Struct("<qq?")


class DamagedError(Exception):
    """The file is damaged: move it aside and begin a new one."""


class RecordFile:
    """The rows in order of their ids.

    Parameters
    ----------
    path : where the file is or will be; its folder exists
    limit : bytes of records and their overhead, kept at most
    drop : ``OLDEST_FIRST`` or ``SAMPLE``: what goes when there are more

    Attributes
    ----------
    waiting, bytes : int
        Rows in the file, and what they take of the limit.
    last_id : int
        The highest id that a row has had.
    level : int
        With ``SAMPLE``, one in ``2**level`` records is kept, by its checksum, until the file is empty again.

    Raises
    ------
    DamagedError
        By every method: the file cannot be used any more.
    OSError
        By every method: it cannot be read or written now, such as on a full disk; nothing was changed.
    """

    def __init__(self, path: Path, limit: int, drop: str) -> None:
        self.level = 0
        self._limit, self._drop = limit, drop
        self.waiting = self.bytes = self.last_id = 0
        make_private(path)  # audits have readings
        self._db = self._call(lambda: sqlite3.connect(path, 0.0, isolation_level=None, check_same_thread=False))
        try:
            self._call(self._open)
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> None:
        db = self._db
        db.text_factory = bytes  # a damaged text may not be UTF-8, and no column is text
        for setting in SETTINGS:
            db.execute(f"PRAGMA {setting}").fetchall()
        schema = [row[0] for row in db.execute("SELECT sql FROM sqlite_schema")]
        if not schema:
            db.execute(SCHEMA)
        elif schema != [SCHEMA.encode()] or db.execute("PRAGMA quick_check(1)").fetchone() != (b"ok",):
            raise DamagedError("its content is not an outbox's, or is damaged")
        self.last_id = db.execute("SELECT coalesce(max(id), 0) FROM records").fetchone()[0]
        if self.last_id > MOST_ID:
            raise DamagedError("its ids are at their end")
        self._count()

    def _count(self) -> None:
        self.waiting, size = self._db.execute(f"SELECT {COUNTED} FROM records").fetchone()
        self.bytes = size + OVERHEAD * self.waiting

    def after(self, id_: int, n: int) -> tuple[list[Row], list[int]]:
        """The next rows behind this id, ``n`` at most with the damaged ones; and the ids of the damaged ones."""
        question = "SELECT * FROM records WHERE id > ? ORDER BY id LIMIT ?"
        found = [
            (values[0], _row(*values)) for values in self._call(lambda: self._db.execute(question, (id_, n)).fetchall())
        ]
        return [row for _, row in found if row is not None], [k for k, row in found if row is None]

    def commit(self, add: Sequence[Made], remove: Iterable[int], *, expire: float | None = None) -> int:
        """Add records, remove rows, and drop what is too old or too much, all in one flushed transaction.

        Parameters
        ----------
        add : they get the ids from ``last_id + 1`` on
        remove : ids
        expire : records that were made before this wall time go

        Returns the number of records that went unsent, for their age or for want of room.
        """
        before = self.waiting, self.bytes, self.level
        try:
            gone = self._call(lambda: self._commit(add, list(remove), expire))
        except BaseException:
            self.waiting, self.bytes, self.level = before
            with suppress(sqlite3.Error):  # it has been rolled back already, or the file is damaged
                self._db.execute("ROLLBACK")
            raise
        self.last_id += len(add)
        return gone

    def _commit(self, add: Sequence[Made], remove: list[int], expire: float | None) -> int:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        values = [_values(Row(id_, made)) for id_, made in enumerate(add, self.last_id + 1)]
        rows = [row for row in values if not row[CRC] & (1 << self.level) - 1]
        db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self.waiting += len(rows)
        self.bytes += sum(len(row[PAYLOAD]) + OVERHEAD for row in rows)
        for k in range(0, len(remove), 500):
            self._delete(f"id IN ({','.join(map(str, remove[k : k + 500]))})")
        gone = len(add) - len(rows)
        if expire is not None:
            gone += self._delete("made < ?", expire)
        if self.bytes > self._limit:
            gone += self._make_room()
        if not self.waiting:
            self.level = 0
        db.execute("COMMIT")
        return gone

    def _delete(self, where: str, *values: float) -> int:
        n, size = self._db.execute(f"SELECT {COUNTED} FROM records WHERE {where}", values).fetchone()
        if n:
            self._db.execute(f"DELETE FROM records WHERE {where}", values)
        self.waiting -= n
        self.bytes -= size + OVERHEAD * n
        return int(n)

    def _make_room(self) -> int:
        gone = 0
        if self._drop == SAMPLE:
            while self.bytes > self._limit and self.level < 32:
                self.level += 1
                gone += self._delete(f"crc & {(1 << self.level) - 1}")
        if self.bytes <= self._limit:
            return gone
        left, last = self.bytes - ROOM * self._limit, 0
        cursor = self._db.execute("SELECT id, length(payload) FROM records ORDER BY id")
        while left > 0:
            last, size = cursor.fetchone()
            left -= size + OVERHEAD
        cursor.close()
        return gone + self._delete("id <= ?", last)

    def close(self) -> None:
        """Close it; what is not committed is not kept."""
        self._db.close()

    def _call(self, act: Callable[[], T]) -> T:
        """The result, with SQLite's errors as those above."""
        try:
            return act()
        except UnicodeDecodeError as error:  # SQLite's word on a damaged schema quotes its bytes
            raise DamagedError("its schema is damaged") from error
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in DAMAGED or not isinstance(error, sqlite3.OperationalError):
                raise DamagedError(str(error)) from error
            raise OSError(0, str(error)) from error


def move_aside(path: Path) -> None:
    """Make place for a new file; the last one that was there is kept, for somebody to look at."""
    for ending in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        os.replace(path, path.with_suffix(".bad"))


def _values(row: Row) -> tuple[int, int, int, float | None, bool, bytes, int]:
    r = row.record
    return (row.id, r.boot, r.sequence, r.made, r.is_audit, r.payload, _seal(r.boot, r.sequence, r.is_audit, r.payload))


def _seal(boot: int, sequence: int, is_audit: bool, payload: bytes) -> int:
    return crc32(payload, crc32(_SEAL.pack(boot, sequence, is_audit)))


def _row(id_: int, boot: Any, sequence: Any, made: Any, is_audit: Any, payload: Any, crc: Any) -> Row | None:
    """The row with these values; None if one is damaged. SQLite keeps any type in any column."""
    are_whole = type(boot) is int and type(sequence) is int and is_audit in (0, 1) and isinstance(payload, bytes)
    if not are_whole or crc != _seal(boot, sequence, bool(is_audit), payload):
        return None
    return Row(id_, Made(boot, sequence, made if isinstance(made, float) else None, bool(is_audit), payload))
