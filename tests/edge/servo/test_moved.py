# SPDX-License-Identifier: Apache-2.0
"""Thresholds that move: what the verifier has proved holds for each, and both evaluators go by them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings

from hardcase_edge.kernel.machine import decide, open_machine
from hardcase_edge.program.cost import Meter
from hardcase_edge.program.definition import Branch, Program
from hardcase_edge.verifier.verify import verify
from tests.edge.session.test_session_properties import Driver
from tests.helpers.edge.device import EASY, HARD, make_program
from tests.helpers.edge.evaluators import evaluator  # noqa: F401
from tests.helpers.edge.strategies import programs, random_readings, seeds

SAFE = 2**62
some = settings(max_examples=25)


def movable(program: Program) -> list[int]:
    return [k for k, n in enumerate(program.nodes) if isinstance(n, Branch) and n.rule in ("threshold", "margin")]


def with_other_thresholds(program: Program, rng: random.Random) -> tuple[Program, dict[int, int]]:
    moves = {k: rng.choice([rng.randint(-SAFE, SAFE), rng.randint(-300, 300), SAFE, -SAFE]) for k in movable(program)}
    nodes = tuple(replace(n, threshold=moves[k]) if k in moves else n for k, n in enumerate(program.nodes))
    return replace(program, nodes=nodes), moves


@given(programs(5), seeds)
@some
def test_the_worst_case_is_the_same_for_every_threshold_in_range(program: Program, seed: int) -> None:
    other, _ = with_other_thresholds(program, random.Random(seed))
    assert verify(other) == verify(program)
    world = Driver(other, seed)
    cost = world.run().cost
    again = max(0, world.requests - 1) * Meter(program, world.size).request_cost
    assert cost <= verify(program).worst_cost + again


@given(programs(5), seeds)
@some
def test_a_moved_machine_decides_as_a_program_with_these_thresholds(program: Program, seed: int) -> None:
    rng = random.Random(seed)
    other, moves = with_other_thresholds(program, rng)
    machine, rows = open_machine(program, moved=moves), [random_readings(rng, program) for _ in range(3)]
    before = [decide(machine, row, (0, 5_000)) for row in rows]
    for node, threshold in moves.items():
        machine.move(node, threshold)
    assert [decide(machine, row, (0, 5_000)) for row in rows] == [
        decide(open_machine(other), row, (0, 5_000)) for row in rows
    ]
    for node in moves:
        machine.move(node, program.nodes[node].threshold)  # type: ignore[union-attr]
    assert [decide(machine, row, (0, 5_000)) for row in rows] == before


def test_a_session_that_has_begun_goes_by_the_new_threshold() -> None:
    machine = open_machine(make_program(), moved=[1])
    session = machine.session(cloud=False)
    session.next_action()
    machine.move(1, 10_000)
    session.feed({0: [EASY]})
    assert session.next_action().route == "degraded"


@pytest.mark.parametrize(("node", "threshold"), [(0, 1), (3, 1), (99, 1), (-1, 1), (1, SAFE + 1), (1, -SAFE - 1)])
def test_what_is_no_threshold_in_range_cannot_be_moved(node: int, threshold: int) -> None:
    machine = open_machine(make_program(), moved=[1])
    with pytest.raises((ValueError, IndexError)):
        machine.move(node, threshold)
    assert [decide(machine, [x, 0, 0, 0, 0]).route for x in (EASY, HARD)] == ["local", "degraded"]
