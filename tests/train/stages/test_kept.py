# SPDX-License-Identifier: Apache-2.0
"""The limits of [policy]: all points of all methods keep them, by the verifier's proof."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hardcase_edge.errors import InputError
from hardcase_edge.kernel.image import KERNEL_BYTES
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.program.cost import to_micro
from hardcase_edge.verifier.costs import cost_range
from hardcase_export.integers.decide import decisions
from hardcase_train.data.from_arrays import make_problem as problem_of
from hardcase_train.data.problem import Problem
from hardcase_train.methods import METHODS
from hardcase_train.policy.front import Point
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.config import PolicyLimits
from hardcase_train.stages.kept import Keeper
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.sweep.train import learn
from hardcase_train.trees.size import FEWEST_LEAVES, LARGE, n_offered, size_of
from hardcase_train.trees.subset_classifier import classifier_kinds
from tests.helpers.train.problems import BRIEF, LEAST, make_problem

CLASSIFY = [name for name, cls in METHODS.items() if not cls.method.needs_order]
DROPS = {"budget-prune"}  # of a forest that reads too much, some prices keep the budget


def limited(problem: Problem, **limits: float) -> Problem:
    return replace(problem, limits=PolicyLimits(**limits))  # type: ignore[arg-type]


def made(method: str, problem: Problem, n_settings: int | None = None) -> list[Point]:
    """The points that the first settings of a method make, unchecked."""
    search = SubsetSearch(Judge(problem), 1)
    return [p for params in METHODS[method].grid(search)[:n_settings] for p in METHODS[method].run(search, params)]


FREE = make_problem(n=300, effort=replace(BRIEF, tree_share=1.0))


@cache
def statics(**limits: float) -> list[Point]:
    """The points of single sets of sensors, with full trees and under these limits."""
    return made("static", limited(FREE, **limits))


def worst(point: Point) -> int:
    program = point.program
    assert program is not None
    return cost_range(program)[0]


@pytest.mark.parametrize("method", CLASSIFY)
def test_every_method_keeps_a_budget_that_forbids_forwards(method: str) -> None:
    problem = limited(make_problem(n=100, effort=LEAST), budget=6)
    points = made(method, problem)
    kept = Keeper(problem).kept(points)
    assert all(worst(p) <= to_micro(6) for p in kept)
    assert not any(p.valid.forward_rate for p in kept)
    assert kept
    assert method in DROPS or kept == points, "the method makes points that the check has to drop"


@pytest.mark.parametrize("method", ["cascade", "dag", "adapt-gbrt", "cstc", "l1", "poly-dom", "greedy"])
def test_a_budget_that_binds_nothing_changes_nothing(method: str) -> None:
    problem = make_problem(n=60, effort=LEAST)
    free, bound = (made(method, p, 1) for p in (problem, limited(problem, budget=problem.forward_cost)))
    assert [(p.params, p.valid) for p in bound] == [(p.params, p.valid) for p in free]


def test_forwards_that_fit_the_budget_stay() -> None:
    problem = make_problem(effort=BRIEF)
    problem = replace(problem, costs=replace(problem.costs, per_request=0))
    points = made("dag", limited(problem, budget=problem.forward_cost), 1)
    assert max(p.valid.forward_rate for p in points) > 0
    assert max(map(worst, points)) == to_micro(problem.forward_cost)
    assert not any(p.valid.forward_rate for p in made("dag", limited(problem, budget=problem.forward_cost - 0.01), 1))


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
        for p in points[:: max(1, len(points) // 3)]:
            assert_never_unpaid(p, problem)


DEVICE_CHOOSES = {"greedy", "greedy-cost"}  # by the budget that the device has left


def assert_never_unpaid(point: Point, problem: Problem) -> None:
    """A device that enforces the budget of training decides as one without a budget, whichever sensor is dead."""
    program, rows = point.program, problem.test if len(problem.test.y) else problem.valid
    assert program is not None
    X, hpc = rows.X.astype(np.float64), rows.hpc.argmax(axis=1)
    free, bound = (decisions(program, X, hpc, budget=b) for b in (None, problem.limits.micro_budget))
    assert bound == free or point.method in DEVICE_CHOOSES
    assert not any(one.unpaid for one in bound)
    for sensor in range(len(problem.sensors)):
        for one in decisions(program, X, hpc, budget=problem.limits.micro_budget, dead=(sensor,)):
            assert not one.unpaid


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
    with pytest.raises(
        InputError, match=r"no policy of these methods keeps \[policy\] budget = 6, max_forward = 0.2; "
    ):
        Keeper(problem).check([])


def test_a_sweep_keeps_the_budget_and_says_nothing_else() -> None:
    said: list[str] = []
    problem = limited(make_problem(effort=BRIEF), budget=6)
    points = learn(problem, ("dag", "static"), quiet=True, jobs=1, say=said.append)
    assert points[0].method == "hpc"  # the reference stays, whatever it costs
    assert {p.method for p in points[1:]} == {"dag", "static"}
    assert all(worst(p) <= to_micro(6) for p in points[1:])
    assert max(worst(p) for p in points[1:]) == to_micro(6)  # and uses it


# ---------------------------------------------------------------- bytes, time and forwards


@pytest.mark.parametrize(
    ("method", "limits"),
    [
        *((m, {"max_bytes": KERNEL_BYTES + 2500}) for m in ("static", "cascade", "dag")),
        *((m, {"max_ms": 0.01}) for m in ("static", "cascade")),
    ],
)
def test_models_are_halved_until_policies_fit(method: str, limits: dict[str, float]) -> None:
    problem = limited(FREE, **limits)
    large = [p for p in statics() if p.params["classifier"] == "trees" and len(p.params["sensors"]) > 1]
    assert large
    assert not Keeper(problem).kept(large)
    points = statics(**limits) if method == "static" else made(method, problem, 4 if "max_bytes" in limits else None)
    kept = Keeper(problem).kept(points)
    assert kept
    assert len({p.params["classifier"] for p in statics(**limits)}) > 2  # and halves of those, for stages
    if method != "static":
        assert max(len(p.params.get("stages", "two")) for p in kept) > 1


def test_limits_that_bind_nothing_offer_one_size() -> None:
    problem = make_problem(n=600)
    wide = limited(problem, max_bytes=10**7, max_ms=100.0)
    assert size_of(wide) == size_of(problem)
    assert classifier_kinds(wide) == classifier_kinds(problem)


@given(max_bytes=st.integers(1, 10**7), max_ms=st.floats(0, 10), n_classes=st.integers(2, 9), forest=st.booleans())
def test_any_limit_gives_a_size(max_bytes: int, max_ms: float, n_classes: int, forest: bool) -> None:
    problem = replace(make_problem(n_classes=n_classes), size_name="auto" if forest else "large")
    problem = limited(problem, max_bytes=max_bytes, max_ms=max_ms)
    for k in range(n_offered(problem)):
        size = size_of(problem, k)
        assert 1 <= size.n_trees <= size_of(make_problem()).n_trees + LARGE.n_trees
        assert FEWEST_LEAVES <= size.model.max_leaves <= LARGE.model.max_leaves


@pytest.mark.parametrize(
    ("method", "share"), [("cascade", 0.1), ("cascade", 0.35), ("dag", 0.1), ("adapt-gbrt", 0.1), ("adapt-gbrt", 0.35)]
)
def test_thresholds_forward_at_most_the_share(method: str, share: float) -> None:
    problem = make_problem(n=400, effort=BRIEF)
    problem = limited(replace(problem, costs=replace(problem.costs, per_request=0)), max_forward=share)
    points, keeper = made(method, problem, 2), Keeper(problem)
    kept = keeper.kept(points)
    assert kept if method == "adapt-gbrt" else kept == points
    assert share / 3 < max(p.valid.forward_rate for p in kept) < share  # with a standard error
    judge = Judge(problem)
    most = judge.most_forwarded
    assert most + np.sqrt(most * (1 - most) / len(judge.y)) == pytest.approx(share)


def test_f0_that_has_no_program_is_kept() -> None:
    problem = limited(make_problem(effort=BRIEF), budget=0, max_bytes=1, max_ms=0, max_forward=0)
    f0 = Point("hpc", {}, Judged(1.0, 1.0, 1.0), None, None)
    assert Keeper(problem).kept([f0]) == [f0]
