# SPDX-License-Identifier: Apache-2.0
"""A device's queue and the cloud's database in virtual time, with a network between them that loses and cuts.

Both files are real. A crash of the device abandons its queue and begins another on the same file; a crash of the store
forgets what it has not committed.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.incoming import Incoming, parse_record
from hardcase_edge.fleet.outbox.acks import pack_acks
from hardcase_edge.fleet.outbox.boot import next_boot
from hardcase_edge.fleet.outbox.queue import Queue, QueueConfig
from hardcase_edge.fleet.outbox.records import Made, Recorder
from hardcase_edge.link.wire import decision_topic
from hardcase_edge.settings.values import OLDEST_FIRST

__all__ = ["FakeChannel", "World", "make_config", "make_made", "seconds"]

DECISION = {"label": "low", "confidence": 0.9, "route": "local", "cost": 1.0, "failed": [], "latency_ms": 0.1}


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


class World:
    """One device and one store.

    Parameters
    ----------
    folder : of the files
    rng : decides all that is random
    config : of the queue
    loss : probability that a message is lost, each way
    cut : probability of each step that the connection breaks, that the device crashes, and that the store does
    """

    def __init__(self, folder: Path, rng: random.Random, config: QueueConfig, *, loss: float, cut: float) -> None:
        self.folder, self.rng, self.config, self.loss, self.cuts = folder, rng, config, loss, cut
        self.now = 0.0
        self.made: set[tuple[int, int]] = set()
        self.lost: set[tuple[int, int]] = set()  # not on the disk when the device crashed, and not acknowledged
        self.events: Counter[str] = Counter()
        self.database = Database(folder / "store.sqlite")
        self.is_connected, self.is_asking, self.connects = True, False, 0
        self._up: list[bytes] = []  # messages on their way to the store
        self._batch: list[Incoming] = []
        self._begin()

    def _begin(self) -> None:
        boot, is_written = next_boot(self.folder)
        assert is_written
        self.queue = Queue(self.folder / "outbox.sqlite", self.config, now=seconds, note=lambda line: None)
        self.recorder = Recorder("pi-1", "00" * 32, boot, now=seconds, monotonic=lambda: self.now)
        self.connects += 1
        self.queue.step(self, self.now)

    def publish_record(self, payload: bytes, *, is_audit: bool) -> bool:
        """The queue's channel: the message arrives at the store's next turn, or never."""
        if self.rng.random() >= self.loss:
            self._up.append(payload)
        return True

    def decide(self, n: int) -> None:
        """The device makes so many records."""
        for _ in range(n):
            made = self.recorder.decision(DECISION)
            assert made is not None
            self.made.add((made.boot, made.sequence))
            self.queue.add(made, self.now)

    def step(self, seconds: float) -> None:
        """Time passes, and something may break."""
        self.now += seconds
        self.queue.step(self, self.now)
        for kind, act in (("cuts", self.cut), ("crashes", self.crash), ("store crashes", self.crash_store)):
            if self.rng.random() < self.cuts:
                self.events[kind] += 1
                act()
        self.serve()

    def cut(self) -> None:
        """The connection breaks and comes back; what was on its way is lost."""
        self._up.clear()
        self.connects += 1

    def crash(self) -> None:
        """The device starts again with what is on its disk."""
        file = self.queue._file
        self.lost |= {key for key in self.queue._unwritten if key not in self._stored()}
        if file is not None:
            file.close()
        self.cut()
        self._begin()

    def crash_store(self) -> None:
        """The store forgets what it has taken and not committed."""
        self._batch.clear()

    def serve(self) -> None:
        """The store takes what has arrived, and now and then commits and acknowledges it."""
        self._batch += [parse_record(decision_topic("pi-1"), payload) for payload in self._up]
        self._up.clear()
        if self._batch and self.rng.random() < 0.5:
            self.events["kept"] += self.database.keep(self._batch, self.now)
            for payload in pack_acks((r.boot, r.sequence) for r in self._batch):
                if self.rng.random() >= self.loss:
                    self.queue.acknowledged(payload, self.now)
            self._batch.clear()

    def drain(self, most_s: float = 1e6) -> None:
        """Let time pass without trouble until nothing waits."""
        self.loss, self.cuts, end = 0.0, 0.0, self.now + most_s
        while self.queue.waiting:
            assert self.now < end, f"{self.queue.waiting} records still wait"
            self.step(0.5)
        self.queue.close(self.now)

    def _stored(self) -> set[tuple[int, int]]:
        return {(boot, s) for boot, s in self.database.dialect.db.execute("SELECT boot, sequence FROM records")}

    def wrong(self) -> int:
        """How many records are lost although they were on the disk, there twice, or were never made."""
        stored = self._stored()
        n_rows = self.database.dialect.db.execute("SELECT count(*) FROM records").fetchone()[0]
        missing = self.made - self.lost - stored
        return len(missing) + n_rows - len(stored) + len(stored - self.made)
