# SPDX-License-Identifier: Apache-2.0
"""Memory, time and order of joint items are bounded and proved, and alike in Python and in C."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.errors import BundleError
from hardcase_edge.joint.definition import ANYTIME, ONE_SHOT
from hardcase_edge.joint.drive import drive_joint
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.prove import MAX_ITEM_BYTES, verify_joint
from hardcase_edge.joint.session import JointMachine
from hardcase_edge.kernel.machine import KERNEL, PYTHON
from hardcase_edge.program.definition import Program
from hardcase_edge.program.limits import worst_item_ms
from hardcase_edge.verifier.scorers import Proved, prove_scorer
from tests.helpers.attack.item_bounds import SLACK, item_bytes, out_of_order, play_rising, wide_items
from tests.helpers.attack.outcome import least_seconds
from tests.helpers.edge.bundles import bundle_of
from tests.helpers.edge.evaluators import evaluator, needs_kernel  # noqa: F401
from tests.helpers.edge.joint_programs import play, random_joint, random_world

TOO_LARGE = {  # the item, its release, and why it is refused
    "one scorer of 100,000 outputs": ((1_024, 1, 100_000), ONE_SHOT, r"takes? \d+ (bytes|operations), at most \d+"),
    "130 scorers of 2,000": ((1_024, 130, 2_000), ONE_SHOT, r"takes? \d+ (bytes|operations), at most \d+"),
    "300 scorers of 2,000": ((1_024, 300, 2_000), ONE_SHOT, r"takes? \d+ (bytes|operations), at most \d+"),
    "60 parts": ((60, 300, 2_000), ONE_SHOT, r"takes? \d+ (bytes|operations), at most \d+"),
    "memory": ((100, 30, 2_000), ANYTIME, r"^an item of 100 parts takes \d+ bytes, at most 33554432 are allowed"),
    "unread columns": ((100, 0, 1, 30_000), ONE_SHOT, "an item of 100 parts has 3000200 columns, at most 2097152"),
}


@pytest.mark.parametrize(("sizes", "release", "said"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_joint_bundle_that_would_fill_the_memory_is_refused_before_it_runs(
    sizes: tuple[int, ...], release: str, said: str
) -> None:
    part, joint = wide_items(*sizes, release=release)
    data = bundle_of(part, joint=joint)
    assert len(data) < 900_000
    with pytest.raises(BundleError, match=said):
        load_bytes(data, allow_joint=True)


@needs_kernel
def test_an_item_takes_no_more_memory_than_was_proved() -> None:
    cases = [random_joint(seed, seed % 4) for seed in range(30)]
    cases.append(wide_items(100, 19, 2_000))
    for part, joint in cases:
        proved, machine = verify_joint(part, joint), open_joint(part, joint, KERNEL)
        assert item_bytes(machine) <= proved.held
    assert MAX_ITEM_BYTES * 0.9 < proved.memory <= MAX_ITEM_BYTES, "the last one is near the limit"


def test_an_item_takes_no_longer_than_its_proved_operations(evaluator: str) -> None:  # noqa: F811
    fewer = 1 if evaluator == KERNEL else 3  # each part is released alone, which takes the square of their number
    for parts, *sizes in ((60, 30, 2_000), (150, 8, 2_000), (60, 500), (20, 0, 1, 5_000)):
        part, joint = wide_items(parts // fewer, *sizes)
        proved, machine = verify_joint(part, joint), open_joint(part, joint)
        most = SLACK * worst_item_ms(proved.operations, proved.steps, evaluator) / 1e3
        assert least_seconds(partial(play_rising, machine), most) <= most


def test_each_scorer_is_proved_once_so_that_items_load_in_the_time_of_single_cases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proved: list[int] = []

    def counted(program: Program, k: int, before: Sequence[Proved]) -> Proved:
        proved.append(k)
        return prove_scorer(program, k, before)

    for module in ("verifier.verify", "joint.prove"):
        monkeypatch.setattr(f"hardcase_edge.{module}.prove_scorer", counted, raising=False)
    part, joint = wide_items(3, 5)
    verify_joint(part, joint)
    assert proved == [*range(len(part.scorers))]


def test_memory_that_runs_out_while_a_bundle_loads_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    part, joint = wide_items(3)
    data = bundle_of(part, joint=joint)
    monkeypatch.setattr("hardcase_edge.joint.machine.open_joint", full)
    with pytest.raises(BundleError, match=r"^the bundle takes more memory to load than this process can have") as it:
        load_bytes(data, allow_joint=True)
    assert it.value.__context__ is None, "the frames that hold the memory are gone"


# ---------------------------------------------------------------- order


def test_requests_go_out_in_the_order_of_parts(evaluator: str) -> None:  # noqa: F811
    asked: list[int] = []

    def read(wanted: tuple[tuple[int, int], ...]) -> dict[tuple[int, int], list[float]]:
        return {(p, s): [float(p % 2)] for p, s in wanted}

    machine = open_joint(*out_of_order())
    drive_joint(machine.session(6), read, lambda part, _: asked.append(part))
    assert asked == [0, 1, 2, 3, 4, 5]


def test_a_forward_looks_at_the_purse_again_after_its_sensors_were_read(evaluator: str) -> None:  # noqa: F811
    """Part 0 asks for one more reading and then for the cloud; part 1 has spent what was left for that meanwhile."""
    machine = open_joint(*out_of_order())
    request = machine.meter(1).request_cost
    session = machine.session(2, budget=3_000_000 + request)
    first = session.next_action()
    session.feed({(0, 0): [0.0], (1, 0): [1.0]})
    assert first != (second := session.next_action())
    assert second.sensors == ((0, 1),)  # type: ignore[union-attr]
    session.feed({(0, 1): [0.0]})
    third = session.next_action()
    assert [part for part, _ in third.requests] == [1]  # type: ignore[union-attr]


@needs_kernel
def test_both_evaluators_ask_for_the_same_in_the_same_order() -> None:
    for seed in range(40):
        part, joint = random_joint(seed, seed % 4)
        worst, rng = verify_joint(part, joint).worst_cost, random.Random(seed)
        machines = [open_joint(part, joint, name) for name in (PYTHON, KERNEL)]
        for _ in range(4):
            world = random_world(rng, part, joint, worst)
            one, two = (actions_of(machine, world) for machine in machines)
            assert one == two
            assert play(machines[0], world) == one[-1]


def actions_of(machine: JointMachine, world: Any) -> list[Any]:
    """All that a session asks for in this world, and its decision; each request is sent twice."""
    features = [s.features for s in machine.program.sensors]
    session = machine.session(
        len(world.rows), budget=world.budget, item_size=world.size, dead=world.dead, cloud=world.cloud
    )
    actions: list[Any] = []
    while not actions or not hasattr(actions[-1], "rounds"):
        action = session.next_action()
        actions.append(action)
        if hasattr(action, "sensors"):
            session.feed({
                (p, s): None if (p, s) in world.failing else [world.rows[p][f] for f in features[s]]
                for p, s in action.sensors
            })  # fmt: skip
        elif hasattr(action, "requests"):
            for part, _ in action.requests:
                reply = world.replies.get(part)
                if reply is None:
                    session.no_reply(part)
                else:
                    session.reply(part, *reply)
    return actions
