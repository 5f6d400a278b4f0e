# SPDX-License-Identifier: Apache-2.0
"""The protocol of a joint session, the same in Python and in C: what it refuses, and what it then still does."""

from __future__ import annotations

import gc
import random
import sys
from typing import Any

import pytest

from hardcase_edge.errors import SessionError
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.session import JointMachine, NeedParts, NeedReplies
from hardcase_edge.kernel.machine import has_kernel
from hardcase_edge.program.definition import MICRO, Costs
from hardcase_export.joint.decide import decide_rows
from hardcase_export.joint.quantise import Asking, quantise_chain
from tests.helpers.attack.glue import hostile_calls
from tests.helpers.edge.evaluators import evaluator  # noqa: F401
from tests.helpers.edge.joint_programs import play, random_joint, random_world
from tests.helpers.export.joint_models import small_chain, small_items

import numpy as np  # isort: skip

MODEL = small_chain()
ITEMS, _ = small_items(12)
ITEM = next(item for item in ITEMS if len(item) == 4)


@pytest.fixture
def machine() -> JointMachine:
    rows, features = np.concatenate(ITEMS), np.ones((3, 11))
    made = quantise_chain(MODEL, rows, features, max_parts=6, asking=Asking(9.0), costs=Costs(2 * MICRO))
    return open_joint(made.part, made.joint)


def fed(session: Any, item: np.ndarray) -> Any:
    """The first action that asks for no readings."""
    while isinstance(action := session.next_action(), NeedParts):
        session.feed({(p, s): (item[p, :5] if s == 0 else item[p, 5:]).tolist() for p, s in action.sensors})
    return action


@pytest.mark.parametrize("parts", [0, 7, -1])
def test_an_item_of_too_many_parts_is_refused(machine: JointMachine, parts: int) -> None:
    with pytest.raises(SessionError, match=f"an item of {parts} parts; this program decides 1 to 6"):
        machine.session(parts)


def test_an_item_of_another_size_is_refused(machine: JointMachine) -> None:
    with pytest.raises(SessionError, match="item size"):
        machine.session(2, item_size=2)


def test_readings_that_were_not_asked_for_are_refused_and_change_nothing(machine: JointMachine) -> None:
    session = machine.session(4)
    with pytest.raises(SessionError, match="did not ask for any"):
        session.feed({})
    asked = session.next_action()
    assert asked.sensors == ((0, 0), (1, 0), (2, 0), (3, 0))
    for wrong in ({}, {(0, 0): [1.0] * 5}, {(p, 1): [1.0] * 6 for p in range(4)}):
        with pytest.raises(SessionError, match="were asked for"):
            session.feed(wrong)
    with pytest.raises(SessionError, match="did not ask for one"):
        session.reply(0, 1, 9000)
    assert session.next_action() is asked
    assert isinstance(fed(session, ITEM), NeedReplies)


def test_replies_come_in_any_order_and_only_those_that_are_due(machine: JointMachine) -> None:
    session = machine.session(4)
    asked = fed(session, ITEM)
    parts = [part for part, _ in asked.requests]
    assert len(parts) >= 2
    with pytest.raises(SessionError, match="did not ask for any"):
        session.feed({})
    for wrong in ((99, 1, 1), (parts[0], 4, 1), (parts[0], 1, 10_001), (parts[0], -1, 1), (parts[0], 2**70, 1)):
        with pytest.raises(SessionError):
            session.reply(*wrong)
    session.reply(parts[-1], 2, 8000)
    with pytest.raises(SessionError, match="did not ask for one"):
        session.no_reply(parts[-1])
    assert session.next_action() is asked
    for part in parts[:-1]:
        session.no_reply(part)
    decision = session.next_action()
    assert decision.labels[parts[-1]] == 2
    assert decision.parts[parts[-1]].confidence == 8000
    assert decision.route == "degraded"


def test_a_request_is_sent_again_only_if_the_items_purse_allows(machine: JointMachine) -> None:
    for budget, expected in ((None, True), (10**9, True), (None, True), (0, None)):
        session = machine.session(4, budget=budget)
        action = fed(session, ITEM)
        if expected is None:
            assert not isinstance(action, NeedReplies)
            continue
        before = [part for part, _ in action.requests]
        assert session.resend(before[0]) is expected
        for part in before:
            session.no_reply(part)
        plain = machine.session(4)
        for part, _ in fed(plain, ITEM).requests:
            plain.no_reply(part)
        assert session.next_action().cost - plain.next_action().cost == 2_000_000


def test_an_inner_sensor_is_never_dead(machine: JointMachine) -> None:
    alive = decide_rows(machine, ITEM, cloud=False)
    assert decide_rows(machine, ITEM, cloud=False, dead=[2]) == alive
    assert decide_rows(machine, ITEM, cloud=False, dead=frozenset([0, 2])).parts[0].failed == (0,)


@pytest.mark.skipif(not has_kernel(), reason="the kernel is needed: hardcase-edge doctor --build")
def test_sessions_in_c_leave_nothing_behind() -> None:
    part, joint = random_joint(3)
    machine, rng = open_joint(part, joint, "kernel"), random.Random(1)
    worlds = [random_world(rng, part, joint, 10**6) for _ in range(20)]

    def all_of_them() -> int:
        for world in worlds:
            play(machine, world)
            machine.session(1).next_action()
        gc.collect()
        return sys.getallocatedblocks()

    all_of_them()
    assert abs(all_of_them() - all_of_them()) < 20


@pytest.mark.skipif(not has_kernel(), reason="the kernel is needed: hardcase-edge doctor --build")
def test_calls_in_any_order_are_refused_or_harmless() -> None:
    (found,) = hostile_calls(0.05, 7)
    assert found.inputs >= 40
    assert (found.crashes, found.wrong) == (0, 0)
