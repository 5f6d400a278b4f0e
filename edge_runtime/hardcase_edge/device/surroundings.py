# SPDX-License-Identifier: Apache-2.0
"""What a device has around it, as it sees them: sensors, with or without items, the cloud, and companions.

And what a run has around it: the parts that its settings ask for (``PARTS`` of ``running.checks`` names their modules).
Such a module has ``make(run)``, which gives a ``Part`` or None, ``check(config)``, which raises an ``InputError`` where
settings contradict each other, and ``ONE_PART``, why items of several parts do without a setting; each may be missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from ..base.record import record

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    from ..base.clock import Clock
    from ..bundle.load import Loaded
    from ..link.link import Link
    from ..link.wire import Reply
    from ..program.readings import Reading
    from ..sensors.items import Item
    from ..settings.config import RunConfig

NS = 10**9  # micro-units of a bundle by the clock in a second


class Bank(Protocol):
    """Where readings come from; ``sensors.bank.SensorBank`` implements it."""

    @property
    def counters(self) -> Counter[str]:
        """Failed reads by kind."""

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


class ItemBank(Bank, Protocol):
    """A bank that knows its items and reads by the clock; with another, declared costs are spent."""

    @property
    def busy(self) -> frozenset[int]:
        """Sensors that cannot be asked now, because a read that was given up has not returned."""

    @property
    def item(self) -> Item | None:
        """What is known of the current item; None if nothing gives items."""

    def read_in_turn(self, sensors: Sequence[int], until: float) -> Mapping[int, Sequence[Reading] | None]:
        """The readings of each of these sensors, one after the other, until this time of the monotonic clock."""


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


class Case:
    """One case on its way to its decision, for companions to see and to change.

    Attributes
    ----------
    item : Item or None
        What is known of it; None if nothing gives items.
    limit : int or None
        What its decision may cost, in micro-units.
    can_ask : bool
        Whether it may ask the cloud.
    began : float
        When, in seconds of the owner's clock.
    size, budget : int; int or None
        What the item brought, or the settings: ``limit`` before companions lowered it.
    is_by_clock : bool
        Whether the time that passes is what it costs.
    outside : list of str
        Names of features whose readings lie outside the ranges of training.
    decision, session, record : set before companions are told of the end; ``record`` is what the device yields
    fault : str
        Why its sensors are not read, or why an item of several parts is refused; empty if nothing is wrong with it.
    has_asked : bool
        Whether the cloud was asked.
    stretch : float
        By what the interval until the next case is multiplied, from 1.
    """

    __slots__ = (
        "along", "began", "budget", "can_ask", "decision", "fault", "has_asked", "is_by_clock", "item", "limit",
        "outside", "record", "session", "size", "stretch",
    )  # fmt: skip
    decision: Any  # a Decision, or a JointDecision
    session: Any
    record: dict[str, Any]

    def __init__(self, item: Item | None, limit: int | None, can_ask: bool) -> None:
        self.item, self.limit, self.can_ask = item, limit, can_ask
        self.has_asked, self.stretch = False, 1.0
        self.began, self.size, self.budget, self.is_by_clock = 0.0, 1, limit, False
        self.fault = ""
        self.outside: list[str] = []
        self.along: Sequence[Companion] = ()

    def accompany(self, companions: Sequence[Companion]) -> None:
        """It begins: tell these, who are told of its end, too."""
        self.along = companions
        for companion in companions:
            companion.begin(self)

    def spent(self, now: float) -> int:
        """Micro-units of time since it began."""
        return max(0, round((now - self.began) * NS))


@runtime_checkable
class Companion(Protocol):
    """What goes along with each case: the memory of a stream, the answer to a broken promise, running budgets."""

    def begin(self, case: Case) -> None:
        """Before its decision: may lower the limit, and forbid the cloud."""

    def end(self, case: Case) -> None:
        """After it, before anybody else has the record: may answer the case anew, and add to the record."""


class Inner(Companion, Protocol):
    """A companion that answers for an inner sensor of the program, which no device reads."""

    @property
    def sensor(self) -> int:
        """Its number."""

    def see(self, readings: Mapping[int, Sequence[Reading] | None]) -> None:
        """Readings of other sensors, as they come."""

    def read(self) -> Sequence[Reading]:
        """What it says now."""


class Part:
    """A part of a run; it leaves out the steps at which it does nothing. One that is a ``Companion`` sees each case.

    ``bank`` is for the device in place of its own, and ``promised`` the agreement with f0 that audits test; or None.
    """

    bank: ItemBank | None = None
    promised: float | None = None

    def begins(self) -> None:
        """The first decision is about to be made."""

    def decided(self, decision: dict[str, Any]) -> bool | None:
        """A decision is on its way to its reader; returns whether there is news for the status."""

    def facts(self) -> dict[str, Any]:
        """What the device's status says of it."""
        return {}

    def ended(self) -> None:
        """No decision follows, and every part may still be told something."""

    def stop(self) -> None:
        """Every part has ended: write and close what is left."""


_Part = TypeVar("_Part", bound=Part)


@record(frozen=True, slots=True)
class Surroundings:
    """What a run has when its parts are made, one after the other."""

    config: RunConfig
    loaded: Loaded
    bank: ItemBank
    link: Link | None  # not up yet; None: without a broker
    clock: Clock
    note: Callable[[str], None]  # for lines that may repeat
    on_news: Callable[[], None]  # has the main thread look for a newer bundle, from any thread
    store: Any  # as of ``fleet.store``, and the run of its slot; None: without one
    stored: Any
    parts: list[Part]  # those that are made

    @property
    def is_trial(self) -> bool:
        """Whether the bundle is on trial, and there is somebody to ask about it."""
        return self.link is not None and self.stored is not None and self.stored.is_trial

    def part(self, kind: type[_Part]) -> _Part | None:
        """The part of this class; None: nothing asks for it."""
        return next((part for part in self.parts if isinstance(part, kind)), None)
