# SPDX-License-Identifier: Apache-2.0
"""The readings of an audit: what a request would carry, of the item that was decided without one.

The decision has bought some sensors; for an audit the others are read as well, and what they cost is told apart from
the decision's own cost. A sensor that fails, or is dead, leaves its readings missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...program.cost import Meter, to_unit
from ...program.readings import normalise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...device.surroundings import ItemBank
    from ...program.definition import Program
    from ...program.readings import Reading
    from ...sensors.items import Item


class AuditedBank:
    """A bank that remembers what was read of the current item, for ``device.Device`` in place of the bank itself.

    Parameters
    ----------
    bank : ItemBank
    program : Program
    item_size : size of items that have none of their own, for sensors whose cost depends on it

    Attributes
    ----------
    without : frozenset of int
        Sensors that count as dead, besides the bank's own, because they are suspected.
    """

    def __init__(self, bank: ItemBank, program: Program, item_size: int) -> None:
        self.counters = bank.counters
        self._bank, self._program = bank, program
        self._item_size = item_size
        places = {f: (s, k) for s, sensor in enumerate(program.sensors) for k, f in enumerate(sensor.features)}
        self._places = [places[f] for f in program.uplink.features]
        self._dtypes = [program.features[f].dtype for f in program.uplink.features]
        self._needed = sorted({s for s, _ in self._places})
        self._read: dict[int, Sequence[Reading] | None] = {}
        self.without: frozenset[int] = frozenset()

    @property
    def pause_s(self) -> float:
        """The bank's."""
        return self._bank.pause_s

    @property
    def dead(self) -> frozenset[int]:
        """The bank's, and those to do without."""
        return self._bank.dead | self.without if self.without else self._bank.dead

    @property
    def busy(self) -> frozenset[int]:
        """The bank's."""
        return self._bank.busy

    @property
    def item(self) -> Item | None:
        """The bank's."""
        return self._bank.item

    def next_item(self) -> bool:
        """Move on to the next item, and forget what was read of the last one."""
        self._read = {}  # a new one: who watches readings keeps those of several items
        return self._bank.next_item()

    def read(self, sensors: Sequence[int]) -> Mapping[int, Sequence[Reading] | None]:
        """The bank's readings."""
        readings = self._bank.read(sensors)
        self._read.update(readings)
        return readings

    def read_in_turn(self, sensors: Sequence[int], until: float) -> Mapping[int, Sequence[Reading] | None]:
        """The bank's readings, one after the other."""
        readings = self._bank.read_in_turn(sensors, until)
        self._read.update(readings)
        return readings

    @property
    def readings(self) -> Mapping[int, Sequence[Reading] | None]:
        """What was read of the current item, by sensor."""
        return self._read

    def request_cost(self) -> float:
        """What the readings of a request on the current item would cost that were not read yet."""
        return to_unit(self._costs(self._rest()))

    def _rest(self) -> list[int]:
        read, dead = self._read, self.dead
        return [s for s in self._needed if s not in read and s not in dead]

    def request_readings(self) -> tuple[list[Reading], float]:
        """The readings of a request on the current item, None for missing; and the cost of those read only now."""
        rest = self._rest()
        if rest:
            self.read(rest)
        read = self._read
        readings = [None if (values := read.get(s)) is None else values[k] for s, k in self._places]
        return normalise(readings, self._dtypes), to_unit(self._costs(rest))

    @property
    def request_lacks(self) -> frozenset[int]:
        """The sensors that a request carries and that have given no reading for the current item."""
        return frozenset([s for s in self._needed if self._read.get(s) is None])

    def _costs(self, sensors: Sequence[int]) -> int:
        size = None if self.item is None else self.item.size
        return Meter(self._program, size or self._item_size).buy(sensors)
