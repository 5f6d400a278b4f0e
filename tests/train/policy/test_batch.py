# SPDX-License-Identifier: Apache-2.0
"""Training's batch evaluator decides row by row as the device's session does, for drafts and for what is exported."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from hardcase_edge.more.batch.quality import figures_of
from hardcase_edge.more.batch.scores import scores_of
from hardcase_edge.program.cost import to_unit
from hardcase_edge.program.definition import MARGIN, THRESHOLD, Acquire, Answer, Branch, Forward, Program, Slice, Trees
from hardcase_edge.program.encode import encode
from hardcase_edge.session.session import CLOUD
from hardcase_export.integers.decide import decisions
from hardcase_export.integers.quantise import quantise
from hardcase_train.data.canonical_order import content_order
from hardcase_train.policy import front
from hardcase_train.policy.batch import Batch, Outcome
from hardcase_train.policy.compile import Policy, compile_program
from hardcase_train.policy.front import with_test
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.sweep import train
from hardcase_train.sweep.train import learn
from tests.helpers.train.problems import BRIEF, make_problem

METHODS = ("static", "cascade", "adapt-gbrt", "budget-prune")


@cache
def problem(n_classes):
    return make_problem(n_classes, n=120, seed=n_classes, effort=BRIEF)


@cache
def points(n_classes):
    return learn(problem(n_classes), METHODS, quiet=True)


def agree(program: Program, X: np.ndarray, hpc: np.ndarray) -> Outcome:
    """The batch's outcome, after comparing it with the session's decision on every row."""
    batch = Batch(program, X).run(hpc)
    stated = batch.confidence(program.nodes, np.zeros(len(X)))
    for k, one in enumerate(decisions(program, X, hpc)):
        assert one.result == batch.label[k], k
        assert to_unit(one.cost) == pytest.approx(batch.cost[k], rel=1e-12), k
        assert (one.route == CLOUD) == batch.forwarded[k], k
        assert one.trace[-1] == batch.node[k], k
        assert one.confidence == round(10_000 * stated[k]), k
    return batch


@pytest.mark.parametrize("kind", ["draft", "quantised"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("method", ["hpc", *METHODS])
def test_the_batch_decides_as_the_session_on_every_row(method, n_classes, kind):
    rows = problem(n_classes).test
    assert np.isnan(rows.X[:, 3]).any(), "a sensor must fail in some rows"
    assert np.isnan(rows.X[:, 5]).any(), "a nullable feature must be missing in some"
    mine = [p for p in points(n_classes) if p.method == method]
    assert mine
    for point in mine:
        program = point.program if kind == "draft" else quantise(point.program).program
        agree(program, rows.X, rows.hpc_label)


def test_every_kind_of_end_was_seen_in_those_comparisons():
    outcomes = [Batch(p.program, problem(3).test.X).run(problem(3).test.hpc_label) for p in points(3)]
    assert any(0 < o.forwarded.mean() < 1 for o in outcomes)
    assert any(len(set(o.node)) > 2 for o in outcomes)
    assert any(len(set(o.cost)) > 2 for o in outcomes)


def test_test_figures_are_the_same_whatever_parts_are_compiled_together(monkeypatch):
    found, at_once, joint = points(3), [], front.joint
    monkeypatch.setattr(front, "joint", lambda policies: (at_once.append(len(policies)), joint(policies))[1])
    for most in (10**9, 1):
        monkeypatch.setattr(front, "MOST_NUMBERS", most)
        assert with_test(problem(3), found) == found
    n_groups = len(at_once)
    assert max(at_once) > 1
    with_test(problem(3), found)
    assert len(at_once) - n_groups > n_groups / 2  # of the two calls before


def test_models_that_no_point_uses_are_let_go_before_test_figures(monkeypatch):
    begin, searches, alive = SubsetSearch.__post_init__, [], []
    monkeypatch.setattr(
        SubsetSearch, "__post_init__", lambda self: (searches.append(weakref.ref(self)), begin(self))[1]
    )

    def tested(problem, points, n_jobs=1):
        gc.collect()
        alive.append(sum(search() is not None for search in searches))
        return points

    monkeypatch.setattr(train, "with_test", tested)
    learn(problem(2), ("static",), quiet=True)
    assert searches
    assert alive[-1] == 0


def test_what_a_sweep_returns_holds_no_part_that_no_point_uses():
    policies = [p.policy for p in points(3) if isinstance(p.policy, Policy)]
    held = {id(part) for policy in policies for part in policy.parts if part is not None}
    assert held == {id(policy.parts[k]) for policy in policies for k in policy.used}
    for policy in policies:
        size = sum(len(values) * values.itemsize for values in encode(policy.program(), is_draft=True).values())
        assert 0 <= policy.least_bytes <= size
    assert any(policy.least_bytes for policy in policies)


@pytest.mark.parametrize("rule", [THRESHOLD, MARGIN])
def test_a_branch_passes_over_a_sensor_that_has_failed(rule):
    """The dead sensor's rows are sent on to the other target, whatever the score says."""
    p = problem(3)
    (model,) = SubsetSearch(Judge(p), 1).models([(0, 1, 2)])
    part = Slice(0, 0, 3) if rule == MARGIN else Slice(0, 0, 1)
    first = compile_program(p, [model.part], (Acquire((1,), 1, 1), Answer(part)))
    said = Batch(first, p.test.X).run(p.test.hpc_label)
    below_zero = rule == THRESHOLD and said.label == 0
    middle = float(np.median(np.where(below_zero, -said.margin, said.margin))) + 1e-9  # no row lies on the edge itself
    nodes = (
        Acquire((1,), 1, 1),
        Branch(part, rule, (2, 4), middle),
        Acquire((0, 1), 3, 3),  # sensor 1 again: out of reach where it failed
        Forward((0, 1, 2), 4),
        Acquire((2,), 5, 6),
        Answer(Slice(0, 0, 3)),
        Answer(Slice(0, 0, 3)),
    )
    outcome = agree(compile_program(p, [model.part], nodes), p.test.X, p.test.hpc_label)
    failed = np.isnan(p.test.X[:, 3])
    assert not outcome.forwarded[failed].any()
    assert 0.2 < outcome.forwarded[~failed].mean() < 0.8


