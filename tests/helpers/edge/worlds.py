# SPDX-License-Identifier: Apache-2.0
"""A decision of hardcase's evaluators and of the second evaluator in the same world: random and extreme readings."""

from __future__ import annotations

import random
from typing import Any

from hardcase_edge.kernel.machine import EVALUATORS, open_machine
from hardcase_edge.program.definition import Program, Rank
from hardcase_edge.session.session import Decision, NeedReply, NeedSensors

from .from_spec import Read, World, decide
from .strategies import random_readings

__all__ = ["differences", "random_world"]

EXTREMES: list[Any] = [0, -0.0, 1, True, 2**31 - 1, -(2**31), 2**53 + 1, 17030583100112897, 3.5e38, -1e308, 5e-324]


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
        rng.choice([None, None, 0, rng.randint(0, 10**7), rng.randint(0, 2**62)]),
        rng.choice([1, p.max_item_size, rng.randint(1, p.max_item_size)]),
        rng.random() < 0.8,
        (rng.randrange(p.n_classes or 1000), rng.randint(0, 10_000)) if rng.random() < 0.5 else None,
    )


def _by(evaluator: str, p: Program, world: World) -> tuple[Any, list[Any] | None]:
    session: Any = open_machine(p, evaluator).session(
        budget=world.budget, item_size=world.size, dead=world.dead, cloud=world.cloud
    )
    asked = None
    while not isinstance(action := session.next_action(), Decision):
        if isinstance(action, NeedSensors):
            rows = {s: [world.readings[f] for f in p.sensors[s].features] for s in action.sensors}
            session.feed({s: None if s in world.failing else row for s, row in rows.items()})
        elif isinstance(action, NeedReply):
            asked = list(action.readings)
            session.no_reply() if world.reply is None else session.reply(*world.reply)
    d = action
    return (d.result, d.confidence, d.route, d.cost, d.sensors, d.trace, d.failed, d.unpaid), asked


def differences(p: Program, second: Read, world: World, worst_cost: int) -> list[str]:
    """What is wrong with this decision; nothing, if all evaluators agree and no bound is passed.

    Parameters
    ----------
    p : the program as hardcase reads it
    second : the same bytes, read again from the pages
    worst_cost : as the verifier's report says
    """
    expected = decide(second, world)
    wrong = [name for name in EVALUATORS if _by(name, p, world) != expected]
    cost = expected[0][3]
    if cost > worst_cost or (world.budget is not None and cost > world.budget):
        wrong.append("cost")
    return wrong
