# SPDX-License-Identifier: Apache-2.0
"""What a device has around it, as it sees them: sensors, with or without items, the cloud, and running budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    from ..link.wire import Reply
    from ..program.readings import Reading
    from ..sensors.items import Item

__all__ = ["Bank", "Cloud", "ItemBank", "Pace"]


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


class ItemBank(Bank, Protocol):
    """A bank that knows its items and reads by the clock; with another, declared costs are spent."""

    @property
    def busy(self) -> frozenset[int]:
        """Sensors that cannot be asked now, because a read that was given up has not returned."""

    @property
    def item(self) -> Item | None:
        """What is known of the current item; None if nothing gives items."""

    def read_in_turn(self, sensors: Sequence[int], until: float) -> Mapping[int, Sequence[Reading] | None]:
        """The same one after the other, until this time of the monotonic clock."""


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


class Pace(Protocol):
    """Running budgets; ``running.budgeting.Budgets`` implements it."""

    @property
    def stretch(self) -> float:
        """By what the interval is multiplied, from 1."""

    def begin(self, budget: int | None) -> tuple[int | None, bool]:
        """What the next decision may cost, in micro-units, and whether it may ask the cloud."""

    def end(self, route: str, cost: int, can_ask: bool) -> Mapping[str, Any]:
        """What the record says of a decision; ``cost`` in micro-units, ``can_ask``: whether it could ask the cloud."""
