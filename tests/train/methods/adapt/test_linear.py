# SPDX-License-Identifier: Apache-2.0
"""ADAPT-LIN: its solver against others, its alternation against its own objective, its program against itself."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from hardcase_edge.program.cost import to_unit
from hardcase_edge.session.session import CLOUD
from hardcase_export.integers.decide import decisions
from hardcase_export.integers.quantise import quantise
from hardcase_train.data.problem import Rows
from hardcase_train.linear.part import linear_rows, make_standard
from hardcase_train.linear.proximal import Groups, minimise
from hardcase_train.methods.adapt.gate_thresholds import adapt_nodes, gated_points
from hardcase_train.methods.adapt.linear import AdaptLin
from hardcase_train.methods.adapt.linear_paths import sensor_groups, step_value
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.compile import compile_program
from hardcase_train.policy.losses import AdaptLoss, ClassLoss
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.toml import read_config
from hardcase_train.tasks.task import make_task
from tests.helpers.places import ROOT
from tests.helpers.train.problems import make_problem, weighted

RIG = ROOT / "examples" / "hydraulic" / "hardcase.toml"
EXACT = {"tolerance": 1e-9, "max_steps": 20_000}


def some_rows(n_classes, n=60, p=4, seed=0):
    """Z, an ADAPT loss over it, and weights whose sum is not n."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, p))
    y = np.digitize(Z[:, 0] + 0.5 * Z[:, 2] + rng.normal(size=n), np.linspace(-1, 1, n_classes + 1)[1:-1])
    classes = ClassLoss(y, n_classes, rng.uniform(0.2, 2.0, n))
    return Z, AdaptLoss(classes, rng.random(n)), float(classes.weight.sum())


# ---------------------------------------------------------------- the solver


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_a_losss_sum_and_slope_are_those_of_its_rows(n_classes):
    rng = np.random.default_rng(n_classes)
    _, loss, _ = some_rows(n_classes)
    scores = rng.normal(size=(60, loss.n_outputs)) * 20
    value, slope = loss.value_and_slope(scores)
    c, g = loss.classes, scores[:, -1]
    easy = (1 - loss.q) * (c.row_loss(scores[:, :-1]) + np.logaddexp(0, g))
    assert value == pytest.approx(c.weight @ (easy + loss.q * np.logaddexp(0, -g)), rel=1e-12)
    assert slope == pytest.approx(loss.derivatives(scores)[0], abs=1e-12)
    value, slope = c.value_and_slope(scores[:, :-1])
    assert value == pytest.approx(c.weight @ c.row_loss(scores[:, :-1]), rel=1e-12)
    assert slope == pytest.approx(c.derivatives(scores[:, :-1])[0], abs=1e-12)


def test_a_loss_is_finite_at_scores_whose_exponentials_are_not():
    for scores in (np.array([[900.0], [-900.0]]), np.array([[900.0, -900.0, 0.0], [-900.0, 900.0, 800.0]])):
        value, slope = ClassLoss(np.array([0, 1]), max(2, scores.shape[1]), np.ones(2)).value_and_slope(scores)
        assert np.isfinite(value)
        assert np.isfinite(slope).all()


@given(seed=st.integers(0, 1000), step=st.floats(0.01, 3.0))
@settings(max_examples=30)
def test_the_proximal_step_is_the_nearest_point_that_pays_its_norm(seed, step):
    """min_w |w - v|^2 / 2 + step * price * |w|, group by group, over a ray and its neighbourhood."""
    rng = np.random.default_rng(seed)
    groups = Groups(np.array([[0, 0], [1, 1], [0, 0], [2, 2]]), np.array([0.7, 0.0, np.inf]))
    v = rng.normal(size=(4, 2)) * rng.choice([0.1, 1, 5])
    found = groups.shrink(v, step)

    def cost(w):
        return 0.5 * np.square(w - v).sum() + step * groups.penalty(w)

    assert (found[3] == 0).all()
    assert found[1].tolist() == v[1].tolist()
    here = cost(found)
    for scale in (1e-4, 1e-2, 1.0):
        for _ in range(100):
            other = found + rng.normal(size=(4, 2)) * scale
            other[3] = 0
            assert cost(other) >= here - 1e-12
    for factor in np.linspace(0, 1, 201):
        other = found.copy()
        other[[0, 2]] = v[[0, 2]] * factor
        assert cost(other) >= here - 1e-12


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("gamma", [0.005, 0.03, 0.1])
def test_the_weights_are_those_a_generic_convex_solver_finds(n_classes, gamma):
    """BFGS on the same problem with norms rounded off at zero, less and less: |w| becomes sqrt(|w|^2 + e^2)."""
    Z, loss, total = some_rows(n_classes)
    owner, m = np.array([0, 1, 1, 2]), loss.n_outputs
    groups = Groups(np.repeat(owner[:, None], m, axis=1), gamma * np.array([1.0, 2.0, 0.5]))

    def rounded(x, e):
        coef = x.reshape(5, m)
        W = coef[:-1]
        value, slope = loss.value_and_slope(Z @ W + coef[-1])
        norms = np.sqrt(groups.norms(W) ** 2 + e**2)
        gradient = np.vstack([Z.T @ slope, slope.sum(axis=0)]) / total
        gradient[:-1] += 0.01 * W + (groups.price / norms)[owner, None] * W
        return value / total + 0.005 * np.square(W).sum() + groups.price @ norms, gradient.ravel()

    x = np.zeros(5 * m)
    for e in 0.1 ** np.arange(1, 7):
        x = minimize(rounded, x, args=(e,), jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000}).x
    coef = minimise(loss, Z, total, groups, np.zeros((5, m)), l2=0.01, **EXACT)
    mine, theirs = rounded(coef.ravel(), 1e-12)[0], rounded(x, 1e-12)[0]
    assert mine <= theirs + 1e-10
    assert mine == pytest.approx(theirs, abs=1e-6)
    assert coef == pytest.approx(x.reshape(5, m), abs=1e-3)


