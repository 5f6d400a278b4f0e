# SPDX-License-Identifier: Apache-2.0
"""Every method prices each row at the size of its own item: in the figures, and where it weighs rows one by one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import MICRO, Sensor
from hardcase_export.integers.decide import decisions
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.estimator import MethodClassifier
from hardcase_train.methods import METHODS
from hardcase_train.methods.graph.dag import Dag, graph_of
from hardcase_train.methods.graph.lp_surrogate import full_tree
from hardcase_train.methods.graph.lp_tree import _Tree
from hardcase_train.methods.graph.state_rows import DagRows
from hardcase_train.policy.batch import Outcome
from hardcase_train.policy.front import Point
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.successors.reduce import all_subsets
from tests.helpers.train.estimators import few
from tests.helpers.train.problems import BRIEF, in_streams, make_problem

COSTS = ((MICRO,), (MICRO, MICRO // 2), (0, 0, MICRO // 4))
LARGEST = 9
IN_STREAMS = ("held", "duty-cycle")


def sized(problem: Problem) -> Problem:
    """The problem with items of sizes 1 to 9 in no order, and costs that depend on them."""

    def with_sizes(rows: Rows) -> Rows:
        return replace(rows, sizes=np.random.default_rng(int(rows.index[0])).integers(1, LARGEST + 1, len(rows.y)))

    sensors = tuple(Sensor(s.features, cost) for s, cost in zip(problem.sensors, COSTS, strict=True))
    parts = {part: with_sizes(getattr(problem, part)) for part in ("train", "valid", "test")}
    return replace(problem, sensors=sensors, max_item_size=LARGEST, **parts)


@cache
def search(is_in_streams: bool) -> SubsetSearch:
    """What the methods share, on validation rows alone."""
    problem = in_streams(60, 4) if is_in_streams else make_problem(n=45, effort=replace(BRIEF, n_linear_gammas=2))
    return SubsetSearch(Judge(sized(problem), is_alone=True), 1)


def judged(name: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Point, Outcome]]:
    """A few points of a method's first setting, each with the outcome of the judged rows that gave its figures."""
    outcomes: list[tuple[Judged, Outcome]] = []
    summary = Judge.summary

    def recorded(judge: Judge, outcome: Outcome) -> Judged:
        figures = summary(judge, outcome)
        outcomes.append((figures, outcome))
        return figures

    monkeypatch.setattr(Judge, "summary", recorded)
    estimator = few(METHODS[name].__name__)
    assert isinstance(estimator, MethodClassifier)
    shared = search(name in IN_STREAMS)
    points = estimator.run(shared, estimator._settings(shared)[0])
    assert points
    some = points[:: max(1, len(points) // 3)]
    return [(point, next(outcome for figures, outcome in outcomes if figures is point.valid)) for point in some]


@pytest.mark.parametrize("name", [name for name in METHODS if name != "route"])  # whose table is in test_route
def test_judged_rows_cost_what_the_meter_says_at_their_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = search(name in IN_STREAMS).judge
    assert judge.sizes is not None
    meters = [Meter(judge.problem, size) for size in judge.sizes.tolist()]
    for point, outcome in judged(name, monkeypatch):
        assert point.valid.cost == pytest.approx(np.average(outcome.cost, weights=judge.weight), rel=1e-12)
        for cost, is_forwarded, meter in zip(outcome.cost, outcome.forwarded, meters, strict=True):
            sets = [np.flatnonzero(is_in).tolist() for is_in in product((0, 1), repeat=3)]
            amounts = [to_unit(meter.total(s, int(is_forwarded))) for s in sets]
            assert np.isclose(cost, amounts, rtol=1e-12).any(), (name, point.params)
        if name not in IN_STREAMS:
            assert point.program is not None
            made = decisions(point.program, judge.X, judge.hpc_label, sizes=judge.sizes)
            is_same = np.isclose([to_unit(one.cost) for one in made], outcome.cost)
            assert is_same.mean() > 0.9  # a cut lies at a row's own score, which the program rounds


def test_a_graph_and_a_tree_are_learned_from_each_rows_own_costs() -> None:
    shared = search(False)
    problem, sizes = shared.problem, shared.problem.train.sizes
    assert sizes is not None
    dag = Dag(DagRows(shared.judge, graph_of(shared, "all"), 1), "trees", "polynomial")
    tree = _Tree(full_tree(3), DagRows(shared.judge, all_subsets(3), 1), "trees")
    for costs in (dag.spent, tree.costs):
        assert costs.shape == (len(sizes), 8)
        assert costs[:, -1] == pytest.approx(1 + (1 + sizes / 2) + sizes**2 / 4)
    assert dag.costs[:, 0] == pytest.approx(1.0)
    assert dag.asked[:, -1] == pytest.approx(to_unit(Meter(problem).request_cost))
    assert dag.asked[:, 0] == pytest.approx(dag.spent[:, -1] + dag.asked[:, -1])
