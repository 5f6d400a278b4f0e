# SPDX-License-Identifier: Apache-2.0
"""Random joint programs that the verifier must accept, and worlds to decide items in: one seed, one program."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hardcase_edge.errors import ProgramError
from hardcase_edge.joint.definition import ANYTIME, COUNTS, MAX_GAP, ONE_SHOT, Chain, Joint, Wait
from hardcase_edge.joint.drive import drive_joint
from hardcase_edge.joint.golden import JointCase, outer_features, run_item
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.prove import verify_joint
from hardcase_edge.joint.session import JointDecision, JointMachine
from hardcase_edge.program import definition as d

from .bundles import bundle_of
from .strategies import random_program, random_readings, retargeted
from .worlds import paying


def random_joint(seed: int, size: int = 3) -> tuple[d.Program, Joint]:
    """A part program with barriers at random nodes, and a random chain."""
    for attempt in range(1000):
        rng = random.Random(f"joint {seed} {attempt}")
        base = random_program(rng.getrandbits(32), size)
        if base.n_classes < 2:
            continue
        part, joint = _with_barriers(rng, base)
        try:
            verify_joint(part, joint)
        except ProgramError:  # its scores are too large for a sum of parts, or it takes too long
            continue
        return part, joint
    raise AssertionError("no joint program in 1,000 attempts")


def random_chain(rng: random.Random, k: int, span: int | None = None) -> Chain:
    """Weights of equal and of very different size; small spans give many ties."""
    span = span or rng.choice([1, 3, 100, 10**9])

    def draw(n: int) -> tuple[int, ...]:
        return tuple(rng.randint(-span, span) for _ in range(n))

    return Chain(k, draw(k * k), draw(k), draw(k))


def _with_barriers(rng: random.Random, base: d.Program) -> tuple[d.Program, Joint]:
    n_features, n_columns, k = len(base.features), len(base.columns), base.n_classes
    levels = rng.choice([1, 1, 2])
    features, sensors, columns, scorers = (
        list(base.features), list(base.sensors), list(base.columns), list(base.scorers),
    )  # fmt: skip
    policies = []
    for _ in range(levels):
        first, count = len(features), rng.choice(COUNTS)
        features += [d.Feature("i32")] * count
        sensors.append(d.Sensor(tuple(range(first, len(features))), (0,)))
        place = len(columns)
        columns += [
            d.Column(first + f, d.Affine(0, 1, rng.randint(-9, 9), rng.choice([0, 0, 4, 20]))) for f in range(count)
        ]
        weights = tuple(rng.randint(-127, 127) for _ in range(count))
        policies.append(len(scorers))
        inner = tuple(range(place, len(columns)))
        substitutes = tuple(rng.choice([None, rng.randint(-99, 99)]) for _ in inner)
        terms = tuple((t,) for t in range(len(inner)))
        scorers.append(d.Polynomial(inner, substitutes, 1, terms, (weights,), (rng.randint(-(10**6), 10**6),)))
    release = rng.choice([ONE_SHOT, ANYTIME])
    constant = d.Slice(0, 0, k)
    nodes: list[d.Node] = []
    moved: dict[int, int] = {}
    waits = []
    at_barrier = {n: rng.randrange(levels) for n in range(len(base.nodes)) if rng.random() < 0.4}
    place = 0
    for n in range(len(base.nodes)):
        moved[n] = place
        place += 3 if n in at_barrier else 1
    last = place  # a constant answer, which may stand behind any node
    for n, node in enumerate(base.nodes):
        if n in at_barrier:
            level, at = at_barrier[n], len(nodes)
            scores = node.scores if isinstance(node, d.Answer) else constant
            policy = d.Slice(policies[level], 0, 1)
            waits.append(Wait(at, scores, policy if release == ANYTIME else None))
            nodes.append(d.Acquire((len(base.sensors) + level,), at + 1, last))
            nodes.append(d.Branch(policy, "threshold", (last, at + 2), rng.randint(-(10**5), 10**5)))
        nodes.append(retargeted(node, moved.__getitem__))
    nodes.append(d.Answer(constant))
    part = replace(
        base, features=tuple(features), sensors=tuple(sensors), columns=tuple(columns), scorers=tuple(scorers),
        nodes=tuple(nodes),
    )  # fmt: skip
    assert n_features < len(features)
    assert n_columns < len(columns)
    steps = sorted(rng.sample(range(1, 10**6), rng.randint(0, 3)) + [MAX_GAP] * rng.randint(0, 1))
    table = tuple(steps), tuple(rng.randint(0, 10_000) for _ in range(len(steps) + 1))
    return part, Joint(
        random_chain(rng, k), tuple(waits), release, rng.randint(1, 6), rng.randint(-(10**5), 10**5), *table, *table
    )


@dataclass
class JointWorld:
    """All inputs of one item."""

    rows: list[list[Any]]  # (parts, features), those of inner sensors not used
    failing: frozenset[tuple[int, int]]  # pairs of part and sensor
    dead: frozenset[int]
    budget: int | None
    size: int
    cloud: bool
    replies: dict[int, tuple[int, int]]


def random_world(rng: random.Random, part: d.Program, joint: Joint, worst: int) -> JointWorld:
    """An item of random length with random readings, failures, budget, cloud and replies."""
    n = rng.randint(1, joint.max_parts)
    inner = joint.inner(part)
    sensors = [s for s in range(len(part.sensors)) if s not in inner]
    budgets = [None, None, 0, rng.randint(0, max(1, worst)), rng.randint(0, max(1, worst // 3))]
    replies = {p: (rng.randrange(part.n_classes), rng.randint(0, 10_000)) for p in range(n) if rng.random() < 0.6}
    return JointWorld(
        [random_readings(rng, part) for _ in range(n)],
        frozenset((p, s) for p in range(n) for s in sensors if rng.random() < 0.1),
        frozenset(s for s in sensors if rng.random() < 0.1),
        paying(part, rng.choice(budgets)),
        rng.randint(1, part.max_item_size),
        rng.random() < 0.8,
        replies,
    )


def play(machine: JointMachine, world: JointWorld) -> JointDecision:
    """The decision of this machine in this world."""
    session = machine.session(
        len(world.rows), budget=world.budget, item_size=world.size, dead=world.dead, cloud=world.cloud
    )
    features = [s.features for s in machine.program.sensors]

    def read(asked: Sequence[tuple[int, int]]) -> dict[tuple[int, int], list[Any] | None]:
        return {(p, s): None if (p, s) in world.failing else [world.rows[p][f] for f in features[s]] for p, s in asked}

    return drive_joint(session, read, lambda p, _: world.replies.get(p))


def case_of(machine: JointMachine, world: JointWorld) -> JointCase:
    """A golden item: this world without its dead sensors, and what the machine decides in it."""
    outer = outer_features(machine.program, machine.joint)
    n_sensors = len(machine.program.sensors)
    rows = tuple(tuple(golden_reading(row[f]) for f in outer) for row in world.rows)
    failed = tuple(tuple(s for s in range(n_sensors) if (p, s) in world.failing) for p in range(len(world.rows)))
    replies = tuple(world.replies.get(p) for p in range(len(world.rows)))
    case = JointCase(rows, failed, world.budget, world.size, world.cloud, replies, JointDecision((), 0, "local", 0, 0))
    return replace(case, expected=run_item(machine, case))


def golden_reading(x: Any) -> Any:
    return None if x is None or x != x else x


def joint_bundle(seed: int, size: int = 3, n_items: int = 3) -> bytes:
    """The file of a random joint program with golden items."""
    part, joint = random_joint(seed, size)
    report, machine, rng = verify_joint(part, joint), open_joint(part, joint), random.Random(seed)
    items = tuple(case_of(machine, random_world(rng, part, joint, report.worst_cost)) for _ in range(n_items))
    return bundle_of(part, joint=joint, items=items)