def test_the_solver_never_ends_above_where_it_began():
    Z, loss, total = some_rows(3)
    groups = Groups(np.repeat(np.arange(4)[:, None], 4, axis=1), np.full(4, 0.05))

    def value(coef):
        return loss.value_and_slope(Z @ coef[:-1] + coef[-1])[0] / total + groups.penalty(coef[:-1])

    coef = np.random.default_rng(0).normal(size=(5, 4)) * 5
    values = [value(coef)]
    for _ in range(60):
        coef = minimise(loss, Z, total, groups, coef, max_steps=25)
        values.append(value(coef))
    assert (np.diff(values) <= 0).all()
    assert values[-1] == pytest.approx(value(minimise(loss, Z, total, groups, coef, **EXACT)), abs=1e-5)


def test_the_first_sensor_is_bought_just_below_the_gamma_that_its_slope_says():
    problem = make_problem()
    standard = make_standard(problem.train.X)
    rows = linear_rows(problem, standard.transform(problem.train.X))
    top = step_value(problem, rows).max()
    for gamma, is_bought in ((top * 1.001, False), (top * 0.999, True)):
        groups = sensor_groups(problem, gamma, 3)
        coef = minimise(rows.classes, rows.Z, rows.total, groups, np.zeros((7, 3)), **EXACT)
        assert coef[:-1].any() == is_bought


# ---------------------------------------------------------------- the alternation


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("p_full", [0.0, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.01])
def test_the_objective_never_rises(n_classes, p_full, gamma):
    weight = np.random.default_rng(0).uniform(0.1, 3.0, 90)
    judge = Judge(weighted(make_problem(n_classes, n=90), weight))
    model = AdaptLin(p_full=p_full, gamma=gamma, n_rounds=8, is_refitted=False).learn(judge)
    assert len(model.objective_) >= 3
    assert (np.diff(model.objective_) <= 1e-12).all()
    assert np.average(model.hidden_, weights=weight) <= p_full + 1e-12


def test_unbought_sensors_have_weights_of_exactly_zero_and_fewer_are_bought_as_gamma_grows():
    judge = Judge(make_problem(n=200))
    owner = judge.problem.sensor_of
    bought, model = [], None
    for gamma in (10.0, 0.1, 0.03, 0.005, 0.0):
        model = AdaptLin(p_full=0.2, gamma=gamma).learn(judge, model)
        bought.append(set(model.sensors_))
        for weights in (model.coef_[:-1], model.trained_.part.weights):
            for s in range(3):
                assert weights[owner == s].any() == (s in model.sensors_)
                assert weights[owner == s].all() or s not in model.sensors_  # a group is whole
    assert bought[0] == set()
    assert bought[-1] == {0, 1, 2}
    assert any(0 < len(b) < 3 for b in bought)
    assert [len(b) for b in bought] == sorted(len(b) for b in bought)


def test_only_what_is_within_reach_is_bought():
    model = AdaptLin(p_full=0.2).learn(Judge(make_problem()), only=[1])
    assert model.sensors_ == [1]


def test_a_row_of_weight_two_counts_as_two_rows():
    problem = make_problem(n=80, missing=0.0)
    weight = np.ones(80)
    weight[::4], weight[1::4] = 2, 0
    rows = problem.train
    twice = np.repeat(np.arange(80), weight.astype(int))
    copied = Rows(rows.X[twice], rows.y[twice], rows.hpc[twice], rows.index[twice])
    one = AdaptLin(gamma=0.01, n_rounds=3, is_refitted=False).learn(Judge(weighted(problem, weight)))
    other = AdaptLin(gamma=0.01, n_rounds=3, is_refitted=False).learn(Judge(replace(problem, train=copied)))
    assert one.coef_ == pytest.approx(other.coef_, abs=1e-6)
    assert one.objective_ == pytest.approx(other.objective_, abs=1e-9)


