# SPDX-License-Identifier: Apache-2.0
"""Methods that learn values: squared loss, uncertainty as what cuts sort by, and programs that answer values."""

from __future__ import annotations

from dataclasses import replace
from math import ldexp

import numpy as np
import pytest

from hardcase_edge.bundle.value import steps_for, to_result
from hardcase_edge.errors import InputError
from hardcase_edge.kernel.machine import EVALUATORS, decide, open_machine
from hardcase_edge.more.batch.quality import Quality
from hardcase_edge.program.cost import Meter
from hardcase_edge.program.definition import CODE_MAX, Answer, Polynomial, Program, Trees
from hardcase_edge.session.session import CLOUD
from hardcase_export.drafts.stacks import smaller
from hardcase_export.integers.decide import decisions, readings_of
from hardcase_export.integers.quantise import quantise
from hardcase_train.data.from_arrays import make_problem
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.methods import METHODS
from hardcase_train.methods.graph.dag import Dag
from hardcase_train.methods.graph.state_classifiers import cloud_losses, make_bank, stop_losses
from hardcase_train.methods.graph.state_rows import DagRows
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.losses import AdaptLoss, SquaredLoss
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.staged_policy import StagedPolicy
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.stages.thresholds import Cut
from hardcase_train.successors.reduce import all_subsets
from hardcase_train.sweep.train import hpc_point, learn
from hardcase_train.tasks.target import in_target_unit
from tests.helpers.train.problems import BRIEF
from tests.helpers.train.slopes import check_slopes

R2 = Quality("r2", "R2")
LINEAR = ("adapt-lin", "adapt-lstsq", "l1", "astc", "lp-tree")  # their answers are, which fits less
TAKE_VALUES = [name for name, cls in METHODS.items() if cls.method.takes_values]


def values(size: str = "small", n: int = 600) -> Problem:
    """Values that the first sensor alone gives where the second reading is below 0.6, the dear third elsewhere."""
    rng = np.random.default_rng(3)
    X = rng.random((n, 3))
    y = 100 + 30 * np.where(X[:, 1] < 0.6, X[:, 0], X[:, 2]) + rng.normal(size=n) * 0.5
    p = make_problem(X, y, np.ones(n), 0, [[0, 1], [2]], [1.0, 6.0], 10.0, 0, size, BRIEF)
    mean, deviation = p.value_unit
    truth = (y - mean) / deviation
    hpc = (truth + rng.normal(size=n) * 0.05)[:, None]
    rows = np.arange(n)[::5]
    test = Rows(p.valid.X[: len(rows)], p.valid.y[: len(rows)], p.valid.hpc[: len(rows)], rows)
    return replace(p, test=test).with_hpc(hpc).with_quality(R2)


def test_values_are_learned_in_standard_units() -> None:
    p = values()
    assert not p.kind.has_classes
    assert p.n_outputs == 1
    assert np.average(p.train.y) == pytest.approx(0, abs=1e-9)
    assert np.std(p.train.y) == pytest.approx(1)
    assert p.value_unit[0] == pytest.approx(115, abs=2)
    assert Judge(p).tolerance == pytest.approx(0.05, rel=0.2)


@pytest.mark.parametrize("name", TAKE_VALUES)
def test_every_method_of_values_makes_policies_of_values(name: str) -> None:
    p = values()
    search = SubsetSearch(Judge(p), 1)
    method = METHODS[name]
    settings = method.grid(search)
    n_run = {"adapt-gbrt": 2, "adapt-lstsq": 1}.get(name, 4)
    points = [point for params in settings[:n_run] for point in method.run(search, params)]
    best = max(points, key=lambda point: point.valid.quality)
    least = 0.5 if name in LINEAR else 0.8
    assert best.valid.quality > least + 0.05
    assert all(n.kind == "value" for n in best.program.nodes if isinstance(n, Answer))
    outcome = Batch(best.program, p.valid.X).run(p.valid.hpc_label)
    assert R2(p.valid.y, outcome.label) > least
    assert outcome.label.dtype == np.float64
    check_integers(in_target_unit(best.program, p.value_unit), p.valid.X[:40], p.in_unit(p.valid.hpc_label[:40]))


def check_integers(draft: Program, X: np.ndarray, hpc: np.ndarray) -> None:
    """Integers answer as the draft, kernel and Python alike, and a row costs what its path's sensors cost."""
    steps = steps_for(float(np.abs(hpc).max()))  # a policy that answers nothing by itself has no scale of its own
    quantised = quantise(smaller(draft), steps=steps)
    program = quantised.program
    meter, machines = Meter(program), [open_machine(program, name) for name in EVALUATORS]
    n_trees = max((len(s.trees) for s in program.scorers if isinstance(s, Trees)), default=0)
    n_terms = max((len(s.columns) for s in program.scorers if isinstance(s, Polynomial)), default=0)
    n_rounded = max(n_trees, n_terms * CODE_MAX / 2)  # a term's weight is rounded, and its code is as large as that
    coarse = max(1 / scale for scales in quantised.scales for scale in scales)
    floats, n_alike = decisions(draft, X, hpc), 0
    for row, value, wanted in zip(readings_of(program, X), hpc, floats, strict=True):
        made, other = (decide(machine, row, (to_result(value, steps), 0)) for machine in machines)
        assert made == other
        assert made.cost == meter.total(made.sensors, int(made.route == CLOUD))
        if made.trace == wanted.trace:
            n_alike += 1
            assert abs(ldexp(made.result, -steps) - wanted.result) <= 2.0**-steps + (1 + n_rounded) * coarse
    assert n_alike >= 0.9 * len(X)


