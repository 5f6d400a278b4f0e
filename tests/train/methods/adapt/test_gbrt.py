# SPDX-License-Identifier: Apache-2.0
"""ADAPT-GBRT: the step over q is what its formula says, losses have the slopes they claim, and boosting lowers them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from hardcase_train.data.problem import N_FOLDS
from hardcase_train.methods.adapt.gbrt import AdaptGBRT, _losses
from hardcase_train.methods.adapt.q_step import q_step
from hardcase_train.policy.losses import MAX_STEP, AdaptLoss, ClassLoss, class_outputs, log_probability, sigmoid
from hardcase_train.policy.selection import Judge
from hardcase_train.trees.binning import make_bins
from hardcase_train.trees.boosting import Ensemble, TreeSettings, boost, ensemble_scores
from tests.helpers.train.problems import make_problem

LOSSES = st.lists(st.floats(-30, 30), min_size=1, max_size=40)


def objective(q, a, b):
    """(OPT1), by its own words."""
    inside = np.clip(q, 1e-300, 1 - 1e-16)
    entropy = -(inside * np.log(inside) + (1 - inside) * np.log1p(-inside))
    return np.mean((1 - q) * a + q * b - entropy, axis=-1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("p_full", [0.05, 0.3, 0.9])
def test_q_is_what_a_minimiser_finds(seed, p_full):
    rng = np.random.default_rng(seed)
    a, b = rng.exponential(2.0, 6), rng.exponential(1.0, 6)
    found = minimize(
        objective,
        np.full(6, p_full / 2),
        args=(a, b),
        bounds=[(1e-9, 1 - 1e-9)] * 6,
        constraints=[{"type": "ineq", "fun": lambda q: p_full - q.mean(), "jac": lambda q: np.full(6, -1 / 6)}],
        jac=lambda q, a, b: (b - a + np.log(q) - np.log1p(-q)) / 6,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    q, _ = q_step(a, b, p_full)
    assert objective(q, a, b) == pytest.approx(found.fun, abs=1e-9)
    assert q == pytest.approx(found.x, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_beta_is_the_best_of_a_grid(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(2, 3, 50), rng.normal(0, 1, 50)
    q, beta = q_step(a, b, 0.2)
    grid = np.linspace(0, 20, 20_001)
    q_of = sigmoid(a - b - grid[:, None])
    is_allowed = q_of.mean(axis=1) <= 0.2
    best = grid[is_allowed][objective(q_of[is_allowed], a, b).argmin()]
    assert beta == pytest.approx(best, abs=1.1e-3)
    assert objective(q, a, b) <= objective(sigmoid(a - b - best), a, b) + 1e-12


@given(a=LOSSES, b=LOSSES, p_full=st.floats(1e-6, 1.0))
@settings(max_examples=100)
def test_the_bound_holds_as_an_inequality_and_beta_is_never_negative(a, b, p_full):
    n = min(len(a), len(b))
    a, b = np.array(a[:n]), np.array(b[:n])
    q, beta = q_step(a, b, p_full)
    assert beta >= 0
    assert q.mean() <= p_full
    assert q == pytest.approx(1 / (1 + np.exp(b - a + beta)), abs=1e-9)
    if beta > 0:  # complementary slackness
        assert q.mean() == pytest.approx(p_full, rel=1e-6)
    else:
        assert q == pytest.approx(sigmoid(a - b))


def test_a_bound_of_one_never_binds_and_a_bound_of_zero_forbids_everything():
    a, b = np.array([3.0, -2.0, 9.0]), np.array([0.0, 1.0, -9.0])
    q, beta = q_step(a, b, 1.0)
    assert beta == 0
    assert q == pytest.approx(sigmoid(a - b))
    q, beta = q_step(a, b, 0.0)
    assert (q == 0).all()
    assert beta == np.inf


# ---------------------------------------------------------------- losses


def class_value(scores, y, weight):
    return -weight * log_probability(scores)[np.arange(len(y)), y]


def adapt_value(scores, y, weight, q):
    g = scores[:, -1]
    easy = class_value(scores[:, :-1], y, weight) + weight * np.logaddexp(0, g)
    return (1 - q) * easy + q * weight * np.logaddexp(0, -g)


def slopes(value, scores, step=1e-5):
    """First and second derivative of each row's loss by each score."""
    first, second = np.empty_like(scores), np.empty_like(scores)
    for k in range(scores.shape[1]):
        up, down = scores.copy(), scores.copy()
        up[:, k] += step
        down[:, k] -= step
        first[:, k] = (value(up) - value(down)) / (2 * step)
        second[:, k] = (value(up) - 2 * value(scores) + value(down)) / step**2
    return first, second


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_gradients_and_hessians_are_those_of_the_loss(n_classes):
    rng = np.random.default_rng(n_classes)
    y, weight, q = rng.integers(0, n_classes, 30), rng.uniform(0.1, 2, 30), rng.random(30)
    classes = ClassLoss(y, n_classes, weight)
    scores = rng.normal(size=(30, classes.n_outputs)) * 2
    assert classes.n_outputs == class_outputs(n_classes)
    slope, curve = slopes(lambda s: class_value(s, y, weight), scores)
    for found, wanted in zip(classes.derivatives(scores), (slope, bounded(curve, slope)), strict=True):
        assert found == pytest.approx(wanted, abs=1e-4)
    assert classes.row_loss(scores) == pytest.approx(class_value(scores, y, 1.0))
    both = np.hstack([scores, rng.normal(size=(30, 1)) * 2])
    loss = AdaptLoss(classes, q)
    assert loss.n_outputs == both.shape[1]
    slope, curve = slopes(lambda s: adapt_value(s, y, weight, q), both)
    curve = np.hstack([bounded(curve, slope)[:, :-1], curve[:, -1:]])
    for found, wanted in zip(loss.derivatives(both), (slope, curve), strict=True):
        assert found == pytest.approx(wanted, abs=1e-4)


