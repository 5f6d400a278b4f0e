# SPDX-License-Identifier: Apache-2.0
"""Records and channels for tests of the outbox, and replays whose devices keep theirs in real files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from hardcase_cloud.sim.replay.device import Device
from hardcase_cloud.sim.replay.world import World
from hardcase_edge.fleet.outbox.file import RecordFile
from hardcase_edge.fleet.outbox.queue import QueueConfig
from hardcase_edge.fleet.outbox.records import Made
from hardcase_edge.settings.values import OLDEST_FIRST


def seconds() -> float:
    """A wall time at which every record of these tests was made."""
    return 2_000_000_000.0


def make_config(**more: object) -> QueueConfig:
    """Room for everything, unless said otherwise."""
    settings: dict[str, object] = {"limit": 1 << 30, "drop": OLDEST_FIRST, **more}
    return QueueConfig(**settings)  # type: ignore[arg-type]


def make_made(sequence: int, boot: int = 1, made: float | None = 2e9, payload: bytes = b"{}") -> Made:
    """A record of that number."""
    return Made(boot, sequence, made, False, payload)


class FakeChannel:
    """A connection that keeps what is sent; it takes everything, or nothing."""

    def __init__(self) -> None:
        self.is_connected, self.is_asking, self.takes, self.connects = True, False, True, 1
        self.sent: list[bytes] = []

    def publish_record(self, payload: bytes, *, is_audit: bool) -> bool:
        """Keep it."""
        if self.takes:
            self.sent.append(payload)
        return self.takes


class FileRows(RecordFile):
    """An outbox's file for a device of a replay, which hears of what is on the disk and of what has left it."""

    def __init__(self, path: Path, came: Callable[[Made], None], left: Callable[[Made], None]) -> None:
        self._path, self._came, self._left = path, came, left
        super().__init__(path, 1 << 30, OLDEST_FIRST)

    @property
    def rows(self) -> dict[int, Made]:
        """What the disk has, for a device that starts: the file is opened anew."""
        self.close()
        super().__init__(self._path, 1 << 30, OLDEST_FIRST)
        return {row.id: row.record for row in self.after(0, 10**6)[0]}

    def commit(self, add: Sequence[Made], remove: Iterable[int], *, expire: float | None = None) -> int:
        """As of the file."""
        gone = [row.record for row in self.after(0, 10**6)[0] if row.id in set(remove)]
        n_old = super().commit(add, remove, expire=expire)
        for record in add:
            self._came(record)
        for record in gone:
            self._left(record)
        return n_old


def on_files(folder: Path) -> type[World]:
    """Replays whose devices have their outbox in files of this folder."""
    opened: list[FileRows] = []

    class FileDevice(Device):
        """With a file of its own."""

        __slots__ = ()

        @staticmethod
        def make_rows(came: Callable[[Made], None], left: Callable[[Made], None]) -> FileRows:
            opened.append(FileRows(folder / f"{len(opened)}.sqlite", came, left))
            return opened[-1]

    class OnFiles(World):
        """All devices have files, which are closed at the end."""

        make_device = FileDevice

        def run(self) -> None:
            try:
                super().run()
            finally:
                for file in opened:
                    file.close()

    return OnFiles
