# SPDX-License-Identifier: Apache-2.0
"""A graph of sensor sets decides in time and money: under every budget, and with every sensor that may be dead."""

from __future__ import annotations

from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.program.cost import Meter
from hardcase_edge.program.definition import MICRO, Acquire, Answer, Branch, Program
from hardcase_edge.session.session import Decision, Machine, NeedSensors, Session
from hardcase_edge.verifier.verify import verify
from hardcase_export.integers.decide import decide, readings_of
from hardcase_export.integers.quantise import quantise
from tests.helpers.train.graph_drafts import random_dag, state_of, steered, trained_dag

many = settings(max_examples=60)


def play(
    machine: Machine, row: list[int], budget: int | None, dead: set[int], failing: set[int]
) -> tuple[Decision, list[int]]:
    """A decision, and the sensors in the order in which they were asked for."""
    session, asked = Session(machine, budget=budget, dead=dead), list[int]()
    while not isinstance(action := session.next_action(), Decision):
        assert isinstance(action, NeedSensors)
        asked += action.sensors
        session.feed({s: None if s in failing else [row[s]] for s in action.sensors})
    return action, asked


def check(program: Program, decision: Decision, asked: list[int], budget: int | None, gone: set[int]) -> None:
    """What must hold of every decision, whatever fails and whatever there is to spend."""
    assert decision.cost == Meter(program).total(decision.sensors, 0)
    assert budget is None or decision.cost <= budget
    assert len(set(asked)) == len(asked)
    at_hand = set(asked) - gone
    assert state_of(program, decision.trace[-1]) == at_hand, "the answer is that of the state which was reached"


@given(st.integers(0, 10_000), st.integers(2, 4), st.data())
@many
def test_every_state_ends_well_under_every_budget_and_every_single_failure(
    seed: int, n_sensors: int, data: st.DataObject
) -> None:
    program = quantise(random_dag(seed, n_sensors)).program
    machine, top = Machine(program), verify(program).worst_cost
    row = data.draw(st.lists(st.integers(-127, 127), min_size=n_sensors, max_size=n_sensors))
    for gone in [None, *range(n_sensors)]:
        lost = set() if gone is None else {gone}
        for budget in [None, *range(0, top + MICRO, MICRO)]:
            for dead, failing in ((lost, set[int]()), (set[int](), lost)):
                decision, asked = play(machine, row, budget, dead, failing)
                check(program, decision, asked, budget, lost)
                assert not dead & set(asked)


@pytest.mark.parametrize("n_sensors", [2, 3])
def test_every_state_is_left_by_every_way_that_failures_and_budgets_leave(n_sensors: int) -> None:
    """Rows are steered to each state by every order of buying it; each sensor fails, and money ends at every step."""
    plain = quantise(random_dag(1, n_sensors)).program
    reached = set()
    for order in (o for k in range(n_sensors + 1) for o in permutations(range(n_sensors), k)):
        program = steered(plain, order)
        machine, meter, top = Machine(program), Meter(program), verify(program).worst_cost
        decision, asked = play(machine, [7, -9, 30][:n_sensors], None, set(), set())
        assert asked == list(order)
        reached.add(frozenset(asked))
        for gone, budget in product([None, *range(n_sensors)], [None, *range(0, top + MICRO, MICRO)]):
            lost = set() if gone is None else {gone}
            for dead, failing in ((lost, set[int]()), (set[int](), lost)):
                decision, asked = play(machine, [7, -9, 30][:n_sensors], budget, dead, failing)
                check(program, decision, asked, budget, lost)
                if budget is not None and not lost:
                    afford = [k for k in range(len(order) + 1) if meter.total(order[:k], 0) <= budget]
                    assert asked[: max(afford)] == list(order[: max(afford)]), "as far as the money goes"
    assert len(reached) == 2**n_sensors


@given(st.integers(0, 10_000))
@many
def test_with_money_enough_a_budget_changes_nothing_and_with_none_the_first_state_answers(seed: int) -> None:
    program = quantise(random_dag(seed, 3)).program
    machine, top = Machine(program), verify(program).worst_cost
    row = [seed % 100, -(seed % 77), 5]
    assert play(machine, row, top, set(), set()) == play(machine, row, None, set(), set())
    decision, asked = play(machine, row, 0, set(), set())
    assert asked == []
    assert state_of(program, decision.trace[-1]) == set()


def test_a_trained_graph_ends_well_in_every_world_of_three_sensors() -> None:
    """Budgets from nothing to all, in steps of a unit; each sensor dead from the start; each set of sensors left."""
    draft, problem = trained_dag()
    program = quantise(draft).program
    machine, top = Machine(program), verify(program).worst_cost
    assert len(program.nodes) > 8
    rows = readings_of(program, problem.valid.X[:12])
    visited = set()
    for row, dead in product(rows, [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]):
        for budget in [None, *range(0, top + MICRO, MICRO)]:
            decision = decide(machine, row, None, budget=budget, dead=dead)
            visited |= set(decision.trace)
            assert budget is None or decision.cost <= budget
            assert not set(dead) & set(decision.sensors)
            assert state_of(program, decision.trace[-1]) <= set(decision.sensors)
    assert any(isinstance(program.nodes[k], Answer) for k in visited)
    assert any(isinstance(program.nodes[k], Acquire) for k in visited)


@pytest.mark.parametrize("n_sensors", [2, 3, 4])
def test_the_random_graphs_have_every_state(n_sensors: int) -> None:
    program = quantise(random_dag(0, n_sensors)).program
    answers = [k for k, node in enumerate(program.nodes) if isinstance(node, Answer)]
    assert len({frozenset(state_of(program, k)) for k in answers}) == 2**n_sensors
    assert {len(node.targets) for node in program.nodes if isinstance(node, Branch)} >= {2, n_sensors + 1}
