# SPDX-License-Identifier: Apache-2.0
"""The readings of an audit: what a request would carry, of the item that was decided without one.

The decision has bought some sensors; for an audit the others are read as well, and what they cost is told apart from
the decision's own cost. A sensor that fails, or is dead, leaves its readings missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..program.cost import Meter, to_unit
from ..program.readings import normalise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..program.definition import Program
    from ..program.readings import Reading
    from .device import Bank

__all__ = ["AuditedBank"]


class AuditedBank:
    """A bank that remembers what was read of the current item, for ``device.Device`` in place of the bank itself.

    Parameters
    ----------
    bank : Bank
    program : Program
    item_size : size of every item, for sensors whose cost depends on it
    """

    def __init__(self, bank: Bank, program: Program, item_size: int) -> None:
        self.counters = bank.counters
        self._bank, self._program = bank, program
        self._costs = Meter(program, item_size).sensor_costs
        self._read: dict[int, Sequence[Reading] | None] = {}

    @property
    def pause_s(self) -> float:
        """The bank's."""
        return self._bank.pause_s

    @property
    def dead(self) -> frozenset[int]:
        """The bank's."""
        return self._bank.dead

    def next_item(self) -> bool:
        """Move on to the next item, and forget what was read of the last one."""
        self._read.clear()
        return self._bank.next_item()

    def read(self, sensors: Sequence[int]) -> Mapping[int, Sequence[Reading] | None]:
        """The bank's readings."""
        readings = self._bank.read(sensors)
        self._read.update(readings)
        return readings

    def request_readings(self) -> tuple[list[Reading], float]:
        """The readings of a request on the current item, None for missing; and the cost of those read only now."""
        wanted = self._program.uplink.features
        places = {f: (s, k) for s, sensor in enumerate(self._program.sensors) for k, f in enumerate(sensor.features)}
        needed = {places[f][0] for f in wanted}
        rest = sorted(needed - set(self._read) - self.dead)
        if rest:
            self.read(rest)
        return [self._reading(f, *places[f]) for f in wanted], to_unit(sum(self._costs[s] for s in rest))

    def _reading(self, feature: int, sensor: int, k: int) -> Reading:
        values = self._read.get(sensor)
        return None if values is None else normalise([values[k]], [self._program.features[feature].dtype])[0]
