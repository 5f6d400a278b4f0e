# SPDX-License-Identifier: Apache-2.0
"""The device's loop: one decision after another, made by joining the machine of a device to sensors and link.

    device = Device(load_bundle("model.hcb"), bank, link, RuntimeConfig(budget=400.0))
    for record in device.run():
        print(json.dumps(record))

The loop owns the clocks, the interval and the waits; ``machine.py`` decides.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ..bundle.load import Loaded
from .machine import Ask, Decider, Read, RuntimeConfig

if TYPE_CHECKING:
    from .parts import PartBank
    from .surroundings import Bank, Cloud, Companion, ItemBank

Record = dict[str, Any]


class Device:
    """Makes decisions, one per item, until the items end.

    Parameters
    ----------
    loaded : Loaded
        A bundle that has passed every check.
    bank : Bank
        The sensors; an ``ItemBank`` for items of their own sizes and budgets, and for decisions by the clock; a
        ``PartBank`` for a bundle that decides items of several parts.
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
        Decisions by reported route: ``asked`` = ``local`` + ``cloud`` + ``degraded``; of items of several parts also
        ``refused``, which are not among ``asked``; and ``unwritten``, the records that the owner could not write, which
        only the owner counts.
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
        self._facts = facts
        self._next_facts = float("-inf")
        self.is_idle = False
        self._decider = _decider_of(loaded, self._config, tell)
        self.counters: Counter[str] = self._decider.counters
        self.counters["unwritten"] = 0
        self._inner = self._decider.inner(
            monotonic, now, stream=lambda: getattr(bank, "stream", None), coin_seed=self._config.coin_seed
        )
        self._companions = companions
        self._stretch = 1.0  # of the interval after the last case

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
        bank, timed, monotonic = self._bank, self._timed, self._monotonic
        is_by_clock = timed is not None and self._loaded.manifest.clock
        parts, item = 0, None if timed is None else timed.item
        if self._loaded.joint is not None:
            item, parts = cast("PartBank", bank).item, cast("PartBank", bank).parts
        deciding = self._decider.decide(
            monotonic(), item, parts, bank.dead | timed.busy if timed is not None and is_by_clock else bank.dead,
            self._link is not None and self._link.can_ask, self._inner, self._companions, is_by_clock,
        )  # fmt: skip
        try:
            effect = next(deciding)
            while True:
                result = self._read(effect) if isinstance(effect, Read) else self._ask(effect)
                effect = deciding.send((monotonic(), result))
        except StopIteration as end:
            case = end.value
        record = self._decider.finish(case, monotonic(), self._now())
        self._stretch = case.stretch
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

    def _read(self, read: Read) -> Any:
        if read.part is not None:
            cast("PartBank", self._bank).select(read.part)
        if read.until is None or self._timed is None:
            return self._bank.read(read.sensors)
        return self._timed.read_in_turn(read.sensors, read.until)

    def _ask(self, ask: Ask) -> tuple[int, int] | None:
        assert self._link is not None  # a session without a cloud never asks
        reply = self._link.ask(ask.readings, ask.deadline_s, ask.may_resend)
        return None if reply is None else reply.answer

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


def _decider_of(loaded: Loaded, config: RuntimeConfig, tell: Callable[[str], object]) -> Decider:
    """What decides by this bundle: single cases, or items of several parts."""
    if loaded.joint is None:
        return Decider(loaded, config, tell)
    from .joint import JointDecider

    return JointDecider(loaded, config, tell)
