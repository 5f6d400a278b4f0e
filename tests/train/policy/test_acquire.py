# SPDX-License-Identifier: Apache-2.0
"""A set of sensors is bought at once; where that cannot be had, what can be had of it is bought one by one."""

from __future__ import annotations

import numpy as np
import pytest

from hardcase_edge.program.definition import Answer, Column, Feature, Program, Rank, Sensor, Slice, Tree, Trees, Uplink
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import Machine, Session
from hardcase_edge.verifier.verify import verify
from hardcase_train.policy.compile import buy, n_nodes
from hardcase_train.sweep.train import learn
from tests.helpers.train.problems import BRIEF, make_problem

N = 4


def program(sensors: list[int]) -> Program:
    """Buys these of four sensors at 1, 2, 4 and 8 units, then answers with a tree over all it names."""
    nodes = [*buy(sensors, 0), Answer(Slice(0, 0, 2))]
    trees = tuple(Tree(0, 2, (k,), (-32767,), (True,), (), (1, 0, 0, 1)) for k in range(len(sensors)))
    return Program(
        features=(Feature("f32"),) * N,
        sensors=tuple(Sensor((k,), (2**k,)) for k in range(N)),
        uplink=Uplink(),
        columns=tuple(Column(k, Rank((0.5,))) for k in range(N)),
        scorers=(Trees(tuple(sensors), (0, 0), trees),),
        nodes=tuple(nodes),
        n_classes=2,
    )


def asked_and_bought(session: Session, failing: tuple[int, ...] = ()) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    asked = []

    def read(sensors):
        asked.append(sensors)
        return {s: None if s in failing else [1.0] for s in sensors}

    return asked, drive(session, read, lambda need: None).sensors


@pytest.mark.parametrize("sensors", [[], [2], [0, 1], [0, 1, 2, 3]], ids=str)
def test_working_sensors_are_asked_for_at_once(sensors: list[int]) -> None:
    made = program(sensors)
    assert len(made.nodes) == n_nodes(sensors) + 1
    if sensors:
        assert verify(made).best_cost == verify(made).worst_cost == sum(2**s for s in sensors)
    asked, bought = asked_and_bought(Session(Machine(made)))
    assert asked == ([tuple(sensors)] if sensors else [])
    assert bought == tuple(sensors)


@pytest.mark.parametrize("dead", range(N))
def test_with_a_dead_sensor_all_others_are_bought(dead: int) -> None:
    _, bought = asked_and_bought(Session(Machine(program([0, 1, 2, 3])), dead=[dead]))
    assert bought == tuple(s for s in range(N) if s != dead)


@pytest.mark.parametrize("failing", range(N))
def test_a_sensor_that_fails_when_read_is_not_asked_twice(failing: int) -> None:
    asked, bought = asked_and_bought(Session(Machine(program([0, 1, 2, 3]))), (failing,))
    assert asked == [(0, 1, 2, 3)]
    assert bought == (0, 1, 2, 3)


@pytest.mark.parametrize("budget", range(16))
def test_a_budget_buys_one_after_the_other_what_still_fits(budget: int) -> None:
    _, bought = asked_and_bought(Session(Machine(program([0, 1, 2, 3])), budget=budget))
    expected, spent = [], 0
    for s in range(N):
        if spent + 2**s <= budget:
            expected.append(s)
            spent += 2**s
    assert bought == tuple(expected)


@pytest.mark.parametrize("method", ["static", "cascade", "adapt-gbrt"])
def test_a_policy_with_one_dead_sensor_still_uses_the_others(method: str) -> None:
    problem = make_problem(missing=0.0, effort=BRIEF)
    points = [p for p in learn(problem, (method,), quiet=True) if p.method == method]
    best = max(points, key=lambda p: p.valid.quality)
    machine = Machine(best.program)

    def right(dead: int) -> float:
        def decide(row):
            def read(sensors):
                return {s: [row[f] for f in problem.sensors[s].features] for s in sensors}

            return drive(Session(machine, dead=[dead], cloud=False), read, lambda need: None).result

        return float(
            np.mean([decide(row) == y for row, y in zip(problem.test.X.tolist(), problem.test.y, strict=True)])
        )

    blind = max(np.bincount(problem.test.y)) / len(problem.test.y)
    assert max(right(s) for s in range(3)) > blind + 0.1
