# SPDX-License-Identifier: Apache-2.0
"""A device's disk in memory, and what a power cut leaves of it; the store and the outbox run over it.

Files are written as ``base.files.write_whole`` does: a temporary file, flushed, renamed, the folder flushed. A rename
whose folder was not flushed may be undone by a power cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.fleet.outbox.queue import Queue, QueueConfig
from hardcase_edge.fleet.outbox.records import Made, Row
from hardcase_edge.fleet.release.content import Content
from hardcase_edge.fleet.store.boot import Boot
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.settings.values import OLDEST_FIRST

from .clockwork import Clockwork

T = TypeVar("T")
WRITE_BACK_MS = 5_000  # after which a file system writes what nobody flushes
OUTBOX = QueueConfig(limit=1 << 30, drop=OLDEST_FIRST)


class Disk:
    """Files by name, and the names that a power cut may take back.

    Parameters
    ----------
    clock : Clockwork
    """

    def __init__(self, clock: Clockwork) -> None:
        self.files: dict[str, bytes] = {}
        self._clock = clock
        self._before: dict[str, tuple[int, bytes | None]] = {}  # of renames that are not flushed: when, what was there

    def write_whole(self, name: str, data: bytes) -> None:
        """Write a file so that a power cut leaves the old or the new one."""
        self._before.setdefault(name, (self._clock.now, self.files.get(name)))
        self.files[name] = data
        self.flush_names()

    def flush_names(self) -> None:
        """Flush the folder: what was renamed stays so."""
        self._before.clear()

    def cut(self) -> None:
        """The power goes: each rename that was neither flushed nor written back by the system is undone."""
        for name, (at, data) in self._before.items():
            if self._clock.now - at > WRITE_BACK_MS:
                continue
            if data is None:
                self.files.pop(name, None)
            else:
                self.files[name] = data
        self._before.clear()


class DiskStore(Store):
    """The store over such a disk."""

    def __init__(self, disk: Disk) -> None:
        super().__init__("/nowhere")
        self._boot = Boot(self.folder, {})  # nothing outlives a process here
        self._disk = disk

    def running(self, name: str) -> str:
        """The SHA-256 of the bundle in a slot, in hex."""
        return self._digest(name)

    def check_space(self, n_bytes: int) -> None:
        """There is always room."""

    def make(self) -> None: ...

    def _locked(self, *, must: bool = True) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    def _seal(self, name: str, data: bytes) -> None:
        self._disk.write_whole(name, data)

    def _sealed(self, name: str, limit: int) -> bytes | None:
        return self._disk.files.get(name)

    def content_of(self, name: str) -> Content:
        """A bundle alone."""
        data = self._disk.files.get(f"{name}/bundle", b"")
        return Content(sha256(data).hex(), data)

    def _write_content(self, name: str, content: Content) -> None:
        self._disk.write_whole(f"{name}/bundle", content.bundle)


class Rows:
    """The outbox's file: as ``outbox.file.RecordFile``, in memory; a commit is flushed when it returns.

    Parameters
    ----------
    came, left : called with each record that is on the disk, and with each that is removed because it is stored
    """

    def __init__(self, came: Callable[[Made], None], left: Callable[[Made], None]) -> None:
        self.rows: dict[int, Made] = {}
        self.last_id = 0
        self._came, self._left = came, left

    @property
    def waiting(self) -> int:
        """How many records there are."""
        return len(self.rows)

    def after(self, id_: int, n: int) -> tuple[list[Row], list[int]]:
        """The next rows behind this id."""
        ids = [k for k in self.rows if k > id_][:n]
        return [Row(k, self.rows[k]) for k in ids], []

    def commit(self, add: Sequence[Made], remove: Iterable[int], *, expire: float | None = None) -> int:
        """Add records and remove rows; returns how many went unsent for their age."""
        for record in add:
            self.last_id += 1
            self.rows[self.last_id] = record
            self._came(record)
        for id_ in remove:
            if (gone := self.rows.pop(id_, None)) is not None:
                self._left(gone)
        old = [k for k, m in self.rows.items() if expire is not None and m.made is not None and m.made < expire]
        for id_ in old:
            del self.rows[id_]
        return len(old)

    def close(self) -> None:
        """Nothing is open."""


class DiskQueue(Queue):
    """The outbox over such rows."""

    def __init__(self, rows: Rows, now: Callable[[], float | None]) -> None:
        super().__init__(None, OUTBOX, now=now, note=_forget)  # type: ignore[arg-type]  # no file has a path here
        self._rows: Any = rows

    def _try(self, act: Callable[[Any], T]) -> T | None:
        self._file = self._rows
        return act(self._rows)


def _forget(line: str) -> None: ...
