# SPDX-License-Identifier: Apache-2.0
"""A device by the clock in a time of its own, and random worlds for it, to compare with the specification."""

from __future__ import annotations

import random
from typing import Any

from hardcase_edge.kernel.machine import open_machine
from hardcase_edge.program.cost import Meter
from hardcase_edge.program.definition import Program
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import Decision
from tests.helpers.edge.oracle import Case, decide
from tests.helpers.edge.strategies import random_readings
from tests.helpers.edge.worlds import as_tuple

__all__ = ["Clock", "difference", "random_case"]

REPLY = -1  # among times


class Clock:
    """Plays a device that goes by the clock: reads one sensor after another, gives up when the time is over."""

    def __init__(self, case: Case, machine: Any = None) -> None:
        self.case, self.now, self.given_up = case, 0, 0
        self.machine = open_machine(case.program) if machine is None else machine
        assert case.times is not None
        self.times = case.times

    def run(self) -> Decision:
        case = self.case
        return drive(
            self.machine.session(budget=case.budget, item_size=case.size, dead=case.dead, cloud=case.cloud),
            lambda sensors: {s: self._read(s) for s in sensors},
            lambda _: case.reply if self._passes(REPLY) else None,
            lambda: self.now,
        )

    def _passes(self, what: int) -> bool:
        after = self.now + self.times[what]
        in_time = self.case.budget is None or after <= self.case.budget
        self.given_up += not in_time
        self.now = after if in_time else max(self.now, self.case.budget or 0)
        return in_time

    def _read(self, sensor: int) -> list[Any] | None:
        if not self._passes(sensor) or sensor in self.case.failing:
            return None
        return [self.case.readings[f] for f in self.case.program.sensors[sensor].features]


def random_case(program: Program, seed: int) -> Case:
    """A world in which sensors take nothing to thrice of what was declared, and some fail or hang."""
    rng = random.Random(seed)
    size = rng.randint(1, program.max_item_size)
    meter = Meter(program, size)
    declared = dict(enumerate(meter.sensor_costs)) | {REPLY: meter.request_cost}
    times = {
        k: rng.choice([c, rng.randint(0, 3 * c), 10**15 if rng.random() < 0.3 else c]) for k, c in declared.items()
    }
    n = len(program.sensors)
    reply = (rng.randrange(program.n_classes or 1000), rng.randint(0, 10_000)) if rng.random() < 0.7 else None
    return Case(
        program, random_readings(rng, program, 0.0), frozenset(s for s in range(n) if rng.random() < 0.1),
        frozenset(s for s in range(n) if rng.random() < 0.05), rng.randint(0, 1 + sum(declared.values())), size,
        rng.random() < 0.8, reply, times,
    )  # fmt: skip


def difference(case: Case, machine: Any = None) -> str:
    """What is wrong with a decision by the clock in this world; empty if nothing is."""
    clock = Clock(case, machine)
    decision = clock.run()
    if as_tuple(decision) != (expected := decide(case)):
        return f"{decision}, but {expected} is literal"
    if case.budget is not None and decision.cost > case.budget:
        return f"{decision.cost} was spent of {case.budget}"
    return "" if decision.cost == clock.now else f"{decision.cost} was spent in {clock.now}"
