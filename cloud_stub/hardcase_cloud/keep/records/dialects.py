# SPDX-License-Identifier: Apache-2.0
"""The two databases that a store may be, SQLite and PostgreSQL: connections, transactions, and rows in bulk.

Statements are written once, with ``?`` for values. What differs is here: how a connection is made, which error is
foreign, how many rows come in at once (``executemany`` or COPY), and how two processes wait for each other. A
connection that was lost is made again by the next call. SQLite flushes each commit (WAL, ``synchronous=FULL``), and so
does PostgreSQL by default.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from hardcase_edge.base.files import make_private
from hardcase_edge.errors import InputError, one_line

APPLICATION_ID = 0x68636472  # "hcdr"
BUSY_S = 5.0  # how long a writer waits for another one
SETTINGS = ("journal_mode=WAL", "synchronous=FULL", "journal_size_limit=4194304")
CONNECT_S = 5
STATEMENT_MS = 60_000
BAD_VALUES = (UnicodeError, OverflowError)  # half of a surrogate pair, or a number of more than 64 bits

Row = tuple[Any, ...]
T = TypeVar("T")


class UnstorableError(InputError):
    """A value of this call is one that no database takes, however often it is tried: drop it, and count it."""


def keep_storable(values: Sequence[T], keep: Callable[[Sequence[T]], object]) -> int:
    """Keep these values together, without those that no database takes; returns how many those are.

    Parameters
    ----------
    keep : keeps some of them, all or none; called again with halves where it raises ``UnstorableError``

    >>> def keep(words):
    ...     if "bad" in words:
    ...         raise UnstorableError("no")
    ...     print(*words)
    >>> keep_storable(["a", "b", "bad", "c"], keep)
    a b
    c
    1
    """
    try:
        keep(values)
    except UnstorableError:
        if not values:
            raise
        if len(values) == 1:
            return 1
        half = len(values) // 2
        return keep_storable(values[:half], keep) + keep_storable(values[half:], keep)
    return 0


class Dialect(Protocol):
    """One database."""

    name: str  # for people, without a password
    is_sqlite: bool

    def run(self, act: Callable[[], T], *, writes: bool = True) -> T:
        """Do this in one transaction, whole or not at all.

        Raises
        ------
        InputError
            The database cannot be used; ``UnstorableError`` if it can, but not keep one of these values.
        """

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """A statement within ``run``; its rows, if it gives any."""

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """A statement for each row, within ``run``."""

    def load(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Append rows to a table as fast as the database can, within ``run``."""

    def close(self) -> None:
        """Close the connection."""


def open_dialect(url: str | Path, max_bytes: int, *, makes: bool = True) -> Dialect:
    """The database that a URL names: ``sqlite:FILE``, ``postgresql://...``, or the path of an SQLite file.

    Parameters
    ----------
    makes : whether a file that is not there is made

    Raises
    ------
    InputError
        The URL is of neither, the file is another program's or not there, or psycopg is not installed.
    """
    text = str(url)
    scheme = "" if isinstance(url, Path) else text.partition(":")[0] if ":" in text else ""
    if scheme in ("postgresql", "postgres"):
        return Postgres(text)
    if scheme == "sqlite" or not scheme or "/" in scheme or Path(text).exists():
        path = text.removeprefix("sqlite:") if scheme == "sqlite" else text
        if not path:
            raise InputError("the store sqlite: names no file; name one as sqlite:FILE")
        if not makes and not Path(path).exists():
            raise InputError(f"there is no store {path}; name one that hardcase cloud store has made")
        return Sqlite(path, max_bytes)
    raise InputError(f"{redacted(text)} is not a store; name one as sqlite:FILE or postgresql://user@host/database")


def redacted(url: str) -> str:
    """The URL without a password."""
    try:
        parts = urlsplit(url)
        if not parts.password:
            return url.partition("?")[0]
        return f"{parts.scheme}://{parts.username or ''}@{parts.netloc.rpartition('@')[2]}{parts.path}"
    except ValueError:
        return url.partition(":")[0] + ":..."


