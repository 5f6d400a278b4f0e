# SPDX-License-Identifier: Apache-2.0
"""Audits: which local decisions are checked, and what becomes of each, without a clock and without I/O.

An audit is a local decision with the readings that a request would carry. One number is drawn for each local decision,
so that its readings are bought once: below ``keep`` it becomes a record for the store; below ``ask`` f0 is asked about
it, by one request for whose reply no decision waits. One such request is open at a time, and a reply that comes too
late does not count. The numbers are those of a secret seed (``draws.py``): an attacker who controls readings, or sees
which decisions were audited, cannot predict which one is next.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ...base.record import record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...program.readings import Reading

NONE: Mapping[str, str] = {}


@record(frozen=True, slots=True)
class Audit:
    """One audit."""

    decision: Mapping[str, Any]  # a line of ``Device.run``
    readings: Sequence[Reading]  # in the uplink's order, None for missing
    cost: float  # of what was read and sent for the audit alone, in the bundle's unit
    is_kept: bool  # whether it becomes a record
    draw: int = 0  # which of the local decisions of this start it is, from 1
    evidence: Mapping[str, str] = NONE  # by sensor, a picture or a sound in base64


class Audits:
    """The audits of one run.

    Parameters
    ----------
    keep, ask : shares of the local decisions, 0 to 1
    deadline_s : how long to wait for a reply
    draw : gives a number from 0 to 1, below 1

    Attributes
    ----------
    counters : Counter
        ``asked`` = ``agreed`` + ``differed`` + ``unanswered`` + the one that is open; and ``kept``.
    deadline_s : float
    share : float
        Of the local decisions, what becomes records.
    cost : float
        Of all audits, in the bundle's unit; no decision's cost has any of it.
    """

    def __init__(self, keep: float, ask: float, deadline_s: float, draw: Callable[[], float]) -> None:
        self.share = self._keep = keep
        self._ask, self._draw = ask, draw
        self.deadline_s = deadline_s
        self._open: Audit | None = None
        self._until = 0.0
        self.counters: Counter[str] = Counter(kept=0, asked=0, agreed=0, differed=0, unanswered=0)
        self.cost = 0.0

    def drawn(self, decision: Mapping[str, Any], *, can_ask: bool, asks_kept: bool = False) -> tuple[bool, bool]:
        """Whether to keep an audit of this decision, and whether to ask f0 about it.

        ``asks_kept``: whether f0 is to be asked about all that is kept.
        """
        if decision["route"] != "local":
            return False, False
        number, keep = self._draw(), self._keep
        if not (can_ask or asks_kept):
            return number < keep, False
        share = max(self._ask * can_ask, keep * asks_kept)
        return number < keep, self._open is None and number < share

    def made(self, audit: Audit, now: float, *, is_asked: bool) -> None:
        """The audit is made, and if it ``is_asked``, its request is under way."""
        self.cost += audit.cost
        self.counters["kept"] += audit.is_kept
        if is_asked:
            self.counters["asked"] += 1
            self._open, self._until = audit, now + self.deadline_s

    def answered(self, audit: Audit, agrees: bool) -> bool:
        """F0 has answered this audit; returns whether that was in time."""
        if audit is not self._open:
            return False
        self.counters["agreed" if agrees else "differed"] += 1
        self._open = None
        return True

    def waited(self, now: float) -> Audit | None:
        """The audit whose time is over by ``now``, if there is one."""
        audit = self._open
        if audit is None or now < self._until:
            return None
        self.counters["unanswered"] += 1
        self._open = None
        return audit

    @property
    def open(self) -> Audit | None:
        """The audit that waits for its reply."""
        return self._open
