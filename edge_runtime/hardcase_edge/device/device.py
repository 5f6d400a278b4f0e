# SPDX-License-Identifier: Apache-2.0
"""The device's loop: one decision after another, made by joining sensors, session and link.

    device = Device(load_bundle("model.hcb"), bank, link, RuntimeConfig(budget=400.0))
    for record in device.run():
        print(json.dumps(record))

The loop owns the clocks, the interval, the deadline and the counters. The session decides what happens next; nothing
here knows what a node is.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from ..base.record import record
from ..bundle.evidence import reported
from ..bundle.load import Loaded
from ..errors import InputError
from ..link.wire import MAX_DEADLINE_MS, OK, Reply
from ..program.cost import to_micro, to_unit
from ..program.readings import Reading
from ..session.drive import drive
from ..session.session import Decision, NeedReply, Session

__all__ = ["Bank", "Cloud", "Device", "RuntimeConfig"]

Record = dict[str, Any]


class Bank(Protocol):
    """Where readings come from; ``sensors.bank.SensorBank`` implements it."""

    counters: Counter[str]

    @property
    def pause_s(self) -> float:
        """Seconds that a loop without an interval waits, because a sensor is still busy with an earlier item."""

    @property
    def dead(self) -> frozenset[int]:
        """Sensors without a source."""

    def next_item(self) -> bool:
        """Move on to the next item; False if there are no more items."""

    def read(self, sensors: Sequence[int]) -> Mapping[int, Sequence[Reading] | None]:
        """The readings of each of these sensors; None for a sensor that failed."""


class Cloud(Protocol):
    """What the device asks about hard cases; ``link.link.Link`` implements it."""

    counters: Counter[str]

    @property
    def can_ask(self) -> bool:
        """Whether a request can go out now."""

    def ask(self, readings: Sequence[Reading], deadline_s: float, may_resend: Callable[[], bool]) -> Reply | None:
        """The HPC's reply; None if none came within ``deadline_s`` seconds."""

    def publish_facts(self, fields: Mapping[str, Any]) -> bool:
        """Replace the device's retained facts."""

    def cancel(self) -> None:
        """End a wait for a reply at once."""


