# SPDX-License-Identifier: Apache-2.0
"""Which decisions go to the cloud, and the JSON of their records; ``record_keys`` has the keys.

A record has the number of the start (``boot``), a number within it (``sequence``) and seconds since it (``at``), which
need no clock. ``t`` is the wall time, or null while the clock shows a time that has passed already.
"""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any

from ...base.record import record
from ...record_keys import COPIED
from ...settings.values import CHANGES, parse_which

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...program.readings import Reading

MAX_RECORD_BYTES = 32_768  # a longer record is not made: brokers take at most 64 KB
ANSWER = ("label", "labels", "value", "failed")  # what a change is a change of


@record(frozen=True, slots=True)
class Made:
    """One record."""

    boot: int
    sequence: int  # from 1
    made: float | None  # wall time in seconds; None if the clock is not known
    is_audit: bool
    payload: bytes  # JSON


@record(frozen=True, slots=True)
class Row:
    """A record with its place in the outbox."""

    id: int  # rises from record to record
    record: Made

    @property
    def key(self) -> tuple[int, int]:
        """Boot and sequence."""
        return self.record.boot, self.record.sequence


class Rule:
    """Which decisions are published.

    Parameters
    ----------
    which : "all", "changes" or a percentage
    draw : gives a number from 0 to 1

    Raises
    ------
    InputError
        ``which`` is none of these.
    """

    def __init__(self, which: str, draw: Callable[[], float] = random.random) -> None:
        self._is_changes = which == CHANGES
        self._share = parse_which(which, "--publish")
        self._draw = draw
        self._last: Any = None

    def takes(self, decision: Mapping[str, Any]) -> bool:
        """Whether to publish this decision, the next one of the run."""
        if not self._is_changes:
            return self._share == 1 or self._draw() < self._share
        answer = [decision.get(key) for key in ANSWER]
        is_change = answer != self._last
        self._last = answer
        return bool(is_change)


class Recorder:
    """Makes the records of one start.

    Parameters
    ----------
    device : the device's id
    bundle : SHA-256 of the bundle that decides
    boot : number of this start
    floor : wall time in seconds that has passed for certain
    now, monotonic : functions that give seconds: wall time, and time that only rises
    """

    def __init__(
        self,
        device: str,
        bundle: str,
        boot: int,
        *,
        floor: float = 0.0,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._head = {"device": device, "bundle": bundle, "boot": boot}
        self.boot = boot
        self._floor = floor
        self._now, self._monotonic = now, monotonic
        self._began = monotonic()
        self._sequence = 0

    def decision(self, decision: Mapping[str, Any]) -> Made | None:
        """The record of a decision, which is a line of ``Device.run``; None if it would be too long."""
        return self._make({key: decision[key] for key in COPIED if key in decision}, is_audit=False)

    def audit(
        self, decision: Mapping[str, Any], readings: Sequence[Reading], cost: float,
        f0: Mapping[str, Any] | None = None, draw: int = 0, evidence: Mapping[str, str] | None = None,
    ) -> Made | None:  # fmt: skip
        """The record of an audit: the decision, the readings that a request would carry, what the audit cost alone.

        ``f0``: f0's answer, if it was asked and gave one. ``draw``: which of this start's local decisions it is.
        ``evidence``: by sensor, a picture or a sound in base64, which is left out where the record would be too long.
        """
        fields = {key: decision[key] for key in COPIED if key in decision}
        answer: dict[str, Any] = ({"f0": dict(f0)} if f0 else {}) | ({"draw": draw} if draw else {})
        fields |= {**answer, "audit_cost": cost, "readings": list(readings)}
        return self._make(fields, is_audit=True, more={"evidence": dict(evidence)} if evidence else None)

    def _make(self, fields: dict[str, Any], *, is_audit: bool, more: Mapping[str, Any] | None = None) -> Made | None:
        self._sequence += 1
        wall = self._now()
        wall_time = round(wall, 3) if wall >= self._floor else None
        at = round(self._monotonic() - self._began, 3)
        whole = {
            "kind": "audit" if is_audit else "decision",
            **self._head,
            "sequence": self._sequence,
            "at": at,
            "t": wall_time,
            **fields,
        }
        payload = json.dumps({**whole, **(more or {})}, separators=(",", ":")).encode()
        if more and len(payload) > MAX_RECORD_BYTES:
            payload = json.dumps(whole, separators=(",", ":")).encode()
        if len(payload) > MAX_RECORD_BYTES:
            return None
        return Made(self.boot, self._sequence, wall_time, is_audit, payload)