def test_a_policy_buys_the_dear_sensor_where_it_tells_something() -> None:
    """At the cost of the fixed set of both sensors, a policy that asks only where the first one is unsure is better."""
    p = values(n=1200)
    points = learn(p, ("dag", "static"), quiet=True, jobs=1)
    static = max((x for x in points if x.method == "static"), key=lambda x: x.valid.quality)
    fitting = [x for x in points if x.method == "dag" and x.valid.quality >= static.valid.quality - 0.02]
    assert min(x.valid.cost for x in fitting) < 0.8 * static.valid.cost


@pytest.mark.parametrize("classifier", ["polynomial", "shared"])
def test_states_of_a_graph_answer_values_and_stop_by_squared_errors(classifier: str) -> None:
    p = values(n=300)
    rows = DagRows(Judge(p), all_subsets(2), 2)
    bank = make_bank(rows, classifier)
    losses = stop_losses(rows, bank)
    assert losses == pytest.approx(np.square(np.column_stack([one.answers for one in bank]) - p.train.y[:, None]))
    assert cloud_losses(rows, bank)[:, 0] == pytest.approx(np.square(p.train.hpc[:, 0] - p.train.y))
    assert losses[:, -1].mean() < 0.4 * losses[:, 0].mean()  # all sensors against none
    dag = Dag(rows, classifier, known=bank, forwards=False, n_passes=1)
    free, dear = dag.point(0.0, {}), dag.point(99.0, {})
    assert dear.valid.cost == 0 < 1 < free.valid.cost
    assert free.valid.quality > dear.valid.quality + 0.5
    judged = Judge(p).problem.valid
    assert R2(judged.y, Batch(free.program, judged.X).run(judged.hpc_label).label) > 0.5


def test_rows_leave_a_stage_where_it_is_sure_enough_and_the_program_agrees() -> None:
    p = values()
    search = SubsetSearch(Judge(p), 1)
    chain = [(0,), (0, 1)]
    staged = StagedPolicy(search.judge, chain, search.models(chain))
    sure = staged.sures[0]
    cuts = {0: Cut(float(np.quantile(sure, 0.5)) + 1e-9), 1: Cut(-1e6)}
    ends = staged.ends(0, cuts[0])
    assert 0.3 < ends.mean() < 0.7
    point = staged.finish(staged.point("cascade", {}, cuts))
    found = search.judge.run(point.program, staged.models)
    assert (found.cost < 2).tolist() == ends.tolist()
    wrong = np.square(staged.stops[0].label - search.judge.y)
    assert wrong[ends].mean() < wrong[~ends].mean() / 3
    assert staged.choices.stages[0].wrong[ends].mean() == pytest.approx(wrong[ends].mean(), rel=0.5)


def test_forests_are_offered_for_values_of_few_rows() -> None:
    search = SubsetSearch(Judge(values("auto")), 1)
    (model,) = search.models([(0, 1)], "forest")
    away = model.scores[:, 0] - search.judge.y
    assert model.scores.shape[1] == 2
    assert np.mean(np.square(away)) < 0.15
    assert np.corrcoef(model.scores[:, 1], np.log(np.square(away) + 1e-4))[0, 1] > 0.2


NO_VALUES = [m for m, cls in METHODS.items() if m not in TAKE_VALUES and not cls.method.is_baseline]


@pytest.mark.parametrize("name", NO_VALUES)
def test_a_method_of_classes_alone_says_so(name: str) -> None:
    with pytest.raises(InputError, match=f"the method {name} predicts classes, not values; use "):
        learn(values(), (name,), quiet=True, jobs=1)


def test_f0_is_the_point_of_all_values_forwarded() -> None:
    p = values()
    point = hpc_point(Judge(p))
    assert point.valid.quality == pytest.approx(R2(Judge(p).y, Judge(p).hpc_label))
    assert point.valid.forward_rate == 1.0


def test_slopes_of_squared_losses_are_finite_differences() -> None:
    rng = np.random.default_rng(0)
    y, weight, q = rng.normal(size=7), rng.random(7) + 0.1, rng.random(7)
    for loss, width in ((SquaredLoss(y, weight), 1), (AdaptLoss(SquaredLoss(y, weight), q), 2)):
        check_slopes(loss, rng.normal(size=(7, width)))


def test_one_value_in_all_rows_is_refused() -> None:
    with pytest.raises(InputError, match="the same value 3 in all training rows"):
        make_problem(np.random.default_rng(0).random((50, 2)), np.full(50, 3.0), np.ones(50), 0, None, None, 1.0, 0)
