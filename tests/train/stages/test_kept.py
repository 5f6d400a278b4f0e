# SPDX-License-Identifier: Apache-2.0
"""The limits of [policy]: all points of all methods keep them, by the verifier's proof."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_micro
from hardcase_edge.verifier.costs import cost_range
from hardcase_train.data.amounts import PolicyLimits
from hardcase_train.data.from_arrays import make_problem as problem_of
from hardcase_train.data.problem import Problem
from hardcase_train.methods import METHODS
from hardcase_train.policy.front import Point
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.kept import Keeper
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.sweep.train import learn
from tests.helpers.train.problems import BRIEF, make_problem

CLASSIFY = [name for name, cls in METHODS.items() if not cls.method.needs_order]
# methods that may give no point within the budget on a given table: their trees or boosters buy without one
MAY_LACK = {"budget-prune", "greedy-miser", "stage-wise", "adaboost-rs", "route"}


def limited(problem: Problem, **limits: float) -> Problem:
    return replace(problem, limits=PolicyLimits(**limits))  # type: ignore[arg-type]


def made(method: str, problem: Problem, n_settings: int | None = None) -> list[Point]:
    """The points that the first settings of a method make, unchecked."""
    search = SubsetSearch(Judge(problem), 1)
    return [p for params in METHODS[method].grid(search)[:n_settings] for p in METHODS[method].run(search, params)]


def worst(point: Point) -> int:
    program = point.program
    assert program is not None
    return cost_range(program)[0]


@pytest.mark.parametrize("method", CLASSIFY)
def test_every_method_keeps_a_budget_that_forbids_forwards(method: str) -> None:
    problem = limited(make_problem(effort=BRIEF), budget=6)
    points = made(method, problem)
    kept = Keeper(problem).kept(points)
    assert all(worst(p) <= to_micro(6) for p in kept)
    assert not any(p.valid["forward_rate"] for p in kept)
    if method not in MAY_LACK:
        assert kept == points, "the method makes points that the check has to drop"
        assert kept


@pytest.mark.parametrize("method", ["cascade", "dag", "adapt-gbrt", "cstc", "l1", "poly-dom", "greedy"])
def test_a_budget_that_binds_nothing_changes_nothing(method: str) -> None:
    problem = make_problem(effort=BRIEF)
    free, bound = (made(method, p, 1) for p in (problem, limited(problem, budget=problem.forward_cost)))
    assert [(p.params, p.valid) for p in bound] == [(p.params, p.valid) for p in free]


def test_forwards_that_fit_the_budget_stay() -> None:
    problem = make_problem(effort=BRIEF)
    problem = replace(problem, uplink=replace(problem.uplink, per_request=0))
    points = made("dag", limited(problem, budget=problem.forward_cost), 1)
    assert max(p.valid["forward_rate"] for p in points) > 0
    assert max(map(worst, points)) == to_micro(problem.forward_cost)
    assert not any(
        p.valid["forward_rate"] for p in made("dag", limited(problem, budget=problem.forward_cost - 0.01), 1)
    )


@settings(max_examples=10, deadline=None, phases=[Phase.generate])
@given(
    seed=st.integers(0, 99),
    costs=st.lists(st.integers(0, 9), min_size=2, max_size=4),
    forward=st.integers(0, 12),
    budget=st.floats(0, 20),
)
def test_any_table_and_any_budget(seed: int, costs: list[int], forward: int, budget: float) -> None:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(60) % 2)
    X = y[:, None] + rng.normal(size=(60, len(costs)))
    prices = [float(c) for c in costs]
    problem = problem_of(X, y, np.ones(60), 2, None, prices, float(forward), 0, "small", BRIEF)
    problem = limited(problem.with_hpc(np.eye(2)[y] * 0.8 + 0.1), budget=budget)
    search = SubsetSearch(Judge(problem), 1)
    for method in ("static", "cascade", "dag", "adapt-gbrt", "poly-dom", "greedy", "greedy-cost"):
        params = METHODS[method].grid(search)[0]
        points = METHODS[method].run(search, params)
        assert points or method in ("cascade", "dag"), method  # one set alone is no cascade, f0 alone no graph
        assert all(worst(p) <= to_micro(budget) for p in points), method


def test_the_budget_counts_the_largest_item() -> None:
    problem = make_problem(effort=BRIEF)
    sized = replace(problem, sensors=(replace(problem.sensors[0], cost=(0, 1_000_000)), *problem.sensors[1:]))
    problem = limited(replace(sized, max_item_size=10), budget=6)
    assert problem.offered == (1,)
    assert limited(problem, budget=10).offered == (0, 1)


def test_a_front_that_nothing_keeps_names_the_limit_and_the_least() -> None:
    problem = limited(make_problem(effort=BRIEF), budget=6, max_forward=0.2)
    keeper = Keeper(problem)
    dear = made("static", make_problem(effort=BRIEF))[:1]  # all sensors
    assert keeper.kept(dear) == []
    with pytest.raises(
        InputError, match=r"keeps \[policy\] budget = 6, which 1 policies break; the smallest possible is 26"
    ):
        keeper.check([])
    assert keeper.lines() == ["left out 1 policies over [policy] budget = 6: the nearest needs 26"]


def test_a_sweep_keeps_the_budget_and_says_nothing_else() -> None:
    said: list[str] = []
    problem = limited(make_problem(effort=BRIEF), budget=6)
    points = learn(problem, ("dag", "static"), quiet=True, jobs=1, say=said.append)
    assert points[0].method == "hpc"  # the reference stays, whatever it costs
    assert {p.method for p in points[1:]} == {"dag", "static"}
    assert all(worst(p) <= to_micro(6) for p in points[1:])
    assert max(worst(p) for p in points[1:]) == to_micro(6)  # and uses it
