"""The one cost meter. Everything that claims a cost, in training, reports and on the device, asks it.

    cost = sum of the sensors bought (each once, gate and HPC included)
         + per request sent: radio per request + radio per byte * bytes + cloud

All amounts are integers in micro-units (``program.MICRO`` to a unit).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from .definition import MICRO, Sensor, Uplink

__all__ = ["Meter", "evaluate_polynomial", "to_micro", "to_unit"]


def evaluate_polynomial(coefficients: tuple[int, ...], size: int) -> int:
    """Value of ``c[0] + c[1] size + c[2] size^2 ...`` by Horner's rule, exactly."""
    value = 0
    for c in reversed(coefficients):
        value = value * size + c
    return value


def to_micro(amount: float) -> int:
    """User's unit to micro-units, to the nearest."""
    return round(float(amount) * MICRO)


def to_unit(micro: float) -> float:
    """Micro-units to the user's unit."""
    return micro / MICRO


class Priced(Protocol):
    """What has sensors and an uplink: a program, and whatever is to become one."""

    @property
    def sensors(self) -> tuple[Sensor, ...]: ...
    @property
    def uplink(self) -> Uplink: ...


class Meter:
    """Costs of one program for items of one size.

    Parameters
    ----------
    program : Program
    item_size : int
        1 where costs do not depend on the item.
    """

    __slots__ = ("request_cost", "sensor_costs")

    def __init__(self, program: Priced, item_size: int = 1) -> None:
        up = program.uplink
        self.sensor_costs = [evaluate_polynomial(s.cost, item_size) for s in program.sensors]
        self.request_cost = up.per_request + up.per_byte * up.request_bytes + up.cloud_per_request

    def buy(self, sensors: Iterable[int]) -> int:
        """Cost of buying these sensors, in micro-units; each must be named once."""
        costs = self.sensor_costs
        return sum([costs[s] for s in sensors])

    def total(self, bought: Iterable[int], requests: int) -> int:
        """Cost of one decision: the *set* of sensors bought on its path and the requests it sent, in micro-units."""
        return self.buy(set(bought)) + requests * self.request_cost
