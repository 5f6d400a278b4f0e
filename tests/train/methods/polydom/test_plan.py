# SPDX-License-Identifier: Apache-2.0
"""Compiled plans: the index, the any-time plan and greedy sequences as programs, in Python and in the kernel."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from hardcase_edge.kernel.machine import PYTHON, decide, open_machine
from hardcase_edge.program.definition import Acquire, Answer, Node, Program, Select
from hardcase_edge.session.session import Decision
from hardcase_edge.verifier.verify import verify
from hardcase_train.methods.polydom.estimate import best_few, grid_of
from hardcase_train.methods.polydom.greedy import CHEAPEST, make_sequences, prefixes, sequence
from hardcase_train.methods.polydom.index import Set, candidates, make_index
from hardcase_train.methods.polydom.plan import Shipped, anytime_nodes, index_nodes, sequence_nodes
from hardcase_train.methods.polydom.search import search_sets
from hardcase_train.methods.polydom.sets import Costs, mask_of, members
from tests.helpers.attack.polydom import Lattice, lattice, program_of


def shipped_of(of: Lattice) -> tuple[list[Set], Costs]:
    """The sets on a skyline, most accurate first, the empty one among them."""
    found = search_sets(of.polynomials, of.largest, of.characterise, of.prior)
    sets = make_index(candidates(found), of.largest).sets
    empty = Set(0, (0,), of.prior)
    return [*(s for s in sets if s.mask), empty], found.costs


def programs(seed: int, n: int) -> tuple[Lattice, list[Set], Costs, dict[str, Program]]:
    """A lattice, its shipped sets, and programs of each kind over them."""
    of = lattice(random.Random(seed), n, largest=6)
    sets, costs = shipped_of(of)
    greedy = [make_sequences(costs, of.characterise, size) for size in (2, 5)]
    masks = dict.fromkeys([0, *(mask for g in greedy for mask in g.masks)])
    on_orders = sorted((Set(m, costs.of(m), of.accuracy[m]) for m in masks), key=lambda s: (-s.accuracy, s.mask))

    def follow(shipped: Shipped, answers: Sequence[Answer]) -> tuple[Node, ...]:
        return sequence_nodes(shipped, [(3, greedy[0]), (of.largest, greedy[1])], answers)

    made = {
        "index": program_of(of, sets, index_nodes, costs),
        "anytime": program_of(of, sets, anytime_nodes, costs),
        "greedy": program_of(of, on_orders, follow, costs),
    }
    return of, sets, costs, {name: program for name, program in made.items() if len(program.nodes) > 1}


def both(program: Program, size: int, budget: int | None, dead: Sequence[int] = ()) -> Decision:
    """The decision, alike in Python and in the kernel."""
    row = [1.0] * len(program.sensors)
    one, other = (
        decide(machine, row, budget=budget, item_size=size, dead=dead)
        for machine in (open_machine(program, PYTHON), open_machine(program))
    )
    assert one == other
    return one


def budgets(of: Lattice, sets: Sequence[Set], size: int) -> list[int]:
    amounts = {of.cost(s.mask, size) for s in sets}
    return sorted({b for amount in amounts for b in (amount - 1, amount) if b >= 0})


@pytest.mark.parametrize("seed", range(6))
def test_programs_answer_as_the_index_at_every_size_and_budget(seed: int) -> None:
    of, sets, _, made = programs(seed, 2 + seed % 3)
    for name, program in made.items():
        verify(program)
        for size in range(1, of.largest + 1):
            for budget in budgets(of, sets, size):
                decision = both(program, size, budget)
                assert decision.cost <= budget
                best = max(s.accuracy for s in sets if of.cost(s.mask, size) <= budget)
                reached = of.accuracy[mask_of(decision.sensors)]
                if name == "index":
                    assert reached == best == sets[decision.result].accuracy  # type: ignore[index]
                if name == "anytime":
                    assert sets[decision.result].accuracy >= best  # type: ignore[index]
                assert reached <= best + 1e-12


def test_a_search_of_seven_sensors_compiles_too() -> None:
    of, sets, _, made = programs(3, 7)
    for size in (1, of.largest):
        for budget in budgets(of, sets, size)[::5]:
            best = max(s.accuracy for s in sets if of.cost(s.mask, size) <= budget)
            assert sets[both(made["index"], size, budget).result].accuracy == best  # type: ignore[index]


@pytest.mark.parametrize("seed", range(4))
def test_each_candidate_of_a_state_costs_what_its_missing_sensors_cost(seed: int) -> None:
    of, sets, costs, made = programs(seed, 4)
    nodes, states, n_seen = made["anytime"].nodes, {0: 0}, 0
    shipped = Shipped(tuple(sets), costs)
    for k, node in enumerate(nodes):
        if isinstance(node, Select) and k in states:
            state, choices = states[k], shipped.choices(states[k])
            assert [c.cost for c in node.candidates] == [s.cost for s in choices]
            for candidate, choice in zip(node.candidates, choices, strict=True):
                n_seen += 1
                for size in range(1, of.largest + 1):
                    missing = [of.cost(1 << m, size) for m in members(choice.mask & ~state)]
                    assert sum(c * size**d for d, c in enumerate(candidate.cost)) == sum(missing)
                acquire = nodes[candidate.target]
                assert isinstance(acquire, Acquire)
                assert not state >> acquire.sensors[0] & 1
                assert choice.mask >> acquire.sensors[0] & 1
                states[acquire.then] = state | 1 << acquire.sensors[0]
    assert n_seen


def test_no_state_offers_a_set_that_another_one_beats_at_every_size() -> None:
    """The first sensor alone is right in .7 and costs 5; the second alone is right in .8 and costs 1."""
    costs = Costs([(5,), (1,)], 4)
    sets = tuple(Set(mask, costs.of(mask), accuracy) for mask, accuracy in ((3, 0.9), (2, 0.8), (1, 0.7), (0, 0.5)))
    assert [s.mask for s in Shipped(sets, costs).choices(0)] == [3, 2]


@pytest.mark.parametrize("seed", range(4))
def test_each_sensor_may_fail_and_there_is_an_answer(seed: int) -> None:
    _, _, _, made = programs(seed, 3)
    for program in made.values():
        for sensor in range(3):
            decision = both(program, 3, None, dead=(sensor,))
            assert sensor not in decision.sensors


@pytest.mark.parametrize("seed", range(4))
def test_an_any_time_plan_goes_on_without_a_sensor_that_fails(seed: int) -> None:
    of, sets, _, made = programs(seed, 5)
    for sensor in range(5):
        rest = [s for s in sets if not s.mask >> sensor & 1]
        for size in (1, of.largest):
            most = max(s.accuracy for s in rest)
            assert sets[both(made["anytime"], size, None, dead=(sensor,)).result].accuracy == most  # type: ignore[index]
            for budget in budgets(of, sets, size):
                decision = both(made["anytime"], size, budget, dead=(sensor,))
                cheapest = min((of.cost(s.mask, size) for s in rest if s.mask), default=budget + 1)
                assert decision.cost <= budget
                assert sets[decision.result].mask or cheapest > budget or of.prior >= most  # type: ignore[index]


# ---------------------------------------------------------------- greedy


def test_the_special_cases_of_greedy_are_those_of_their_names() -> None:
    costs = Costs([(5,), (1,), (3,)], 4)
    accuracy = {0: 0.5, 1: 0.9, 2: 0.6, 4: 0.7, 3: 0.95, 5: 0.92, 6: 0.8, 7: 0.96}
    asked: list[int] = []

    def characterise(mask: int) -> float:
        asked.append(mask)
        return accuracy[mask]

    assert sequence(costs, characterise, 1, CHEAPEST) == (1, 2, 0)
    assert asked == []
    assert sequence(costs, characterise, 1, 0.0) == (0, 1, 2)
    assert sorted(asked) == [1, 2, 3, 4, 5, 7]  # one, two and three sensors: n (n + 1) / 2 sets
    assert sequence(costs, characterise, 1, 5.0) == (1, 2, 0)
    found = make_sequences(costs, lambda mask: accuracy[mask], 2)
    assert all(s.accuracy == accuracy[s.mask] for s, _ in found.starts)
    assert [s.accuracy for s, _ in found.starts] == sorted((s.accuracy for s, _ in found.starts), reverse=True)
    assert all(s.mask in prefixes(found.orders[order]) for s, order in found.starts)


def test_sequences_start_at_a_set_only_if_no_cheaper_one_is_as_accurate() -> None:
    """The third sensor misleads beside the second: both cost more than the second alone, and are right less often."""
    costs = Costs([(5,), (1,), (3,)], 4)
    accuracy = {0: 0.5, 1: 0.9, 2: 0.6, 4: 0.52, 3: 0.95, 5: 0.92, 6: 0.55, 7: 0.96}
    found = make_sequences(costs, lambda mask: accuracy[mask], 2, (0.0, CHEAPEST))
    assert found.orders == ((0, 1, 2), (1, 2, 0))
    assert [s.mask for s, _ in found.starts] == [
        7,
        3,
        1,
        2,
    ]  # they cost 9, 6, 5 and 1; the second and the third together cost 4


def test_sequences_of_a_size_prefer_what_is_cheap_there() -> None:
    costs = Costs([(10,), (0, 2)], 20)  # dear for small items, and for large ones
    accuracy = {0: 0.5, 1: 0.8, 2: 0.8, 3: 0.9}
    assert sequence(costs, lambda mask: accuracy[mask], 1, 1.0) == (1, 0)
    assert sequence(costs, lambda mask: accuracy[mask], 20, 1.0) == (0, 1)


# ---------------------------------------------------------------- few models


def test_few_models_are_those_that_lose_least_and_keep_an_early_answer() -> None:
    sets = [Set(0, (0,), 0.5), Set(1, (1,), 0.8), Set(2, (2,), 0.81), Set(3, (3,), 0.82), Set(4, (9,), 0.9)]
    sets.append(Set(5, (10,), 0.95))
    pairs = grid_of(sets, [1, 2])
    assert [s.mask for s in best_few(sets, pairs, 0)] == [0]
    assert [s.mask for s in best_few(sets, pairs, 2)] == [3, 1, 0]
    assert best_few(sets, pairs, 99) == sorted(sets, key=lambda s: -s.accuracy)
    assert [s.mask for s in best_few(sets, pairs, None, 15, lambda mask: 10)] == [1, 0]
    assert best_few(sets, [], 1) == best_few(sets, pairs, None)
    alike = [Set(0, (0,), 0.5), Set(1, (1,), 0.8), Set(2, (1,), 0.8)]
    assert [s.mask for s in best_few(alike, pairs, 1)] == [1, 0]
