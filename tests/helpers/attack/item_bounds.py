# SPDX-License-Identifier: Apache-2.0
"""Attack on the bounds of joint items: programs of any size either are refused, or take the time and memory proved."""

from __future__ import annotations

import random
import time
import tracemalloc
from typing import Any

from hardcase_edge.errors import BundleError
from hardcase_edge.joint.definition import RELEASES
from hardcase_edge.joint.drive import drive_joint
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.prove import verify_joint
from hardcase_edge.joint.session import JointMachine
from hardcase_edge.kernel.machine import EVALUATORS, KERNEL, has_kernel
from hardcase_edge.program.limits import worst_item_ms
from tests.helpers.edge.crafted_items import wide_items

from .outcome import Attack, forever

__all__ = ["attack", "item_bytes", "most_seconds", "play_rising"]

LARGEST = (1_024, 3_000, 3_000, 30_000)  # parts; scorers, outputs and columns that nobody reads
SLACK = 2.0  # the machine does other things, too


def play_rising(machine: JointMachine) -> None:
    """Decide an item of the most parts, whose readings rise, so that an anytime release releases each alone."""
    session = machine.session(machine.joint.max_parts)
    drive_joint(session, lambda asked: {(p, s): [float(p)] for p, s in asked}, lambda *_: None)


def most_seconds(machine: JointMachine, again: int = 3) -> float:
    """CPU seconds of such an item; the least of some, because other work takes some of them."""
    times = []
    for _ in range(again):
        began = time.process_time()
        play_rising(machine)
        times.append(time.process_time() - began)
    return min(times)


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
        if most_seconds(machine) * 1e3 > SLACK * worst_item_ms(proved.operations, proved.steps, name):
            return False
    return True


attack = Attack("bounds: crafted items take what was proved", forever(crafted), is_within)
