# SPDX-License-Identifier: Apache-2.0
"""Random programs, any-time ones among them, in worlds whose sensors take nothing to for ever, or fail."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import replace
from typing import Any

from hardcase_edge.kernel.machine import EVALUATORS, has_kernel, open_machine
from tests.helpers.attack.outcome import Attack, Outcome
from tests.helpers.edge.clock_cases import difference, random_case
from tests.helpers.edge.hybrid import hybrid
from tests.helpers.edge.strategies import random_program

__all__ = ["attack"]


def attack(seconds: float, seed: int, evaluator: str | None = None) -> list[Outcome]:
    """Wrong is a decision other than the specification's, one beyond its time, or one whose cost is not its time."""
    chosen = (evaluator,) if evaluator else EVALUATORS if has_kernel() else ("python",)

    def cases(rng: random.Random) -> Generator[tuple[Any, Any], None, None]:
        while True:
            here = rng.randrange(2**32)
            program = hybrid(here, n=here % 4 + 1) if here % 3 == 0 else random_program(here, here % 6)
            program = replace(program, costs=replace(program.costs, per_decision=0))  # as bundles by the clock
            for machine in [open_machine(program, name) for name in chosen]:
                for world in range(4):
                    case = random_case(program, here + world)
                    case.failing -= {s for s, sensor in enumerate(program.sensors) if not sensor.features}
                    yield case, machine

    return Attack("decisions by the clock", cases, lambda case: not difference(*case))(seconds, seed)
