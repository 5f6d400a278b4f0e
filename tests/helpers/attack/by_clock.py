# SPDX-License-Identifier: Apache-2.0
"""Random programs by the clock, any-time ones among them, in worlds whose sensors take nothing to for ever, or fail.

A device goes by a time of its own there, and is compared with the specification.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import replace
from typing import Any

from hardcase_edge.kernel.machine import EVALUATORS, has_kernel, open_machine
from hardcase_edge.program.cost import Meter, with_start
from hardcase_edge.program.definition import Program
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import Decision
from tests.helpers.attack.outcome import Attack, Outcome
from tests.helpers.edge.from_spec import REPLY, World
from tests.helpers.edge.hybrid import hybrid
from tests.helpers.edge.strategies import random_program
from tests.helpers.edge.worlds import as_tuple, by_the_pages, random_world


class Clock:
    """Plays a device that goes by the clock: reads one sensor after another, gives up when the time is over."""

    def __init__(self, program: Program, case: World, machine: Any = None) -> None:
        self.program, self.case, self.now, self.given_up = program, case, 0, 0
        self.machine = open_machine(program) if machine is None else machine
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
        return [self.case.readings[f] for f in self.program.sensors[sensor].features]


def random_case(program: Program, seed: int) -> World:
    """A world in which sensors take nothing to thrice of what was declared, and some fail or hang."""
    rng = random.Random(seed)
    world = random_world(rng, program)
    meter = Meter(program, world.size)
    declared = dict(enumerate(meter.sensor_costs)) | {REPLY: meter.request_cost}
    times = {
        k: rng.choice([c, rng.randint(0, 3 * c), 10**15 if rng.random() < 0.3 else c]) for k, c in declared.items()
    }
    return replace(world, budget=rng.randint(0, 1 + sum(declared.values())), times=times)


def difference(program: Program, case: World, machine: Any = None) -> str:
    """What is wrong with a decision by the clock in this world; empty if nothing is."""
    clock = Clock(program, case, machine)
    decision = clock.run()
    if as_tuple(decision) != (expected := by_the_pages(program, case)):
        return f"{decision}, but {expected} is literal"
    if case.budget is not None and decision.cost > case.budget:
        return f"{decision.cost} was spent of {case.budget}"
    return "" if decision.cost == clock.now else f"{decision.cost} was spent in {clock.now}"


def attack(seconds: float, seed: int, evaluator: str | None = None, n: int | None = None) -> list[Outcome]:
    """Wrong is a decision other than the specification's, one beyond its time, or one whose cost is not its time."""
    chosen = (evaluator,) if evaluator else EVALUATORS if has_kernel() else ("python",)

    def cases(rng: random.Random) -> Generator[tuple[Any, Any, Any], None, None]:
        while True:
            here = rng.randrange(2**32)
            program = hybrid(here, n=here % 4 + 1) if here % 3 == 0 else random_program(here, here % 6)
            program = replace(program, costs=with_start(program.costs, 0))  # as bundles by the clock
            for machine in [open_machine(program, name) for name in chosen]:
                for world in range(4):
                    case = random_case(program, here + world)
                    case.failing -= {s for s, sensor in enumerate(program.sensors) if not sensor.features}
                    yield program, case, machine

    return Attack("decisions by the clock", cases, lambda case: not difference(*case))(seconds, seed, n)