@pytest.mark.parametrize("method", ["cascade", "adapt-gbrt"])
def test_compiled_code_scores_trees_bit_for_bit_as_numpy_does(method):
    seen = 0
    for point in points(3):
        for k, scorer in enumerate(point.program.scorers if point.method == method else ()):
            if isinstance(scorer, Trees) and scorer.trees:
                rows = problem(3).test.X
                assert Batch(point.program, rows).scores(k).tobytes() == scores_of(point.program, k, rows).tobytes()
                seen += 1
    assert seen > 1


def test_scores_that_are_given_stand_in_only_where_all_sensors_work():
    p = problem(3)
    (model,) = SubsetSearch(Judge(p), 1).models([(0, 1, 2)])
    program = compile_program(p, [model.part], (Acquire((0, 1, 2), 1, 1), Answer(Slice(0, 0, 3))))
    given = np.tile([0.0, 0.0, 9.0], (len(p.test.y), 1))
    said = Batch(program, p.test.X, [given]).run(p.test.hpc_label)
    own = Batch(program, p.test.X).run(p.test.hpc_label)
    failed = np.isnan(p.test.X[:, 3])
    assert (said.label[~failed] == 2).all()
    assert said.label[failed].tolist() == own.label[failed].tolist()
    assert (own.label != 2).any()


def test_scores_count_only_what_has_been_bought():
    p = problem(3)
    (model,) = SubsetSearch(Judge(p), 1).models([(0, 1, 2)])
    nodes = (Acquire((0,), 1, 1), Answer(Slice(0, 0, 3)))  # two of the scorer's sensors are never bought
    outcome = agree(compile_program(p, [model.part], nodes), p.test.X, p.test.hpc_label)
    blind = p.test.X.copy()
    blind[:, 2:] = 0.0
    assert agree(compile_program(p, [model.part], nodes), blind, p.test.hpc_label).label.tolist() == (
        outcome.label.tolist()
    )


def test_outcomes_are_chosen_row_by_row():
    def outcome(k):
        return Outcome(*(np.full(3, v) for v in (k, float(k), bool(k), k / 2, 10 * k)))

    mixed = outcome(1).where(np.array([True, False, True]), outcome(0))
    assert mixed.label.tolist() == [1, 0, 1]
    assert mixed.cost.tolist() == [1.0, 0.0, 1.0]
    assert mixed.forwarded.tolist() == [True, False, True]
    assert mixed.margin.tolist() == [0.5, 0.0, 0.5]
    assert mixed.node.tolist() == [10, 0, 10]
    assert figures_of(mixed, np.array([1, 1, 1])).to_json() == {
        "quality": pytest.approx(2 / 3),
        "cost": pytest.approx(2 / 3),
        "forward_rate": pytest.approx(2 / 3),
    }