@record(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """Every setting of the loop, with its unit in its name.

    Raises
    ------
    InputError
        A setting is out of range.
    """

    budget: float | None = None  # hard limit per decision, in the bundle's unit of cost; None: no limit
    deadline_ms: int = 2_000  # how long to wait for the cloud before the device answers alone
    interval_s: float = 0.0  # from the start of one decision to the start of the next; 0: as fast as sensors read
    count: int | None = None  # decisions before the run ends; None: run until the items end
    item_size: int = 1  # size of every item, for sensors whose cost depends on it
    strict_range: bool = False  # True: a sensor with a reading outside the range of training has failed
    facts_every_s: float = 60.0  # least time between two messages of facts, because each costs radio energy

    def __post_init__(self) -> None:
        if self.budget is not None and not 0 <= self.budget <= 1e12:
            raise InputError(f"the budget is {self.budget}; use 0 to 1e12")
        if not 1 <= self.deadline_ms <= MAX_DEADLINE_MS:
            raise InputError(f"the deadline is {self.deadline_ms} ms; use 1 to {MAX_DEADLINE_MS}")
        if not 0 <= self.interval_s <= 1e6 or not 0 <= self.facts_every_s <= 1e6:
            raise InputError("an interval is negative or longer than a million seconds; use 0 to 1e6 seconds")
        if self.count is not None and self.count < 1:
            raise InputError(f"the count is {self.count}; use 1 or more")


class Device:
    """Makes decisions, one per item, until the items end.

    Parameters
    ----------
    loaded : Loaded
        A bundle that has passed every check.
    bank : Bank
        The sensors.
    link : Cloud or None
        None: offline; hard cases are answered locally and marked degraded.
    config : RuntimeConfig
    now, monotonic : functions that give seconds
        ``now`` is wall time, which is only reported; all waiting goes by ``monotonic``.
    wait : function of seconds
        Sleeps that long, and returns early once ``stop`` has been called.
    facts : function that gives further facts

    Attributes
    ----------
    counters : Counter
        Decisions by reported route: ``asked`` = ``local`` + ``cloud`` + ``degraded``; and ``unwritten``, the records
        that the owner could not write, which only the owner counts.
    is_idle : bool
        True between two decisions, while the loop waits for time to pass or for the next item.

    Raises
    ------
    InputError
        The configured item size is outside what the bundle supports.
    """

    def __init__(
        self,
        loaded: Loaded,
        bank: Bank,
        link: Cloud | None = None,
        config: RuntimeConfig | None = None,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
        facts: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._loaded = loaded
        self._bank = bank
        self._link = link
        self._config = config or RuntimeConfig()
        self._now = now
        self._monotonic = monotonic
        self._is_stopping = False
        self._sleeping = threading.Lock()  # held until ``stop``; an Event's own lock would block a signal handler
        self._sleeping.acquire()
        self._wait = wait or self._sleep
        self._budget = None if self._config.budget is None else to_micro(self._config.budget)
        self._facts = facts
        self._next_facts = float("-inf")
        self.is_idle = False
        self.counters: Counter[str] = Counter(asked=0, local=0, cloud=0, degraded=0, unwritten=0)
        self._ranges = _ranges_by_sensor(loaded)
        if not 1 <= self._config.item_size <= loaded.machine.program.max_item_size:
            largest = loaded.machine.program.max_item_size
            raise InputError(f"the item size is {self._config.item_size}; this bundle supports 1 to {largest}")

    def run(self) -> Iterator[Record]:
        """Yield the record of one decision per item, at the interval.

        Ends when the items end, when the count is reached, or after ``stop``.
        """
        n_decisions = 0
        start_at = self._monotonic()
        while not self._is_stopping and n_decisions != self._config.count:
            self.is_idle = True
            self._wait(max(0.0, start_at - self._monotonic()))
            has_item = not self._is_stopping and self._bank.next_item()
            self.is_idle = False
            if not has_item:
                return
            yield self.decide()
            n_decisions += 1
            # missed intervals are skipped, not made up
            start_at = max(start_at + (self._config.interval_s or self._bank.pause_s), self._monotonic())
            self._report()

    def decide(self) -> Record:
        """The record of one decision on the bank's current item, ready for JSON; docs/devices.md lists its keys."""
        began = self._monotonic()
        session = self._loaded.machine.session(
            budget=self._budget,
            item_size=self._config.item_size,
            dead=self._bank.dead,
            cloud=self._link is not None and self._link.can_ask,
        )
        self.counters["asked"] += 1
        outside: list[str] = []
        decision = drive(session, lambda asked: self._read(asked, outside), lambda need: self._ask(session, need))
        record = self._record(decision, outside, self._monotonic() - began)
        self.counters[record["route"]] += 1
        return record

    def stop(self) -> None:
        """End the run after the current decision, which stops waiting for the cloud. Safe in a signal handler."""
        self._is_stopping = True
        with suppress(RuntimeError):  # it was called before
            self._sleeping.release()
        if self._link is not None:
            self._link.cancel()

    def report_soon(self) -> None:
        """Publish the facts after the current decision, however recent the last ones are."""
        self._next_facts = float("-inf")

    # ------------------------------------------------------------ parts

    def _sleep(self, seconds: float) -> None:
        if not self._is_stopping:
            self._sleeping.acquire(timeout=seconds)

    def _read(self, sensors: Sequence[int], outside: list[str]) -> Mapping[int, Sequence[Reading] | None]:
        """The bank's readings; adds the names of those outside their ranges, whose sensors fail if that is strict."""
        readings = self._bank.read(sensors)
        if not self._ranges:
            return readings
        names = {s: some for s in sensors if (some := self._outside(s, readings[s]))}
        if not names:
            return readings
        outside.extend([name for some in names.values() for name in some])
        return {**readings, **dict.fromkeys(names)} if self._config.strict_range else readings

    def _outside(self, sensor: int, values: Sequence[Reading] | None) -> list[str]:
        """The names of a sensor's features whose readings lie outside their ranges."""
        if values is None:
            return []
        places = self._ranges[sensor]
        return [name for k, name, low, high in places if (x := values[k]) is not None and not low <= x <= high]

    def _ask(self, session: Session, need: NeedReply) -> tuple[int, int] | None:
        assert self._link is not None  # a session without a cloud never asks
        reply = self._link.ask(need.readings, self._config.deadline_ms / 1000, session.resend)
        return None if reply is None or reply.status != OK else (reply.result, reply.confidence)

    def _record(self, decision: Decision, outside: list[str], elapsed_s: float) -> Record:
        manifest = self._loaded.manifest
        route, confidence = reported(decision, manifest.without)
        return {
            "t": round(self._now(), 3),
            **self._answer(decision),
            "confidence": None if confidence is None else confidence / 10_000,
            "route": route,
            "cost": to_unit(decision.cost),
            "sensors": [manifest.sensors[s] for s in decision.sensors],
            "failed": [manifest.sensors[s] for s in decision.failed],
            "out_of_range": outside,
            "latency_ms": round(elapsed_s * 1000, 3),
        }

    def _answer(self, decision: Decision) -> Record:
        """The class as ``label``, or ``value`` and ``interval``; of an older bundle of values the bare result."""
        manifest = self._loaded.manifest
        if manifest.value is not None:
            interval = manifest.value.interval_of(decision)
            return {"value": manifest.value.of(decision.result), "interval": interval and list(interval)}
        return {"label": manifest.classes[int(decision.result)] if manifest.classes else decision.result}

    def _report(self) -> None:
        if self._link is None or self._monotonic() < self._next_facts:
            return
        self._next_facts = self._monotonic() + self._config.facts_every_s
        self._link.publish_facts(self.facts())

    def facts(self) -> dict[str, Any]:
        """The retained facts: the bundle's SHA-256 and all counters of device, sensors and link."""
        return {
            "bundle": self._loaded.bundle.sha256,
            **self._facts(),
            **self.counters,
            "sensors": dict(self._bank.counters),
            "link": dict(self._link.counters) if self._link is not None else {},
        }


def _ranges_by_sensor(loaded: Loaded) -> list[list[tuple[int, str, float, float]]]:
    """For each sensor the position, name and range of its features that have one; empty if no feature has."""
    manifest, sensors = loaded.manifest, loaded.machine.program.sensors
    pairs = [[(k, f, manifest.ranges[f]) for k, f in enumerate(s.features)] for s in sensors] if manifest.ranges else []
    return [[(k, manifest.features[f], *pair) for k, f, pair in some if pair is not None] for some in pairs]
