# SPDX-License-Identifier: Apache-2.0
"""What the outbox sends next, and when: a state machine without I/O.

A record is in flight from its transmission until the store acknowledges its boot and sequence; what the broker
acknowledges says nothing. At first, and whenever nothing was acknowledged for a while, one record alone is in flight,
sent again at pauses that double; the first acknowledgement opens the window. Nothing is sent while a request waits for
its reply, but for one record a second.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ...base.record import record
from .bucket import Bucket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .records import Made

Key = tuple[int, int]  # boot and sequence
LOOK_S = 0.05  # how often to look whether a request has its reply


@record(frozen=True, slots=True, kw_only=True)
class DrainConfig:
    """Every setting of the drain, with its unit in its name."""

    window: int = 12  # records in flight; the connection has 16 places, so that a request always finds one
    rate: float = 100.0  # records a second
    burst: int = 12  # records that may go at once after a pause
    again_s: float = 10.0  # after this time without an acknowledgement a record is sent again
    most_again_s: float = 300.0  # the longest pause between two transmissions to a store that is silent
    behind_request_s: float = 1.0  # while requests wait for replies, one record goes in this time


class Drain:
    """The records in flight.

    Attributes
    ----------
    flights : dict of (boot, sequence) to Made
        In the order in which they were first sent.
    """

    def __init__(self, config: DrainConfig) -> None:
        self.flights: dict[Key, Made] = {}
        self._config = config
        self._sent_at: dict[Key, float] = {}  # in order of time; -inf: on an earlier connection
        self._is_open = False
        self._heard_at = -inf
        self._pause_s = config.again_s
        self._probe_at = -inf  # when the only record may be sent, again
        self._bucket = Bucket(config.rate, config.burst)
        self._last_at = -inf

    def may_send(self, now: float, *, is_asking: bool) -> bool:
        """Whether a record may go out now; ``now`` is seconds that only rise."""
        if is_asking and now - self._last_at < self._config.behind_request_s:
            return False
        return self._bucket.has_one(now)

    def next(self, now: float) -> tuple[Made | None, bool]:
        """The record in flight to send again now, or None; and whether a new one may go in its place."""
        config = self._config
        if self._is_open and self.flights and now - max(self._heard_at, self._oldest_at()) >= config.again_s:
            self._close(now)
        if not self._is_open:
            if now < self._probe_at:
                return None, False
            return (self.flights[next(iter(self._sent_at))], False) if self.flights else (None, True)
        if self._sent_at:
            key, at = next(iter(self._sent_at.items()))
            if now - at >= config.again_s:
                return self.flights[key], False
        return None, len(self.flights) < config.window

    def sent(self, made: Made, now: float) -> None:
        """This record was sent."""
        key = made.boot, made.sequence
        self.flights[key] = made
        self._sent_at.pop(key, None)
        self._sent_at[key] = now  # last in order
        self._bucket.take()
        self._last_at = now
        if not self._is_open:
            self._probe_at = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, self._config.most_again_s)

    def acknowledged(self, ranges: Iterable[tuple[int, int, int]], now: float) -> list[Key]:
        """The records in flight among these (boot, first, last), which are stored and no longer in flight."""
        named = list(ranges)
        keys = [k for k in self.flights if any(boot == k[0] and first <= k[1] <= last for boot, first, last in named)]
        for key in keys:
            del self.flights[key], self._sent_at[key]
        if keys:
            self._is_open, self._heard_at, self._pause_s = True, now, self._config.again_s
        return keys

    def reconnected(self, now: float) -> None:
        """There is a new connection; what was sent on the old one may be lost."""
        self._sent_at = dict.fromkeys(self._sent_at, -inf)
        self._pause_s = self._config.again_s
        self._close(now)

    def next_at(self, now: float, *, is_asking: bool) -> float:
        """When something may go that no record, acknowledgement or connection brings about; seconds as of ``now``."""
        if is_asking:
            return now + LOOK_S
        if (token_at := self._bucket.next_at(now)) > now:
            return token_at
        if not self._is_open:
            return self._probe_at
        return self._oldest_at() + self._config.again_s if self.flights else inf

    def _oldest_at(self) -> float:
        return next(iter(self._sent_at.values()))

    def _close(self, now: float) -> None:
        self._is_open, self._probe_at = False, now
