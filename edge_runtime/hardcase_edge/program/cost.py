# SPDX-License-Identifier: Apache-2.0
"""The cost meter: the one definition of feature-acquisition and forwarding costs, in exact integers.

    cost = start_cost                          what a decision has cost before it buys anything
         + sensor_costs[s] for each sensor bought (each once, for the gate and the HPC alike)
         + request_cost for each request sent: radio per request + radio per byte * bytes + cloud per request

Whoever keeps a running sum begins it at what ``Meter.start`` returns: a session, a batch of rows, the verifier.

Training, reports and the device all compute costs here. All amounts are integers in micro-units: ``MICRO`` of
them make one unit of the user's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..errors import SessionError
from .definition import MICRO, Costs, Sensor, Uplink

DECLARED, PLACEHOLDER = "declared", "placeholder"  # a person's word; a number that hardcase init made up
ORIGINS = ("measured", "modelled", DECLARED, PLACEHOLDER)  # where a cost is from


def evaluate_polynomial(coefficients: tuple[int, ...], size: int) -> int:
    """The exact value of ``c[0] + c[1] size + c[2] size^2 ...``, by Horner's rule.

    >>> evaluate_polynomial((5, 0, 2), size=10)
    205
    """
    value = 0
    for c in reversed(coefficients):
        value = value * size + c
    return value


def to_micro(amount: float) -> int:
    """An amount in the user's unit as micro-units, rounded to the nearest integer.

    >>> to_micro(0.25)
    250000
    """
    return round(float(amount) * MICRO)


def to_unit(micro: float) -> float:
    """An amount of micro-units in the user's unit.

    >>> to_unit(250_000)
    0.25
    """
    return micro / MICRO


def token_cost(tokens: Iterable[int], prices: Iterable[int]) -> int:
    """The cost in micro-units of tokens of each kind, by the price in micro-units of a million of it.

    >>> token_cost((2_000_000, 1), prices=(150_000, 600_000))
    300001
    """
    return (sum(n * price for n, price in zip(tokens, prices, strict=True)) + MICRO // 2) // MICRO


class Priced(Protocol):
    """Anything with sensors, costs and an uplink: a program, or what training compiles into one."""

    @property
    def sensors(self) -> tuple[Sensor, ...]: ...
    @property
    def costs(self) -> Costs: ...
    @property
    def uplink(self) -> Uplink: ...


def start_of(costs: Costs) -> int:
    """What a decision has spent before it buys anything, in micro-units; an item of several parts spends it once."""
    return costs.per_decision


def with_start(costs: Costs, micro: int) -> Costs:
    """These costs, where a decision has spent so much at its start."""
    return Costs(costs.per_request, costs.per_byte, costs.cloud_per_request, per_decision=micro)


class Meter:
    """The costs of one program for items of one size.

    Parameters
    ----------
    program : Program, or anything with ``sensors``, ``costs`` and an ``uplink``
    item_size : int, from 1
        Sensor costs may be polynomials in it; 1 if they are constants.

    Attributes
    ----------
    sensor_costs : list of int
        Cost of each sensor, in micro-units.
    start_cost : int
        What every decision costs before it buys anything, in micro-units.
    request_cost : int
        Cost of one request, in micro-units.

    Examples
    --------
    A microphone costs 2 units, a camera 1 unit and 0.5 per unit of size; a request has 100 bytes:

    >>> from hardcase_edge.program.definition import Feature, Program
    >>> program = Program(
    ...     features=(Feature("f32"), Feature("f32")),
    ...     sensors=(Sensor((0,), cost=(2_000_000,)), Sensor((1,), cost=(1_000_000, 500_000))),
    ...     uplink=Uplink(request_bytes=100),
    ...     columns=(),
    ...     scorers=(),
    ...     nodes=(),
    ...     n_classes=2,
    ...     max_item_size=8,
    ...     costs=Costs(per_request=3_000_000, per_byte=10_000),
    ... )
    >>> meter = Meter(program, item_size=4)
    >>> meter.sensor_costs, meter.request_cost
    ([2000000, 3000000], 4000000)
    >>> to_unit(meter.total(bought=[0, 1, 1], requests=2))
    13.0
    """

    __slots__ = ("request_cost", "sensor_costs", "start_cost")

    def __init__(self, program: Priced, item_size: int = 1) -> None:
        costs = program.costs
        self.start_cost = start_of(costs)
        self.sensor_costs = [evaluate_polynomial(s.cost, item_size) for s in program.sensors]
        radio = costs.per_request + costs.per_byte * program.uplink.request_bytes
        self.request_cost = radio + costs.cloud_per_request

    def start(self, budget: int | None = None) -> int:
        """What a decision has spent when it starts, in micro-units.

        Raises
        ------
        SessionError
            The budget, in micro-units, does not hold it.
        """
        if budget is not None and self.start_cost > max(budget, 0):
            raise SessionError(
                f"a budget of {budget} micro-units is less than each decision costs at its start, {self.start_cost}; "
                "raise it"
            )
        return self.start_cost

    def buy(self, sensors: Iterable[int]) -> int:
        """The cost of buying these sensors, in micro-units; the caller names each sensor once."""
        costs = self.sensor_costs
        return sum([costs[s] for s in sensors])

    def total(self, bought: Iterable[int], requests: int) -> int:
        """The cost of one decision, in micro-units.

        Parameters
        ----------
        bought : sensors bought on the decision's path; one named twice is paid once
        requests : number of requests sent, repeated ones included
        """
        return self.start_cost + self.buy(set(bought)) + requests * self.request_cost
