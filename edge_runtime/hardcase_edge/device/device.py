# SPDX-License-Identifier: Apache-2.0
"""The device's loop: one decision after another, made by joining sensors, session and link.

    device = Device(load_bundle("model.hcb"), bank, link, RuntimeConfig(budget=400.0))
    for record in device.run():
        print(json.dumps(record))

The loop owns the clocks, the interval, the deadline and the counters. The session decides what happens next; the loop
handles no nodes.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ..base.record import record
from ..bundle.load import Loaded
from ..errors import InputError
from ..link.wire import MAX_DEADLINE_MS, OK
from ..program.cost import evaluate_polynomial, to_micro, to_unit
from ..program.inner import COIN, MEMORY
from ..program.readings import Reading
from ..session.drive import drive
from ..session.session import DEGRADED, Decision, NeedReply, Session
from .by_clock import NS, ItemClock, RoundTrips
from .lines import LineMaker
from .surroundings import Case

if TYPE_CHECKING:
    from ..sensors.items import Item
    from .remembering import Remembering, Tossing
    from .surroundings import Bank, Cloud, Companion, ItemBank

__all__ = ["Device", "RuntimeConfig"]

Record = dict[str, Any]


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
    item_size: int = 1  # size of items that have none of their own, for sensors whose cost depends on it
    strict_range: bool = False  # True: a sensor with a reading outside the range of training has failed
    facts_every_s: float = 60.0  # least time between two messages of facts, because each costs radio energy
    coin_seed: int | None = None  # of a bundle that mixes two policies; None: from the system's randomness

    def __post_init__(self) -> None:
        if self.budget is not None and not 0 <= self.budget <= 1e12:
            raise InputError(f"the budget is {self.budget}; use 0 to 1e12")
        if not 1 <= self.deadline_ms <= MAX_DEADLINE_MS:
            raise InputError(f"the deadline is {self.deadline_ms} ms; use 1 to {MAX_DEADLINE_MS}")
        if not 0 <= self.interval_s <= 1e6 or not 0 <= self.facts_every_s <= 1e6:
            raise InputError("an interval is negative or longer than a million seconds; use 0 to 1e6 seconds")
        if self.count is not None and self.count < 1:
            raise InputError(f"the count is {self.count}; use 1 or more")
        if self.coin_seed is not None and not 0 <= self.coin_seed < 2**64:
            raise InputError(f"the coin's seed is {self.coin_seed}; use 0 to {2**64 - 1}")

    def check_size(self, loaded: Loaded) -> None:
        """Refuse a size of items that a bundle does not have.

        Raises
        ------
        InputError
            It has not.
        """
        largest = loaded.machine.program.max_item_size
        if not 1 <= self.item_size <= largest:
            raise InputError(f"the item size is {self.item_size}; this bundle supports 1 to {largest}")


class Device:
    """Makes decisions, one per item, until the items end.

    Parameters
    ----------
    loaded : Loaded
        A bundle that has passed every check.
    bank : Bank
        The sensors; an ``ItemBank`` for items of their own sizes and budgets, and for decisions by the clock.
    link : Cloud or None
        None: offline; hard cases are answered locally and marked degraded.
    config : RuntimeConfig
    now, monotonic : functions that give seconds
        ``now`` is wall time, which is only reported; all waiting goes by ``monotonic``.
    wait : function of seconds
        Sleeps that long, and returns early once ``stop`` has been called.
    facts : function that gives further facts
    tell : called with each line for the log
    companions : what goes along with each case, in this order, after the memory of a bundle for streams or its coin

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
        tell: Callable[[str], object] = lambda line: None,
        companions: Sequence[Companion] = (),
    ) -> None:
        self._loaded = loaded
        self._bank = bank
        self._timed = cast("ItemBank", bank) if hasattr(bank, "read_in_turn") else None
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
        self._tell = tell
        self._round_trips = RoundTrips()
        self._next_facts = float("-inf")
        self.is_idle = False
        self.counters: Counter[str] = Counter(asked=0, local=0, cloud=0, degraded=0, unwritten=0)
        self._ranges = _ranges_by_sensor(loaded)
        self._lines = LineMaker(loaded)
        memory = _memory_of(loaded, bank, self._config.interval_s, (monotonic, now))
        self._companions: list[Companion] = [*memory, *_coin_of(loaded, self._config.coin_seed), *companions]
        self._stretch = 1.0  # of the interval after the last case
        self._config.check_size(loaded)

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
            interval_s = self._config.interval_s * self._stretch
            start_at = max(start_at + (interval_s or self._bank.pause_s), self._monotonic())
            self._report()

    def decide(self) -> Record:
        """The record of one decision on the bank's current item, ready for JSON; ``record_keys`` lists its keys."""
        began = self._monotonic()
        item = None if self._timed is None else self._timed.item
        budget = self._budget if item is None or item.budget is None else item.budget
        size = self._config.item_size if item is None or item.size is None else item.size
        is_by_clock = self._loaded.manifest.clock and self._timed is not None
        can_ask = self._link is not None and self._link.can_ask and (item is None or not item.fault)
        clock = ItemClock(budget, self._monotonic) if is_by_clock else None
        is_slow = clock is not None and self._round_trips.expected_s > clock.until - began
        outside: list[str] = []
        case = Case(item, budget, can_ask, lambda asked: self._read(asked, outside, clock))
        for companion in self._companions:
            companion.begin(case)
        session = self._loaded.machine.session(
            budget=case.limit,
            item_size=size,
            dead=self._not_to_ask(item, clock),
            cloud=case.can_ask and not is_slow,
        )
        self.counters["asked"] += 1
        decision = case.decision = drive(
            session,
            case.read,
            lambda need: self._ask(session, need, clock, case),
            None if clock is None else clock.spent,
        )
        elapsed_s = self._monotonic() - began
        if is_slow and decision.route == DEGRADED:
            self._round_trips.forget_one()
        line = self._lines.line(decision, elapsed_s, outside, session)
        record = case.record = {"t": round(self._now(), 3), **line}
        if item is not None or clock is not None:
            record |= self._of_item(item, size, budget, decision)
        if clock is not None:
            record["late"] = budget is not None and elapsed_s > budget / NS
        for companion in self._companions:
            companion.end(case)
        self._stretch = case.stretch
        self.counters[case.record["route"]] += 1
        return case.record

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

    def _not_to_ask(self, item: Item | None, clock: ItemClock | None) -> frozenset[int]:
        if item is not None and item.fault:
            self._tell(f"{item.fault} (its sensors are not read)")
            return frozenset(range(len(self._loaded.manifest.sensors)))
        return self._bank.dead if clock is None or self._timed is None else self._bank.dead | self._timed.busy

    def _of_item(self, item: Item | None, size: int, budget: int | None, decision: Decision) -> Record:
        """The item's size, null if it cannot be used, and its budget; says so if that is too small for anything."""
        if budget is not None and not decision.sensors and not decision.failed:
            costs = self._loaded.machine.program.sensors
            least = min((evaluate_polynomial(s.cost, size) for s in costs), default=0)
            if least > budget:
                self._tell(f"a budget of {to_unit(budget):g} is less than any sensor costs; the answer is a guess")
        is_usable = item is None or not item.fault
        return {"item_size": size if is_usable else None, "budget": None if budget is None else to_unit(budget)}

    def _read(
        self, sensors: Sequence[int], outside: list[str], clock: ItemClock | None
    ) -> Mapping[int, Sequence[Reading] | None]:
        """The bank's readings; adds the names of those outside their ranges, whose sensors fail if that is strict."""
        if clock is None or self._timed is None:
            readings = self._bank.read(sensors)
        else:
            readings = self._timed.read_in_turn(sensors, clock.until)
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

    def _ask(self, session: Session, need: NeedReply, clock: ItemClock | None, case: Case) -> tuple[int, int] | None:
        assert self._link is not None  # a session without a cloud never asks
        wait_s, began = self._config.deadline_ms / 1000, self._monotonic()
        if clock is not None:
            wait_s = min(wait_s, clock.until - began)
            if wait_s * 1000 < 1 or wait_s < self._round_trips.expected_s:
                self._round_trips.forget_one()
                return None
        case.has_asked = True
        reply = self._link.ask(need.readings, wait_s, session.resend)
        self._round_trips.add(self._monotonic() - began)
        return None if reply is None or reply.status != OK else (reply.result, reply.confidence)

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


