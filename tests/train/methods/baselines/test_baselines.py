# SPDX-License-Identifier: Apache-2.0
"""GreedyMiser and the L1 baseline, the figures that show what joint learning is for, and all methods by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from benchmarks.synthetic_data import synthetic_1, synthetic_2, toy_problem
from hardcase_edge.program.definition import Acquire, Answer
from hardcase_export.integers.quantise import quantise
from hardcase_train.data import from_arrays
from hardcase_train.linear.part import linear_rows, make_standard
from hardcase_train.linear.proximal import minimise
from hardcase_train.methods import AUTO, METHODS
from hardcase_train.methods.adapt.gbrt import AdaptGBRT
from hardcase_train.methods.adapt.l1_baseline import L1Baseline, weight_groups
from hardcase_train.methods.adapt.stages import GreedyMiser
from hardcase_train.policy.compile import n_nodes
from hardcase_train.policy.losses import log_probability
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.config import DEFAULT_METHODS, Config
from hardcase_train.settings.effort import NORMAL
from hardcase_train.settings.statement import stated
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.sweep.train import learn, points_of
from hardcase_train.trees.boosting import TreeSettings
from tests.helpers.train.problems import LEAST, make_problem, plain

# ---------------------------------------------------------------- GreedyMiser


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("gamma", [0.0, 0.005, 0.02])
def test_greedy_miser_is_adapt_gbrt_where_nothing_may_be_forwarded_tree_for_tree(n_classes, gamma):
    """Without a ridge on leaves: there the gate, alike for all rows, adds exactly nothing to a split's gain."""
    settings = TreeSettings(learning_rate=0.3, max_leaves=6, max_depth=3, min_rows=10, l2=0.0, max_bins=16)
    judge = Judge(make_problem(n_classes, n=200))
    miser = GreedyMiser(gamma=gamma, n_trees=12, settings=settings).learn(judge)
    adapt = AdaptGBRT(p_full=0.0, gamma=gamma, n_rounds=2, trees_per_round=4, settings=settings).learn(judge)
    mine, theirs = miser.trained_.part, adapt.trained_.part
    width = mine.base.shape[0]
    assert len(mine.trees) == len(theirs.trees) == 12
    assert any(len(tree.features) for tree in mine.trees[4:])
    for one, other in zip(mine.trees, theirs.trees, strict=True):
        assert one.features.tolist() == other.features.tolist()
        assert one.bins.tolist() == other.bins.tolist()
        assert one.children.tolist() == other.children.tolist()
        assert one.missing_left.tolist() == other.missing_left.tolist()
        assert one.leaves == pytest.approx(other.leaves[:, :width])
    assert miser.sensors_ == adapt.sensors_
    # of the twins, GreedyMiser's know from their first tree on what the model will have bought
    assert miser.trained_.scores[200:] == pytest.approx(adapt.trained_.scores[200:, :-1])


def test_greedy_miser_buys_and_answers_and_never_forwards():
    points = learn(make_problem(effort=replace(NORMAL, n_gammas=3)), ("greedy-miser",), quiet=True)[1:]
    assert {p.method for p in points} == {"greedy-miser"}
    assert {len(p.params["sensors"]) for p in points} >= {0, 3}
    for p in points:
        kinds = [type(node) for node in p.program.nodes]
        assert kinds == [Acquire] * n_nodes(p.params["sensors"]) + [Answer]
        assert p.test.forward_rate == 0
        assert p.test.cost == pytest.approx(sum((1, 5, 20)[s] for s in p.params["sensors"]))
        assert all(tree.width == 3 for tree in p.program.scorers[0].trees)  # no gate is carried along


def test_greedy_miser_has_sets_between_a_few_sensors_and_all():
    """Ten sensors that each say a little: the least gamma of ADAPT-GBRT buys few of them, and no gamma all."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1200)
    X = rng.normal(size=(1200, 10)) + y[:, None] * np.linspace(0.1, 1.2, 10)
    problem = from_arrays.make_problem(X, y, np.ones(1200), 2, None, None, 10.0, 0, effort="quick")
    judge = Judge(problem, is_alone=True)
    sizes = [len(GreedyMiser(**params).learn(judge).sensors_) for params in GreedyMiser.grid(SubsetSearch(judge, 1))]
    assert len({n for n in sizes if 0 < n < 10}) >= 3


# ---------------------------------------------------------------- the L1 baseline


@pytest.mark.parametrize("gamma", [0.02, 0.05, 0.15])
def test_the_first_step_is_the_l1_logistic_regression_of_scikit_learn(gamma):
    """liblinear's cousin saga, whose intercept is free; unit costs."""
    problem = toy_problem([synthetic_2((60, 60, 40, 40), s) for s in (0, 1, 2)], "KNeighborsClassifier", (1, 1))
    rows = linear_rows(problem, make_standard(problem.train.X).transform(problem.train.X))
    coef = minimise(
        rows.classes, rows.Z, rows.total, weight_groups(problem, gamma, 1), np.zeros((3, 1)), tolerance=1e-8
    )
    other = LogisticRegression(
        l1_ratio=1.0, C=1 / (gamma * rows.total), solver="saga", tol=1e-10, max_iter=100_000, random_state=0
    ).fit(rows.Z, rows.classes.y)
    assert coef[:-1, 0] == pytest.approx(other.coef_[0], abs=1e-4)
    assert coef[-1, 0] == pytest.approx(other.intercept_[0], abs=1e-4)


