# SPDX-License-Identifier: Apache-2.0
"""A decision of hardcase's evaluators and of the second evaluator in the same world: random and extreme readings."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

from hardcase_edge.kernel.machine import EVALUATORS, open_machine
from hardcase_edge.program.cost import start_of
from hardcase_edge.program.definition import Program, Rank
from hardcase_edge.program.encode import encode
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import Decision, NeedReply

from .from_spec import Decided, Read, World, decide, read_program
from .strategies import random_readings

EXTREMES: list[Any] = [0, -0.0, 1, True, 2**31 - 1, -(2**31), 2**53 + 1, 17030583100112897, 3.5e38, -1e308, 5e-324]


@lru_cache(maxsize=4)
def again(p: Program) -> Read:
    """A program's words, read again from the pages."""
    return read_program(encode(p))


def by_the_pages(p: Program, world: World) -> Decided:
    """The decision of the evaluator that was written from the pages."""
    return decide(again(p), world)[0]


def paying(p: Program, budget: int | None) -> int | None:
    """A budget of so much beyond what a decision costs at its start."""
    return None if budget is None else start_of(p.costs) + budget


def random_world(rng: random.Random, p: Program) -> World:
    """Readings, failures, budget, size, cloud and reply."""
    n, extremes = len(p.sensors), rng.random() < 0.3
    readings = [rng.choice(EXTREMES) if extremes and rng.random() < 0.5 else x for x in random_readings(rng, p)]
    for column in p.columns:
        if isinstance(column.rule, Rank) and column.rule.thresholds and rng.random() < 0.2:
            readings[column.feature] = rng.choice(column.rule.thresholds)
    return World(
        readings,
        frozenset(s for s in range(n) if rng.random() < 0.15),
        frozenset(s for s in range(n) if rng.random() < 0.1),
        paying(p, rng.choice([None, None, 0, rng.randint(0, 10**7), rng.randint(0, 2**62)])),
        rng.choice([1, p.max_item_size, rng.randint(1, p.max_item_size)]),
        rng.random() < 0.8,
        (rng.randrange(p.n_classes or 1000), rng.randint(0, 10_000)) if rng.random() < 0.5 else None,
    )


def failure(sensor: int, n: int) -> Any:
    """What a sensor of n features gives when it fails: nothing, the wrong shape, or what is no number."""
    kinds = [None, ["12"] * n, "failed", [1.0] * (n + 1), {0: 1.0}, [object()] * n]
    return kinds[sensor % len(kinds)] if n else None


def play(machine: Any, p: Program, world: World) -> tuple[Decision, list[Any] | None]:
    """The decision of a machine of this program in a world, and the readings that it sent to the cloud."""
    session = machine.session(budget=world.budget, item_size=world.size, dead=world.dead, cloud=world.cloud)
    asked: list[list[Any]] = []

    def read(sensors: tuple[int, ...]) -> dict[int, list[Any] | None]:
        rows = {s: [world.readings[f] for f in p.sensors[s].features] for s in sensors}
        return {s: failure(s, len(row)) if s in world.failing else row for s, row in rows.items()}

    def ask(need: NeedReply) -> tuple[int, int] | None:
        asked.append(list(need.readings))
        return world.reply

    return drive(session, read, ask), asked[-1] if asked else None


def as_tuple(decision: Decision) -> Any:
    """As ``from_spec.decide`` gives it."""
    return tuple(getattr(decision, name) for name in Decision.__slots__)


def differences(p: Program, second: Read, world: World, worst_cost: int) -> list[str]:
    """What is wrong with this decision; nothing, if all evaluators agree and no bound is passed.

    Parameters
    ----------
    p : the program as hardcase reads it
    second : the same bytes, read again from the pages
    worst_cost : as the verifier's report says
    """
    expected = decide(second, world)
    played = {name: play(open_machine(p, name), p, world) for name in EVALUATORS}
    wrong = [name for name, (decision, asked) in played.items() if (as_tuple(decision), asked) != expected]
    cost = expected[0][3]
    if cost > worst_cost or (world.budget is not None and cost > world.budget):
        wrong.append("cost")
    return wrong
