# SPDX-License-Identifier: Apache-2.0
"""The records of one simulated device: made, sent as a real outbox sends them, and kept until the store has them.

The pace and the repetitions are the outbox's own (``hardcase_edge.fleet.outbox.drain``); only the disk is missing,
because a simulated device never loses its power.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import inf
from typing import Any, Protocol

from hardcase_edge.fleet.outbox.acks import unpack_acks
from hardcase_edge.fleet.outbox.drain import Drain, DrainConfig
from hardcase_edge.fleet.outbox.records import Made, Recorder, Rule


class Channel(Protocol):
    """The connection that is there."""

    @property
    def is_asking(self) -> bool:
        """Whether a request waits for its reply."""

    def publish_record(self, payload: bytes) -> None:
        """Send a record."""


class Backlog:
    """Takes every decision of a device.

    Parameters
    ----------
    recorder : makes its records
    rule : which decisions become one
    config : the drain's settings

    Attributes
    ----------
    n_made : int
        Records so far.
    n_stored : int
        Of these, those that the store has acknowledged.
    """

    __slots__ = ("_drain", "_new", "_recorder", "_rule", "n_made", "n_stored")

    def __init__(self, recorder: Recorder, rule: Rule, config: DrainConfig) -> None:
        self.n_made = self.n_stored = 0
        self._recorder, self._rule = recorder, rule
        self._drain = Drain(config)
        self._new: deque[Made] = deque()

    @property
    def waiting(self) -> int:
        """Records that the store has not acknowledged."""
        return self.n_made - self.n_stored

    def add(self, decision: Mapping[str, Any]) -> None:
        """A decision, as a line of a device's output."""
        if self._rule.takes(decision) and (record := self._recorder.decision(decision)) is not None:
            self.n_made += 1
            self._new.append(record)

    def connected(self, now: float) -> None:
        """There is a new connection; ``now`` is seconds that only rise, here and below."""
        self._drain.reconnected(now)

    def acknowledged(self, payload: bytes, now: float) -> None:
        """A message on the device's ack topic.

        Raises
        ------
        WireError
            It is no such message.
        """
        self.n_stored += len(self._drain.acknowledged(unpack_acks(payload), now))

    def send(self, channel: Channel, now: float) -> float:
        """Send what may go; returns when to call again at the latest, if nothing else happens."""
        is_asking = channel.is_asking
        while self._drain.may_send(now, is_asking=is_asking):
            record, may_be_new = self._drain.next(now)
            if record is None and may_be_new and self._new:
                record = self._new.popleft()
            if record is None:
                break
            channel.publish_record(record.payload)
            self._drain.sent(record, now)
        return self._drain.next_at(now, is_asking=is_asking) if self.waiting else inf