def test_figures_of_a_point_are_those_of_its_program_on_test_rows():
    p = problem(3)
    for point in points(3):
        made = decisions(point.program, p.test.X, p.test.hpc_label)
        assert point.test.quality == pytest.approx(
            np.mean([d.result == y for d, y in zip(made, p.test.y, strict=True)])
        )
        assert point.test.cost == pytest.approx(np.mean([to_unit(d.cost) for d in made]))
        assert point.test.forward_rate == pytest.approx(np.mean([d.route == CLOUD for d in made]))


# ---------------------------------------------------------------- choices never see test rows


def test_poisoned_test_rows_change_neither_choices_nor_programs():
    """All that learning decides stays the same when test and calibration rows and their labels are nonsense."""
    p = problem(3)
    rng = np.random.default_rng(9)
    n = len(p.test.y)
    nonsense = replace(p.test, X=rng.normal(size=p.test.X.shape) * 1e6, y=rng.integers(0, 3, n), hpc=rng.random((n, 3)))
    poisoned = learn(replace(p, test=nonsense, calibration=nonsense), METHODS, quiet=True)
    clean = points(3)
    assert [(q.method, q.params, q.valid, q.program) for q in poisoned] == [
        (q.method, q.params, q.valid, q.program) for q in clean
    ]
    assert [q.test for q in poisoned] != [q.test for q in clean]


def test_calibration_rows_change_with_the_problem_as_test_rows_do():
    p = replace(problem(3), calibration=problem(3).test)
    proba = np.random.default_rng(0).random((3 * len(p.test.y), 3))
    changed = content_order(p.with_hpc(proba)).ordered()
    assert changed.calibration.X.tobytes() == changed.test.X.tobytes() != p.test.X.tobytes()
    assert changed.calibration.hpc.tobytes() == changed.test.hpc.tobytes() == proba[p.test.index].tobytes()
    assert content_order(problem(3).with_hpc(proba)).ordered().calibration is None


def test_the_judged_rows_are_training_and_validation_rows():
    p = problem(3)
    judge = Judge(p)
    assert judge.X.tobytes() == np.vstack([p.train.X, p.valid.X]).tobytes()
    assert judge.y.tolist() == [*p.train.y, *p.valid.y]
    assert np.bincount(judge.fold).min() >= len(p.train.y) // 4
    outcome = Batch(points(3)[0].program, judge.X).run(judge.hpc_label)  # f0 itself loses nothing to f0
    assert judge.summary(outcome).loss_se == 0.0


def test_local_figures_are_shares_of_the_rows_that_are_answered_locally():
    judge = Judge(problem(3))
    n = len(judge.y)
    other = (judge.y + 1) % 3
    object.__setattr__(judge, "hpc_label", np.where(np.arange(n) % 2 == 0, judge.y, other))
    forwarded, zeros = np.arange(n) >= 40, np.zeros(n)
    wrong = np.isin(np.arange(n), [0, 2, 4, 5])  # of the first 40, f0 is wrong in the odd ones
    label = np.where(forwarded, judge.hpc_label, np.where(wrong, other, judge.y))
    figures = judge.summary(Outcome(label, zeros, forwarded, zeros, zeros))
    assert [getattr(figures, k) for k in ("local_error", "local_worse", "local_better")] == [4 / 40, 3 / 40, 19 / 40]
    everything = judge.summary(Outcome(judge.hpc_label, zeros, np.ones(n, bool), zeros, zeros))
    assert everything.local_error == 0.0


def test_the_standard_error_is_that_of_the_paired_loss():
    p = problem(3)
    judge = Judge(p)
    wrong = np.arange(len(judge.y)) % 10 == 0
    object.__setattr__(judge, "hpc_label", judge.y)
    label = np.where(wrong, (judge.y + 1) % 3, judge.y)
    zeros = np.zeros(len(label))
    figures = judge.summary(Outcome(label, zeros, zeros.astype(bool), zeros, zeros))
    share = wrong.mean()
    assert figures.loss_se == pytest.approx(np.sqrt(share * (1 - share) / len(label)))
    assert figures.cost_se == 0.0


def test_the_standard_error_of_the_cost_is_that_of_its_mean():
    judge = Judge(problem(3))
    cost = np.random.default_rng(1).exponential(5.0, len(judge.y))
    zeros = np.zeros(len(cost))
    figures = judge.summary(Outcome(judge.y, cost, zeros.astype(bool), zeros, zeros))
    assert figures.cost == pytest.approx(cost.mean())
    assert figures.cost_se == pytest.approx(cost.std() / np.sqrt(len(cost)))


def test_test_figures_are_added_and_nothing_else_changes():
    p = problem(3)
    point = replace(points(3)[1], test={})
    (found,) = with_test(p, [point])
    assert found.test == points(3)[1].test
    assert replace(found, test={}) == point  # its policy is the same object
