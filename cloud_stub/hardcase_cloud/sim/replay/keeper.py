# SPDX-License-Identifier: Apache-2.0
"""The store of decisions in virtual time: the real database, in memory, whose process may be killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hardcase_edge.errors import WireError
from hardcase_edge.fleet.outbox.acks import pack_acks
from hardcase_edge.link.wire import audit_topic, decision_topic

from ...keep.records.database import Database
from ...keep.records.incoming import Incoming, parse_record
from .referee import Referee

if TYPE_CHECKING:
    from .clockwork import Clockwork

BATCH_MS = 100  # records wait for each other, and are committed together
WALL_S = 1_800_000_000.0  # wall time at the beginning


class Keeper:
    """Takes records, commits them, and acknowledges them.

    Parameters
    ----------
    clock, referee : of the replay
    send_ack : sends an acknowledgement to a device
    kept : called with each device and whether the record is an audit, for each record that was committed
    """

    make_database: Callable[[str], Database] = Database

    def __init__(
        self, clock: Clockwork, referee: Referee, send_ack: Callable[[int, bytes], None],
        kept: Callable[[Incoming], None],
    ) -> None:  # fmt: skip
        self._clock, self._referee, self._send_ack, self._note = clock, referee, send_ack, kept
        self._database = type(self).make_database("sqlite::memory:")
        self._batch: list[tuple[int, Incoming]] = []
        self._is_alive = True

    def receive(self, device: int, payload: bytes) -> None:
        """A record of a device."""
        if not self._is_alive:
            return
        topic = audit_topic if payload.startswith(b'{"kind":"audit"') else decision_topic
        try:
            record = parse_record(topic(f"d{device}"), payload)
        except WireError as error:
            self._referee.counts[error.reason] += 1
            return
        if not self._batch:
            self._clock.after(BATCH_MS, self._commit)
        self._batch.append((device, record))

    def _commit(self) -> None:
        batch, self._batch = self._batch, []
        if not batch or not self._is_alive:
            return
        records = [record for _, record in batch]
        n_new = self._database.keep(records, WALL_S + self._clock.seconds)
        self._referee.kept([(r.device, r.boot, r.sequence) for r in records], n_new)
        keys: dict[int, list[tuple[int, int]]] = {}
        for device, record in batch:
            keys.setdefault(device, []).append((record.boot, record.sequence))
            self._note(record)
        for device in keys:
            for payload in pack_acks(keys[device]):
                self._send_ack(device, payload)

    def count(self) -> int:
        """How many records the database has."""
        return int(self._database.read("SELECT count(*) FROM records", ())[0][0])

    def kill(self) -> None:
        """The process dies; what was not committed is gone."""
        self._is_alive = False
        self._batch.clear()

    def start(self) -> None:
        """It is started again."""
        self._is_alive = True

    def close(self) -> None:
        """Close the database."""
        self._database.close()