def test_the_gate_says_where_f1_is_wrong_and_both_read_the_selected_sensors():
    problem = make_problem(n=300)
    weight = np.ones(300)
    for gamma, expected in ((0.0, {0, 1, 2}), (0.01, {0, 1}), (100.0, set())):
        model = L1Baseline(gamma=gamma).learn(Judge(problem))
        part = model.trained_.part
        assert set(model.sensors_) == expected
        read = {int(problem.sensor_of[f]) for f in np.flatnonzero(part.weights.any(axis=1))}
        assert read == expected
        scores = part.scores(part.standard.transform(problem.train.X))
        wrong = log_probability(scores[:, :-1]).argmax(axis=1) != problem.train.y
        # a logistic regression with a free bias says as many to be wrong as are
        assert (weight / (1 + np.exp(-scores[:, -1]))).sum() == pytest.approx(wrong.sum(), abs=1.0)
        if expected:
            assert scores[wrong, -1].mean() > scores[~wrong, -1].mean()


def test_a_gate_over_a_model_without_error_is_a_constant():
    parts = [(np.sign(X[:, :1]) * 2 + X[:, :1], (X[:, 0] > 0).astype(int)) for X in
             (np.random.default_rng(s).normal(size=(40, 1)) for s in range(3))]  # fmt: skip
    model = L1Baseline(gamma=0.01).learn(Judge(toy_problem(parts, "KNeighborsClassifier", (1,))))
    weights, bias = model.trained_.part.weights, model.trained_.part.bias
    assert (weights[:, -1] == 0).all()
    assert bias[-1] < -3


# ---------------------------------------------------------------- figures 2 and 3


@pytest.fixture(scope="module")
def figure_3():
    """Clusters 1 and 2 have more rows to learn from, as in the paper; all four count alike in the test."""
    parts = [(synthetic_2((110, 110, 90, 90), s)) for s in (0, 1)] + [synthetic_2((100,) * 4, 2)]
    problem = toy_problem(parts, "KNeighborsClassifier", (1, 1))
    assert (problem.test.hpc_label == problem.test.y).all()
    return problem


def without_error(method, problem):
    """The cheapest policy without error on the judged rows."""
    effort = replace(NORMAL, linear_p_fulls=(0.6,), n_linear_gammas=5)
    points = points_of(method, Judge(replace(problem, effort=effort)))
    return next(p for p in points if p.valid.quality == 1.0)  # by rising cost


def test_the_l1_baseline_stays_at_cost_1_75_where_adapt_lin_reaches_1_5(figure_3):
    """Feature 0 parts cluster 1 from the rest: three clusters are forwarded. Feature 1 parts 1 and 2 from 3 and 4."""
    l1 = without_error("l1", figure_3)
    assert (l1.params["sensors"], l1.test.quality, l1.test.cost) == ([0], 1.0, 1.75)
    lin = without_error("adapt-lin", figure_3)
    assert (lin.params["sensors"], lin.test.quality, lin.test.cost) == ([1], 1.0, 1.5)


def test_no_line_parts_the_classes_of_figure_3(figure_3):
    rows = linear_rows(figure_3, make_standard(figure_3.train.X).transform(figure_3.train.X))
    coef = minimise(rows.classes, rows.Z, rows.total, weight_groups(figure_3, 0.0, 1), np.zeros((3, 1)))
    assert ((rows.scores(coef)[:, 0] > 0) == (rows.classes.y == 1)).mean() < 0.85


def test_figure_2_has_two_easy_sides_that_want_opposite_lines():
    X, y = synthetic_1(2000, 0)
    left, right = X[:, 0] < -1, X[:, 0] > 1
    assert (y[left] == (X[left, 1] > 0)).all()
    assert (y[right] == (X[right, 1] < 0)).all()
    middle = ~left & ~right
    assert 0.2 < y[middle].mean() < 0.8
    one = LogisticRegression().fit(X, y)
    assert one.score(X, y) < 0.65


# ---------------------------------------------------------------- all methods, by name


def test_every_method_has_points_and_auto_is_the_default():
    methods = tuple(m for m, cls in METHODS.items() if not cls.method.needs_order)
    points = learn(make_problem(n=90, effort=LEAST), methods, quiet=True)
    assert {"hpc", *methods} == {p.method for p in points}
    assert stated(Config, "methods").default == DEFAULT_METHODS == (AUTO,)
    for p in points:
        quantise(p.program)
        assert p.test is not None


@pytest.mark.parametrize("method", ["adapt-lin", "adapt-lstsq", "l1"])
def test_the_same_seed_gives_the_same_programs(method):
    problem = make_problem(n=60, effort=LEAST)
    assert plain(points_of(method, Judge(problem))) == plain(points_of(method, Judge(problem)))