def bounded(curve: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """A row alone would move its score by at most this."""
    return np.maximum(curve, np.abs(slope) / MAX_STEP)


def test_a_row_whose_class_has_no_probability_moves_its_score_by_a_bounded_step():
    """Newton's own step is 1 / p: leaves of hundreds left a quantised program too few steps for all others."""
    slope, curve = ClassLoss(np.array([0, 1]), 3, np.ones(2)).derivatives(np.array([[-9.0, 9, 0], [0, 0, 0]]))
    assert -slope[0, 0] / curve[0, 0] == pytest.approx(MAX_STEP)
    assert -slope[1, 1] / curve[1, 1] == pytest.approx(3)


def test_losses_stay_finite_at_scores_no_probability_can_hold():
    classes = ClassLoss(np.array([0, 1]), 2, np.ones(2))
    scores = np.array([[800.0, -900.0], [-800.0, 900.0]])
    for part in AdaptLoss(classes, np.array([0.0, 1.0])).derivatives(scores):
        assert np.isfinite(part).all()
    assert np.isfinite(classes.row_loss(scores[:, :1])).all()


def test_the_base_scores_are_the_class_shares():
    y = np.array([0] * 6 + [1] * 3 + [2] * 1)
    base = ClassLoss(y, 4, np.ones(10)).base()
    assert np.exp(base)[:3] / np.exp(base)[:3].sum() == pytest.approx([0.6, 0.3, 0.1], abs=1e-3)
    assert np.isfinite(base).all()  # class 3 has no row
    assert ClassLoss(y[:9], 2, np.ones(9)).base() == pytest.approx([np.log(0.5)], abs=1e-3)


def test_the_two_sides_of_a_row_are_those_of_the_paper():
    """A = loss of f1 + log(1 + e^g), B = loss of f0 + log(1 + e^-g)."""
    y = np.array([0, 1, 1])
    scores = np.array([[0.5, 1.0], [2.0, -1.0], [-3.0, 0.0]])
    forward = np.array([0.1, 0.2, 0.3])
    a, b = _losses(ClassLoss(y, 2, np.ones(3)), scores, forward)
    sign = np.where(y == 1, 1, -1)
    assert a == pytest.approx(np.log1p(np.exp(-sign * scores[:, 0])) + np.log1p(np.exp(scores[:, 1])))
    assert b == pytest.approx(forward + np.log1p(np.exp(-scores[:, 1])))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_every_tree_lowers_the_loss(n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (np.abs(X[:, 0]) * n_classes / 3).astype(int) % n_classes
    q = rng.random(200)
    bins = make_bins(X, ("f64",) * 3, 32)
    codes = bins.transform(X)
    loss = AdaptLoss(ClassLoss(y, n_classes, np.ones(200)), q)
    ensemble = Ensemble(bins, np.arange(3), np.zeros(loss.n_outputs))
    scores = np.zeros((200, loss.n_outputs))
    values = [adapt_value(scores, y, 1.0, q).mean()]
    for _ in range(15):
        boost(ensemble, loss, codes, np.arange(3), scores, np.zeros(3), TreeSettings(l2=0.1), 1)
        values.append(adapt_value(scores, y, 1.0, q).mean())
    assert (np.diff(values) < 0).all()
    assert len(ensemble.trees) == 15
    assert scores == pytest.approx(ensemble_scores(ensemble, codes))


# ---------------------------------------------------------------- the whole learner


def test_with_no_forwarding_allowed_the_gate_learns_that_nothing_is_hard(monkeypatch):
    """p_full = 0 is GreedyMiser: q is 0 for every row."""
    seen = []

    def watched(*args):
        seen.append(q_step(*args))
        return seen[-1]

    monkeypatch.setattr("hardcase_train.methods.adapt.gbrt.q_step", watched)
    model = AdaptGBRT(p_full=0.0, n_rounds=2, trees_per_round=4).learn(Judge(make_problem()))
    assert len(seen) == 3
    assert all((q == 0).all() for q, _ in seen)
    assert model.trained_.scores[:, -1].max() < 0


def test_more_forwarding_allowed_means_more_rows_called_hard():
    judge = Judge(make_problem(n=200))
    hard = [
        float((AdaptGBRT(p_full=p, trees_per_round=8).learn(judge).trained_.scores[:, -1] > 0).mean())
        for p in (0.02, 0.3, 1.0)
    ]
    assert hard == sorted(hard)
    assert hard[0] < hard[-1]


@pytest.mark.parametrize(("gamma", "expected"), [(0.0, {0, 1, 2}), (0.01, {0, 1}), (0.1, {0}), (1e6, set())])
def test_dear_sensors_are_bought_last_and_twins_use_the_models_sensors_only(gamma, expected, monkeypatch):
    twins = []
    import hardcase_train.methods.adapt.gbrt as module

    class Watched(module.Twin):
        def __init__(self, *args):
            super().__init__(*args)
            twins.append(self)

    monkeypatch.setattr(module, "Twin", Watched)
    model = AdaptGBRT(gamma=gamma, n_rounds=2, trees_per_round=5).learn(Judge(make_problem()))
    bought = set(model.sensors_)
    assert all(set(twin.sensors()) <= bought for twin in twins[1:])
    assert all((twin.penalty == [0.0 if s in bought else np.inf for s in range(3)]).all() for twin in twins[1:])
    assert bought == expected
    assert len(twins) == 1 + N_FOLDS


def test_a_rows_score_comes_from_a_model_that_has_not_seen_it():
    """Labels of one fold are scrambled: scores of that fold's rows must not know."""
    problem = make_problem()
    judge = Judge(problem)
    model = AdaptGBRT(n_rounds=0, trees_per_round=5)
    before = model.learn(judge).trained_.scores
    fold = judge.fold == 1
    y = problem.train.y.copy()
    y[fold] = (y[fold] + 1) % 3
    object.__setattr__(problem.train, "y", y)
    after = model.learn(judge).trained_.scores
    n = len(y)
    assert model.sensors_ == [0, 1, 2]
    assert before[:n][fold].tolist() == after[:n][fold].tolist()
    assert before[:n][~fold].tolist() != after[:n][~fold].tolist()