def test_a_rows_score_comes_from_a_model_that_has_not_seen_it():
    """Labels of one fold are scrambled: scores of that fold's rows must not know."""
    problem = make_problem()
    judge = Judge(problem)
    model = AdaptLin(n_rounds=0)
    before = model.learn(judge).trained_.scores
    fold = judge.fold == 1
    y = problem.train.y.copy()
    y[fold] = (y[fold] + 1) % 3
    after = model.learn(Judge(replace(problem, train=replace(problem.train, y=y)))).trained_.scores
    n = len(y)
    assert before[:n][fold].tolist() == after[:n][fold].tolist()
    assert before[:n][~fold].tolist() != after[:n][~fold].tolist()


def test_a_missing_reading_counts_as_the_mean():
    problem = make_problem()
    part = AdaptLin().learn(Judge(problem)).trained_.part
    X = problem.test.X[:20].copy()
    X[:, 5] = np.nan
    filled = X.copy()
    filled[:, 5] = np.nanmean(problem.train.X[:, 5])
    assert part.scores(part.standard.transform(X)) == pytest.approx(part.scores(part.standard.transform(filled)))


# ---------------------------------------------------------------- the program


def agree(program, rows):
    """The batch's outcome on these rows, after comparing it with the session's decision on each."""
    batch = Batch(program, rows.X).run(rows.hpc_label)
    for k, one in enumerate(decisions(program, rows.X, rows.hpc_label)):
        assert (one.result, one.route == CLOUD, one.trace[-1]) == (
            batch.label[k], batch.forwarded[k], batch.node[k],
        )  # fmt: skip
        assert to_unit(one.cost) == pytest.approx(batch.cost[k], rel=1e-12)
    return batch


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_draft_decides_as_the_estimator_on_every_row_and_the_device_as_both(n_classes):
    problem = make_problem(n_classes, n=120, seed=n_classes)
    judge = Judge(problem)
    model = AdaptLin(p_full=0.3, gamma=0.002, n_rounds=5).learn(judge)
    part = model.trained_.part
    points = gated_points(judge, "adapt-lin", model, {}, (0.1, 0.3))
    assert points
    for point in points[:: max(1, len(points) // 4)]:
        draft = agree(point.program, problem.test)
        whole = ~np.isnan(problem.test.X[:, 3])  # elsewhere a sensor has failed, of which the estimator knows nothing
        scores = part.scores(part.standard.transform(problem.test.X))
        g, classes = scores[:, -1], scores[:, :-1]
        margin = np.abs(classes[:, 0]) if n_classes == 2 else np.ptp(np.sort(classes, axis=1)[:, -2:], axis=1)
        hard = (g > point.params["gate"]) & (margin < point.params["margin"])
        said = (classes[:, 0] > 0).astype(int) if n_classes == 2 else classes.argmax(axis=1)
        assert draft.forwarded[whole].tolist() == hard[whole].tolist()
        assert draft.label[whole & ~hard].tolist() == said[whole & ~hard].tolist()
        agree(quantise(point.program).program, problem.test)


@cache
def rig():
    """The rig's task with a quick f0 and one training row in four."""
    task = make_task(read_config(RIG).but(estimator="KNeighborsClassifier", params={}))
    few = task.problem.train
    few = Rows(few.X[::4], few.y[::4], few.hpc[::4], few.index[::4])
    return replace(task.problem, train=few)


def test_on_the_rig_integers_decide_as_floats_in_999_rows_of_1000():
    problem = rig()
    judge = Judge(problem)
    model = AdaptLin(p_full=0.2, gamma=3e-4, n_rounds=5).learn(judge)
    assert 3 < len(model.sensors_) < 17
    gate = float(np.quantile(model.trained_.scores[:, -1], 0.8))
    nodes = adapt_nodes(problem, model.sensors_, gate, 8.0)
    draft = compile_program(problem, [model.trained_.part], nodes)
    X = np.vstack([rows.X for rows in (problem.train, problem.valid, problem.calibration, problem.test)])
    hpc = np.zeros(len(X), dtype=np.int64)
    floats, integers = Batch(draft, X).run(hpc), Batch(quantise(draft).program, X).run(hpc)
    assert 0.05 < floats.forwarded.mean() < 0.5
    same = (floats.label == integers.label) & (floats.forwarded == integers.forwarded)
    assert len(X) > 1000
    assert same.mean() >= 0.999
    few = replace(problem.test, X=problem.test.X[:40], y=problem.test.y[:40], hpc=problem.test.hpc[:40])
    agree(quantise(draft).program, few)
