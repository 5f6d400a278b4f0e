# SPDX-License-Identifier: Apache-2.0
"""What a problem's sensors and its dearest case cost, by the one meter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.errors import InputError
from hardcase_edge.kernel.machine import decide
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import (
    MICRO,
    Acquire,
    Answer,
    Costs,
    Forward,
    Polynomial,
    Program,
    Sensor,
    Slice,
    Uplink,
)
from hardcase_edge.session.session import Machine
from hardcase_train.data.problem import Problem
from hardcase_train.settings.config import PolicyLimits
from tests.helpers.train.problems import make_problem


def problem_of(*costs: tuple[int, ...], **beside: int) -> Problem:
    """A problem with a sensor for each polynomial of costs, in micro-units; requests carry the first one's reading."""
    sensors = tuple(Sensor((k,), cost) for k, cost in enumerate(costs))
    plain = make_problem()
    return replace(
        plain, features=plain.features[: len(costs)], sensors=sensors, uplink=Uplink(features=(0,)),
        costs=Costs(**beside),
    )  # fmt: skip


def test_a_sensor_costs_what_its_polynomial_says_of_the_items_size() -> None:
    p = problem_of((2 * MICRO, 3 * MICRO, MICRO), (7 * MICRO,), (0, MICRO // 2))
    assert p.sensor_costs().tolist() == [6.0, 7.0, 0.5]  # an item of size 1
    assert p.sensor_costs(4).tolist() == [2 + 3 * 4 + 16, 7.0, 2.0]


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=1, max_size=4).map(tuple), min_size=1, max_size=5),
       st.integers(1, 50))  # fmt: skip
def test_costs_are_those_of_the_meter_that_reports_and_devices_ask(costs: list[tuple[int, ...]], size: int) -> None:
    p = problem_of(*costs)
    meter = Meter(p, size)
    assert p.sensor_costs(size).tolist() == [to_unit(meter.buy([s])) for s in range(len(costs))]
    assert p.sensor_costs(size).sum() == pytest.approx(to_unit(meter.total(range(len(costs)), 0)))
    assert p.sensor_costs(size).tolist() == [
        pytest.approx(sum(c * size**k for k, c in enumerate(cost)) / MICRO) for cost in costs
    ]


@pytest.mark.parametrize(
    ("costs", "uplink", "forward_cost", "unit"),
    [
        pytest.param([(MICRO,), (5 * MICRO,)], {"per_request": 30 * MICRO}, 31.0, 31.0, id="a-dear-request"),
        pytest.param([(MICRO,), (5 * MICRO,)], {}, 1.0, 6.0, id="sensors-that-no-request-carries"),
        pytest.param([(MICRO, MICRO), (5 * MICRO,)], {}, 2.0, 7.0, id="a-polynomial-at-size-1"),
        pytest.param([(0,), (0,)], {}, 0.0, 1.0, id="all-free"),
        pytest.param([(0,), (0,)], {"per_request": MICRO // 4}, 0.25, 0.25, id="free-sensors"),
    ],
)
def test_the_cost_unit_is_what_the_dearest_case_costs(
    costs: list[tuple[int, ...]], uplink: dict[str, int], forward_cost: float, unit: float
) -> None:
    p = problem_of(*costs, **uplink)
    assert (p.forward_cost, p.cost_unit) == (forward_cost, unit)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=4), st.integers(0, 10**6), st.integers(0, 10**6))
def test_rows_cost_what_the_session_spends_its_start_included(costs: list[int], start: int, request: int) -> None:
    problem = problem_of(*((c,) for c in costs), per_request=request, per_decision=start)
    every = tuple(range(len(costs)))
    nodes = (Acquire(every, 1, 1), Forward((), 2), Answer(Slice(0, 0, 1), "value"))
    constant = Polynomial((), (), 1, (), ((),), (0,))
    program = Program(problem.features, problem.sensors, problem.uplink, (), (constant,), nodes, 0, costs=problem.costs)
    for cloud in (False, True):
        decision = decide(Machine(program), [1.0] * len(costs), (0, 9_000), cloud=cloud)
        assert problem.row_costs([every], None, int(cloud)).tolist() == [[to_unit(decision.cost)]]
    assert problem.row_costs([()], None).tolist() == [[problem.start_cost]]
    assert problem.cost_unit == (max(problem.forward_cost - problem.start_cost, sum(problem.sensor_costs())) or 1.0)


def test_a_budget_below_the_start_of_a_decision_is_refused() -> None:
    problem = problem_of((MICRO,), per_decision=2 * MICRO)
    with pytest.raises(InputError, match=r"\[policy\] budget is 1, but each decision costs 2 before it reads anything"):
        replace(problem, limits=PolicyLimits(budget=1.0))
    assert replace(problem, limits=PolicyLimits(budget=2.0)).offered == ()
