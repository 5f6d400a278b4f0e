"""The loop: one decision after the other. It owns the clocks, and joins sensors, session and link.

    device = Device(load_bundle("model.hcb"), bank, link, RuntimeConfig(budget=400.0))
    for record in device.run():
        print(json.dumps(record))

The session decides what happens next; nothing here knows what a node is.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..base.record import record
from ..bundle.load import Loaded
from ..bundle.manifest import Label
from ..errors import InputError
from ..link.wire import MAX_DEADLINE_MS, OK, Reply
from ..program.cost import to_micro, to_unit
from ..program.readings import Reading
from ..session.drive import drive
from ..session.session import Decision, NeedReply, Session

__all__ = ["Bank", "Cloud", "Device", "RuntimeConfig"]

Record = dict[str, Any]


class Bank(Protocol):
    """Where readings come from; ``sensors.SensorBank`` is one."""

    counters: Counter[str]

    @property
    def dead(self) -> frozenset[int]:
        """Sensors without a source."""

    def next_item(self) -> bool:
        """Move on to the next item; False at the end."""

    def read(self, sensors: Sequence[int]) -> Mapping[int, Sequence[Reading] | None]:
        """Readings of these sensors, None for one that failed."""


class Cloud(Protocol):
    """Who is asked when a case is hard; ``mqtt.Link`` is one."""

    counters: Counter[str]

    @property
    def is_connected(self) -> bool:
        """Whether a request can go out now."""

    def ask(self, readings: Sequence[Reading], deadline_s: float, may_resend: Callable[[], bool]) -> Reply | None:
        """The reply, or None."""

    def publish_status(self, fields: Mapping[str, Any]) -> bool:
        """Set the retained status."""

    def cancel(self) -> None:
        """End a wait for a reply."""


@record(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """Every knob of the loop. Units are in the names.

    Raises
    ------
    InputError
        A knob is out of range.
    """

    budget: float | None = None  # hard limit per decision, in the bundle's unit of cost; None: no limit
    deadline_ms: int = 2_000  # how long to wait for the cloud before the device answers alone
    interval_s: float = 0.0  # from the start of one decision to the start of the next; 0: as fast as sensors give
    count: int | None = None  # decisions before the run ends; None: until the items end
    item_size: int = 1  # where sensor costs depend on the item
    status_every_s: float = 60.0  # the retained status is not sent more often: it costs radio energy too

    def __post_init__(self) -> None:
        if self.budget is not None and not 0 <= self.budget <= 1e12:
            raise InputError(f"a budget of {self.budget} was given; 0 or more is expected")
        if not 1 <= self.deadline_ms <= MAX_DEADLINE_MS:
            raise InputError(f"a deadline of {self.deadline_ms} ms was given; 1 to {MAX_DEADLINE_MS} is expected")
        if not 0 <= self.interval_s <= 1e6 or not 0 <= self.status_every_s <= 1e6:
            raise InputError("an interval was given that is negative or longer than a million seconds")
        if self.count is not None and self.count < 1:
            raise InputError(f"a count of {self.count} was given; at least 1 is expected")


class Device:
    """Decides, again and again.

    Parameters
    ----------
    loaded : Loaded
        A bundle that has passed every check.
    bank : Bank
    link : Cloud or None
        None: nobody to ask; hard cases are answered here, marked degraded.
    config : RuntimeConfig
    now, monotonic : clocks, in seconds; wall time is only reported, never computed with
    wait : called with seconds to sleep; returns early once ``stop`` was called

    Attributes
    ----------
    counters : Counter
        ``asked`` = ``local`` + ``cloud`` + ``degraded``.
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
    ) -> None:
        self._loaded = loaded
        self._bank = bank
        self._link = link
        self._config = config or RuntimeConfig()
        self._now = now
        self._monotonic = monotonic
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._budget = None if self._config.budget is None else to_micro(self._config.budget)
        self._next_status = float("-inf")
        self.is_idle = False  # between decisions: waiting for time or for the next item
        self.counters: Counter[str] = Counter(asked=0, local=0, cloud=0, degraded=0)
        if not 1 <= self._config.item_size <= loaded.machine.program.max_item_size:
            most = loaded.machine.program.max_item_size
            raise InputError(f"an item size of {self._config.item_size} was given; this bundle takes 1 to {most}")

    def run(self) -> Iterator[Record]:
        """Decide on item after item, at the interval, until the items end, the count is reached or ``stop``."""
        made = 0
        begin = self._monotonic()
        while not self._stopping.is_set() and made != self._config.count:
            self.is_idle = True
            self._wait(max(0.0, begin - self._monotonic()))
            has_item = not self._stopping.is_set() and self._bank.next_item()
            self.is_idle = False
            if not has_item:
                return
            yield self.decide()
            made += 1
            begin = max(begin + self._config.interval_s, self._monotonic())  # a late one is not caught up with
            self._report()

    def decide(self) -> Record:
        """One decision on the bank's present item, as one JSON object: the keys are the README's."""
        began = self._monotonic()
        session = self._loaded.machine.session(
            budget=self._budget,
            item_size=self._config.item_size,
            dead=self._bank.dead,
            cloud=self._link is not None and self._link.is_connected,
        )
        self.counters["asked"] += 1
        decision = drive(session, self._bank.read, lambda need: self._ask(session, need))
        self.counters[decision.route] += 1
        return self._record(decision, self._monotonic() - began)

    def stop(self) -> None:
        """End the run after the decision at hand, which waits for the cloud no longer. Safe in a signal handler."""
        self._stopping.set()
        if self._link is not None:
            self._link.cancel()

    # ------------------------------------------------------------ parts

    def _ask(self, session: Session, need: NeedReply) -> tuple[int, int] | None:
        assert self._link is not None  # a session without a cloud never asks
        reply = self._link.ask(need.readings, self._config.deadline_ms / 1000, session.resend)
        return None if reply is None or reply.status != OK else (reply.result, reply.confidence)

    def _record(self, decision: Decision, took_s: float) -> Record:
        manifest = self._loaded.manifest
        label: Label = decision.result
        if manifest.classes:
            label = manifest.classes[int(decision.result)]
        return {
            "t": round(self._now(), 3),
            "label": label,
            "confidence": decision.confidence / 10_000,
            "route": decision.route,
            "cost": to_unit(decision.cost),
            "sensors": [manifest.sensors[s] for s in decision.sensors],
            "latency_ms": round(took_s * 1000, 3),
        }

    def _report(self) -> None:
        if self._link is None or self._monotonic() < self._next_status:
            return
        self._next_status = self._monotonic() + self._config.status_every_s
        self._link.publish_status(self.status())

    def status(self) -> dict[str, Any]:
        """What the retained status says beside the state: the bundle, and everything counted so far."""
        return {
            "bundle": self._loaded.bundle.sha256,
            **self.counters,
            "sensors": dict(self._bank.counters),
            "link": dict(self._link.counters) if self._link is not None else {},
        }
