# SPDX-License-Identifier: Apache-2.0
"""Attack on the bounds of joint items: programs of any size either are refused, or take the time and memory proved."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace
from functools import partial
from typing import Any

from hardcase_edge.errors import BundleError
from hardcase_edge.joint.definition import ANYTIME, FEATURES, ONE_SHOT, RELEASES, Chain, Joint, Wait
from hardcase_edge.joint.drive import drive_joint
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.prove import verify_joint
from hardcase_edge.joint.session import JointMachine
from hardcase_edge.kernel.machine import EVALUATORS, KERNEL, has_kernel
from hardcase_edge.program import definition as d
from hardcase_edge.program.limits import worst_item_ms
from hardcase_edge.program.readings import request_bytes

from .outcome import Attack, forever, least_seconds

CHAIN = Chain(2, (0, 0, 0, 0), (0, 0), (0, 0))


def wide_items(
    parts: int, scorers: int = 0, outputs: int = 1, columns: int = 0, release: str = ANYTIME
) -> tuple[d.Program, Joint]:
    """Items of many parts in rounds, with scorers of so many outputs and columns that no node and no scorer reads."""
    inner = tuple(range(2, 2 + len(FEATURES)))
    features = (d.Feature("f32"), d.Feature("f32"), *[d.Feature("i32")] * len(FEATURES))
    sensors = (d.Sensor((0,), (1_000_000,)), d.Sensor((1,), (1_000_000,)), d.Sensor(inner, (0,)))
    rule = d.Affine(8, 1, 0, 0)
    rules = (d.Column(0, rule), d.Column(2, d.Affine(0, 1, 0, 0)), *[d.Column(1, rule)] * columns)
    own, policy = (d.Polynomial((column,), (0,), 1, ((0,),), ((1,),), (1,)) for column in (0, 1))
    unread = d.Trees((), (0,) * outputs, ())
    score = d.Slice(0, 0, 1)
    nodes = (d.Acquire((0,), 1, 1), d.Acquire((2,), 2, 2), d.Answer(score))
    part = d.Program(features, sensors, d.Uplink(), rules, (own, policy, *[unread] * scorers), nodes, 2)
    return part, Joint(CHAIN, (Wait(1, score, d.Slice(1, 0, 1) if release == ANYTIME else None),), release, parts)


def out_of_order() -> tuple[d.Program, Joint]:
    """Parts whose first reading is above 0 ask for the cloud at once, the others after one more reading."""
    part, joint = wide_items(6, release=ONE_SHOT)
    score = d.Slice(0, 0, 1)
    nodes = (
        d.Acquire((0,), 1, 1), d.Branch(score, "threshold", (2, 3), threshold=1), d.Forward((1,), 4), d.Forward((), 4),
        d.Acquire((2,), 5, 5), d.Answer(score),
    )  # fmt: skip
    up = d.Uplink(request_bytes(["f32"]), (0,))
    return replace(part, nodes=nodes, uplink=up, costs=d.Costs(1_000_000)), replace(joint, waits=(Wait(4, score),))


LARGEST = (1_024, 3_000, 3_000, 30_000)  # parts; scorers, outputs and columns that nobody reads
SLACK = 2.0  # the machine does other things, too


def play_rising(machine: JointMachine) -> None:
    """Decide an item of the most parts, whose readings rise, so that an anytime release releases each alone."""
    session = machine.session(machine.joint.max_parts)
    drive_joint(session, lambda asked: {(p, s): [float(p)] for p, s in asked}, lambda *_: None)


def item_bytes(machine: JointMachine) -> int:
    """The most bytes that such an item takes; what the interpreter keeps of code that runs first is not the item's."""
    play_rising(machine)
    tracemalloc.start()
    play_rising(machine)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return taken


def crafted(rng: random.Random) -> Any:
    """An item of random sizes; None: it is refused."""
    parts, scorers, outputs, columns = (int(most ** rng.random()) for most in LARGEST)
    try:
        part, joint = wide_items(parts, scorers - 1, outputs, columns - 1, rng.choice(RELEASES))
        return part, joint, verify_joint(part, joint)
    except BundleError:
        return None


def is_within(item: Any) -> bool:
    """No evaluator takes more time or memory for it than was proved."""
    if item is None:
        return True
    part, joint, proved = item
    for name in EVALUATORS if has_kernel() else ("python",):
        machine = open_joint(part, joint, name)
        if name == KERNEL and item_bytes(machine) > proved.held:
            return False
        most = SLACK * worst_item_ms(proved.operations, proved.steps, name) / 1e3
        if least_seconds(partial(play_rising, machine), most) > most:
            return False
    return True


attack = Attack("bounds: crafted items take what was proved", forever(crafted), is_within)