def _memory_of(
    loaded: Loaded, bank: Bank, interval_s: float, clocks: Sequence[Callable[[], float]]
) -> list[Remembering]:
    """The memory of a bundle for streams; none for any other, which then imports nothing of it."""
    manifest, program = loaded.manifest, loaded.machine.program
    if MEMORY not in manifest.sensors:
        return []
    from ..stream.layout import layout_of
    from .remembering import Remembering

    layout = layout_of(program, manifest.features, manifest.sensors)
    return [] if layout is None else [Remembering(program, layout, bank, interval_s, clocks)]


def _coin_of(loaded: Loaded, seed: int | None) -> list[Tossing]:
    """The coin of a bundle that mixes two policies; none for any other, which then imports nothing of it."""
    manifest = loaded.manifest
    if COIN not in manifest.sensors:
        return []
    from ..stream.coin import coin_of
    from .remembering import Tossing

    coin = coin_of(loaded.machine.program, manifest.features, manifest.sensors)
    return [] if coin is None else [Tossing(coin, seed)]


def _ranges_by_sensor(loaded: Loaded) -> list[list[tuple[int, str, float, float]]]:
    """For each sensor the position, name and range of its features that have one; empty if no feature has."""
    manifest, sensors = loaded.manifest, loaded.machine.program.sensors
    pairs = [[(k, f, manifest.ranges[f]) for k, f in enumerate(s.features)] for s in sensors] if manifest.ranges else []
    return [[(k, manifest.features[f], *pair) for k, f, pair in some if pair is not None] for some in pairs]
