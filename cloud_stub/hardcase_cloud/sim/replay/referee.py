# SPDX-License-Identifier: Apache-2.0
"""The referee: what must hold after every event, and the digest of all that happened.

    every decision is answered once, by its deadline, and none stays unanswered
    no record is counted twice, no two records have one name, and no durable record is lost
    no worker has acknowledged a request that it has not answered
    no roll-out says done while a device runs another bundle, and none outlives its timeouts

Each rule is checked at the event that could break it, which costs a look-up; sums are checked at the end.
"""

from __future__ import annotations

import hashlib
from collections import Counter

Key = tuple[str, int, int]  # device, boot, sequence


class BrokenRuleError(Exception):
    """Something happened that must not: the fleet has a fault, and a seed that shows it."""


class Referee:
    """Keeps the books of one replay.

    Attributes
    ----------
    counts : Counter
        Decisions by route, and what else is reported.
    """

    def __init__(self, deadline_ms: int) -> None:
        self.counts: Counter[str] = Counter()
        self._deadline_ms = deadline_ms
        self._digest = hashlib.sha256()
        self._open: dict[int, tuple[int, int]] = {}  # of each device the decision under way, and since when
        self._done: dict[int, int] = {}  # of each device the last decision that was made
        self._made: dict[Key, int] = {}  # checksum of each record
        self._durable: set[Key] = set()  # on a device's disk at one time
        self._kept: set[Key] = set()  # in the store

    # ------------------------------------------------------------ decisions

    def asked(self, now: int, device: int, number: int) -> None:
        """A device begins a decision."""
        if device in self._open or self._done.get(device, -1) != number - 1:
            raise BrokenRuleError(f"device {device} began decision {number} out of turn")
        self._open[device] = number, now

    def decided(self, now: int, device: int, number: int, route: str, result: object) -> None:
        """A device has decided."""
        open_number, since = self._open.pop(device, (-1, 0))
        if open_number != number:
            raise BrokenRuleError(f"device {device} answered decision {number}, which it was not making")
        if now - since > self._deadline_ms:
            raise BrokenRuleError(
                f"decision {number} of device {device} took {now - since} ms, {self._deadline_ms} are allowed"
            )
        self._done[device] = number
        self.counts[route] += 1
        self.note(b"%d %d %d %s %s" % (now, device, number, route.encode(), str(result).encode()))

    def interrupted(self, device: int) -> None:
        """The device has lost its memory; it makes the decision under way again."""
        if self._open.pop(device, None) is not None:
            self.counts["interrupted"] += 1

    # ------------------------------------------------------------ records

    def made(self, key: Key, payload: bytes) -> None:
        """A device has made a record."""
        checksum = hash(payload)
        if self._made.setdefault(key, checksum) != checksum:
            raise BrokenRuleError(f"two records have the name {key}")

    def durable(self, key: Key) -> None:
        """A record is on the device's disk."""
        self._durable.add(key)

    def kept(self, keys: list[Key], n_new: int) -> None:
        """The store has committed these records, of which so many were new to it."""
        before = len(self._kept)
        self._kept.update(keys)
        self.counts["records"] += n_new
        if unknown := [key for key in keys if key not in self._made]:
            raise BrokenRuleError(f"the store has the record {unknown[0]}, which no device has made")
        if n_new != len(self._kept) - before:
            raise BrokenRuleError(f"the store counted {n_new} new records of {len(self._kept) - before}")

    def forgotten(self, key: Key) -> None:
        """A device has removed a record from its outbox."""
        if key not in self._kept:
            raise BrokenRuleError(f"the record {key} was removed from its device, and the store does not have it")

    # ------------------------------------------------------------ the end

    def ended(self, n_devices: int, n_decisions: int, waiting: set[Key], retired: set[int]) -> None:
        """All is quiet; ``waiting``: what outboxes still hold, ``retired``: devices whose battery is empty."""
        unanswered = [k for k in range(n_devices) if k not in retired and self._done.get(k, -1) != n_decisions - 1]
        if unanswered:
            raise BrokenRuleError(f"{len(unanswered)} devices have unanswered decisions, for example {unanswered[0]}")
        if lost := self._durable - self._kept - waiting:
            raise BrokenRuleError(f"{len(lost)} durable records are lost, for example {min(lost)}")
        if self.counts["records"] != len(self._kept):
            raise BrokenRuleError(f"{self.counts['records']} records were counted, and {len(self._kept)} are there")

    def note(self, event: bytes) -> None:
        """An event for the digest."""
        self._digest.update(event)

    @property
    def digest(self) -> str:
        """SHA-256 of all events so far, in hex."""
        return self._digest.hexdigest()