class Sqlite:
    """A file."""

    is_sqlite = True

    def __init__(self, path: str, max_bytes: int) -> None:
        self.name = path
        if path != ":memory:":
            make_private(path)  # audits and cases have readings
        try:
            self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_S)
        except sqlite3.Error as error:
            raise InputError(f"the store {path} cannot be opened: {one_line(error)}; name another file") from error
        try:
            self._guarded(lambda: self._set_up(max_bytes))
        except BaseException:
            self.db.close()
            raise
        self._file = _file(path)

    def _set_up(self, max_bytes: int) -> None:
        n_objects = self.db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if self.db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            if n_objects:
                raise InputError(f"{self.name} is not a store of decisions; name another file")
            self.db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        for setting in SETTINGS:
            self.db.execute(f"PRAGMA {setting}").fetchall()
        page = self.db.execute("PRAGMA page_size").fetchone()[0]
        self.db.execute(f"PRAGMA max_page_count={max(1, max_bytes // page)}").fetchone()

    def run(self, act: Callable[[], T], *, writes: bool = True) -> T:
        if self._file != _file(self.name):  # SQLite would go on with a file that has no name any more
            raise InputError(f"the store {self.name} was moved or removed; put it back, or start again with another")

        def whole() -> T:
            self.db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")  # a reader waits for no writer
            try:
                value = act()
                self.db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self.db.execute("ROLLBACK")
                raise
            return value

        return self._guarded(whole)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self.db.execute(sql, values).fetchall()

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self.db.executemany(sql, rows)

    def load(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def close(self) -> None:
        self.db.close()

    def _guarded(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except (*BAD_VALUES, sqlite3.DataError) as error:
            raise _unstorable(self.name, error) from error
        except sqlite3.Error as error:
            raise InputError(
                f"the store {self.name} cannot be used: {one_line(error)}; make room or repair it"
            ) from error


def _unstorable(name: str, error: Exception) -> UnstorableError:
    return UnstorableError(f"the store {name} cannot keep a value: {one_line(error)}; this change is not kept")


def _file(path: str) -> tuple[int, int] | None:
    """Which file a path names; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Postgres:
    """A database of a PostgreSQL server; psycopg is imported here alone."""

    is_sqlite = False

    def __init__(self, url: str) -> None:
        self.name = redacted(url)
        try:
            import psycopg
        except ImportError as error:
            raise InputError(
                f"the store {self.name} needs psycopg; pip install 'hardcase-cloud[postgresql]'"
            ) from error
        self._psycopg, self._url = psycopg, url
        self._db: Any = None

    def run(self, act: Callable[[], T], *, writes: bool = True) -> T:
        try:
            if self._db is None or self._db.closed:
                options = f"-c statement_timeout={STATEMENT_MS} -c client_min_messages=warning"
                self._db = self._psycopg.connect(
                    self._url, connect_timeout=CONNECT_S, options=options, application_name="hardcase",
                    client_encoding="utf8",
                    keepalives_idle=10, keepalives_interval=5, keepalives_count=3, tcp_user_timeout=20_000,
                )  # fmt: skip
            with self._db.transaction():
                return act()
        except (*BAD_VALUES, self._psycopg.DataError) as error:
            raise _unstorable(self.name, error) from error
        except self._psycopg.Error as error:
            self.close()
            raise InputError(
                f"the store {self.name} cannot be used: {one_line(error)}; start the database or repair it"
            ) from error

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = self._db.execute(sql.replace("?", "%s"), values)
        return cursor.fetchall() if cursor.description else []

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._db.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s"), rows)

    def load(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._db.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def close(self) -> None:
        if self._db is not None:
            with suppress(self._psycopg.Error):
                self._db.close()
            self._db = None
