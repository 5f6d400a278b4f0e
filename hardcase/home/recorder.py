# SPDX-License-Identifier: Apache-2.0
"""The recorder's database of Home Assistant in SQLite: its entities, their attributes and their states.

It is opened read-only, also while Home Assistant writes to it, and nothing of it is copied. All of it is from outside:
sizes, numbers and time are bounded, only plain tables are read, and what is not as the schema says is not there.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import InputError

MAX_ENTITIES = 10_000  # of a database; large homes have some 3,000
MAX_STATES = 20_000_000  # that one command reads
MAX_SECONDS = 300.0  # that one command reads
MAX_CELL_BYTES = 1 << 20  # of one row; SQLite refuses a larger one before it is read
MAX_ATTRIBUTES = 16_384  # bytes of a state's attributes: Home Assistant stores no more
MAX_STATE = 255  # characters, as in the schema
STEPS = 100_000  # instructions of SQLite between two looks at the clock
ENTITY = re.compile(r"[a-z0-9_]{1,64}\.[a-z0-9_]{1,190}")
COLUMNS = {
    "states": {"metadata_id", "state", "last_updated_ts", "attributes_id"},
    "states_meta": {"metadata_id", "entity_id"},
    "state_attributes": {"attributes_id", "shared_attrs"},
}
UNKNOWN = {"", "unknown", "unavailable", "none", "nan", "inf", "-inf"}


class Recorder:
    """A recorder's database, open for reading; a context manager.

    ids : the row's id of each entity by the entity's name
    strange : how many entities have a name that Home Assistant does not allow; they are not in ``ids``

    Raises
    ------
    InputError
        The file is not such a database, is damaged or locked, or holds more than the bounds allow.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise InputError(f"{path} is not a file; Home Assistant keeps its history in home-assistant_v2.db")
        self._left, self._until = MAX_STATES, time.monotonic() + MAX_SECONDS
        with self._told():
            self._base = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
        try:
            self._guard()
            self._check_schema()
            self.ids, self.strange = self._entities()
        except BaseException:
            self._base.close()
            raise

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._base.close()

    def attributes(self, entity: str) -> dict[str, Any]:
        """The attributes of an entity's newest known state; empty if they are missing, too long or not an object."""
        rows = self._rows(
            "SELECT a.shared_attrs FROM states s JOIN state_attributes a ON s.attributes_id = a.attributes_id "
            "WHERE s.metadata_id = ? AND s.state NOT IN ('unknown', 'unavailable') "
            "ORDER BY s.last_updated_ts DESC LIMIT 1",
            self.ids[entity],
        )
        for (text,) in rows:
            if isinstance(text, str) and len(text) <= MAX_ATTRIBUTES:
                try:
                    values = json.loads(text)
                except (ValueError, RecursionError):
                    continue
                if isinstance(values, dict):
                    return values
        return {}

    def newest(self) -> float:
        """When the database was written last, in seconds of Unix time, but not after now; 0 for an empty one."""
        ((newest,),) = self._rows("SELECT max(last_updated_ts) FROM states WHERE last_updated_ts <= ?", time.time())
        return float(newest) if isinstance(newest, int | float) else 0.0

    def states(self, entity: str, start: float, end: float) -> Iterator[tuple[float, str | None]]:
        """An entity's states in their order: the one that held at ``start``, and all until ``end``.

        A state is a time in seconds of Unix time and a text on one line, or None where it was unknown.
        """
        ask = "SELECT last_updated_ts, state FROM states WHERE metadata_id = ? AND last_updated_ts "
        yield from self._known(f"{ask} <= ? ORDER BY last_updated_ts DESC LIMIT 1", self.ids[entity], start)
        yield from self._known(f"{ask} > ? AND last_updated_ts <= ? ORDER BY 1", self.ids[entity], start, end)

    def _known(self, ask: str, *values: object) -> Iterator[tuple[float, str | None]]:
        for when, state in self._rows(ask, *values):
            self._left -= 1
            if self._left < 0:
                raise InputError(f"{self.path}: more than {MAX_STATES:,} states to read; name the sensors by --entity")
            if isinstance(when, int | float) and math.isfinite(when):
                text = terminal(state[:MAX_STATE].strip()) if isinstance(state, str) else ""
                yield float(when), None if text.lower() in UNKNOWN else text

    def _rows(self, ask: str, *values: object) -> Iterator[tuple[Any, ...]]:
        with self._told(), closing(self._base.execute(ask, values)) as rows:
            yield from rows

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's errors, as one line that says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            if "interrupted" in str(error):
                reason = f"reading took more than {MAX_SECONDS:.0f} s; name the sensors by --entity"
            elif "locked" in str(error):
                reason = "another program holds it locked; try again"
            elif "unable to open" in str(error) or "readonly" in str(error):
                reason = "it cannot be opened; you must be allowed to read it, its -wal and -shm files and their folder"
            else:
                reason = f"it is damaged or not a database of SQLite ({error}); take another copy of it"
            raise InputError(f"{self.path} cannot be read: {reason}") from error

    def _guard(self) -> None:
        """Bounds on what a database can make SQLite do."""
        base = self._base
        base.text_factory = lambda raw: raw.decode(errors="replace")
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL_BYTES)
        base.set_progress_handler(lambda: time.monotonic() > self._until, STEPS)
        for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
            list(self._rows(f"PRAGMA {pragma}"))

    def _check_schema(self) -> None:
        """Refuse what is not today's schema: views and virtual tables, too, which run what their maker wrote."""
        made = {
            name: text
            for name, text in self._rows("SELECT name, sql FROM sqlite_master WHERE type = 'table' LIMIT 1000")
            if isinstance(text, str) and text.upper().startswith("CREATE TABLE")
        }
        columns = {table: {row[1] for row in self._rows(f"PRAGMA table_info({table})")} for table in COLUMNS}
        if "states" in made and "entity_id" in columns["states"] and "states_meta" not in made:
            raise InputError(
                f"{self.path} has the schema of Home Assistant before 2023.4; a start with a later version renews it"
            )
        for table, wanted in COLUMNS.items():
            lacking = sorted(wanted - columns[table])
            if table not in made or lacking:
                what = f"table {table} lacks {', '.join(lacking)}" if table in made else f"it has no table {table}"
                raise InputError(
                    f"{self.path} is not a recorder's database: {what}; Home Assistant keeps its history in "
                    "home-assistant_v2.db"
                )

    def _entities(self) -> tuple[dict[str, int], int]:
        rows = list(self._rows("SELECT metadata_id, entity_id FROM states_meta LIMIT ?", MAX_ENTITIES + 1))
        if len(rows) > MAX_ENTITIES:
            raise InputError(f"{self.path} has more than {MAX_ENTITIES:,} entities; purge some in Home Assistant")
        named = {e: k for k, e in rows if isinstance(k, int) and isinstance(e, str) and ENTITY.fullmatch(e)}
        return dict(sorted(named.items())), len(rows) - len(named)
