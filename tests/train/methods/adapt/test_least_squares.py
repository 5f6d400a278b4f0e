# SPDX-License-Identifier: Apache-2.0
"""ADAPT-LSTSQ: its step over q against brute force, its gate against least squares, its objective against itself."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import kl_div, logit

from hardcase_edge.errors import InputError
from hardcase_train.linear.part import make_standard
from hardcase_train.methods.adapt.least_squares import AdaptLstsq, LogOddsLoss, log_odds_step, nearest_log_odds
from hardcase_train.policy.losses import ClassLoss, sigmoid
from hardcase_train.policy.selection import Judge
from tests.helpers.train.problems import make_problem, weighted

STIFFNESS = 0.125
SIZES = st.floats(-30, 30)


def cost(u, excess, g, stiffness):
    return sigmoid(u) * excess + stiffness * (u - g) ** 2


@given(excess=st.floats(-400, 400), g=SIZES, stiffness=st.floats(0.01, 10))
@example(excess=39.98, g=-0.0768, stiffness=0.125)  # Newton's steps alone go round in a circle
@example(excess=2.6, g=0.0, stiffness=0.125)  # about where a second minimum appears
@example(excess=20.0, g=16.0, stiffness=0.5)  # two minima, nearly as good
@example(excess=0.0, g=3.0, stiffness=1.0)
@settings(max_examples=120)
def test_no_log_odds_are_better_than_the_nearest(excess, g, stiffness):
    found = nearest_log_odds(np.array([excess]), np.array([g]), stiffness)[0]
    reach = abs(excess) / (8 * stiffness)  # the sigmoid is nowhere steeper than a quarter
    grid = np.unique(np.concatenate([g + reach * np.linspace(-1.1, 1.1, 4001), np.linspace(-40, 40, 4001), [g]]))
    best = cost(grid, excess, g, stiffness).min()
    assert cost(found, excess, g, stiffness) <= best + 1e-9 * (1 + abs(best))


def step_objective(q, excess, g, weight):
    return np.average(q * excess + STIFFNESS * (logit(q) - g) ** 2, axis=-1, weights=weight)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("p_full", [0.05, 0.3, 0.9])
def test_no_q_with_as_small_a_mean_is_better(seed, p_full):
    """Every q of a fine grid over three rows, with weights; the rows are such that some have two minima."""
    rng = np.random.default_rng(seed)
    excess, g, weight = rng.normal(0, 3, 3), rng.normal(0, 2, 3), rng.uniform(0.5, 2, 3)
    u, beta = log_odds_step(excess, g, p_full, STIFFNESS, weight)
    mean = np.average(sigmoid(u), weights=weight)
    assert mean <= p_full
    assert beta >= 0
    assert beta == 0 or mean == pytest.approx(p_full, abs=1e-6) or jumps(excess, g, weight, beta)
    axis = sigmoid(np.linspace(-9, 9, 46))
    grid = np.array(list(product(axis, repeat=3)))
    allowed = grid[grid @ weight / weight.sum() <= mean + 1e-12]
    best = step_objective(allowed, excess, g, weight).min(initial=np.inf)
    assert step_objective(sigmoid(u), excess, g, weight) <= best + 1e-9


def jumps(excess, g, weight, beta):
    """Whether the mean falls by a row's leap at this beta."""
    before, after = (
        np.average(sigmoid(nearest_log_odds(excess + b, g, STIFFNESS)), weights=weight)
        for b in (beta * (1 - 1e-6), beta * (1 + 1e-6))
    )
    return before - after > 1e-3


@given(
    excess=st.lists(SIZES, min_size=1, max_size=30),
    g=st.lists(SIZES, min_size=1, max_size=30),
    p_full=st.floats(1e-6, 1.0),
)
@settings(max_examples=100)
def test_the_bound_holds_as_an_inequality_and_beta_is_never_negative(excess, g, p_full):
    n = min(len(excess), len(g))
    excess, g = np.array(excess[:n]), np.array(g[:n])
    u, beta = log_odds_step(excess, g, p_full, STIFFNESS)
    assert sigmoid(u).mean() <= p_full
    assert beta >= 0
    if beta == 0:
        assert u.tolist() == nearest_log_odds(excess, g, STIFFNESS).tolist()


def test_forwarding_dearer_means_forwarding_less_row_by_row():
    rng = np.random.default_rng(0)
    excess, g = rng.normal(0, 5, 500), rng.normal(0, 3, 500)
    steps = [nearest_log_odds(excess + beta, g, STIFFNESS) for beta in np.linspace(0, 20, 50)]
    assert (np.diff(steps, axis=0) <= 1e-9).all()


def test_an_eighth_is_the_stiffness_of_kl_near_even_odds():
    u = np.array([1e-3, -2e-3])
    q, p = sigmoid(u), np.array([0.5, 0.5])
    kl = kl_div(q, p) + kl_div(1 - q, 1 - p)
    assert pytest.approx(STIFFNESS * u**2, rel=1e-3) == kl
    assert AdaptLstsq().stiffness == STIFFNESS


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_losss_slope_is_that_of_its_value(n_classes):
    rng = np.random.default_rng(0)
    loss = LogOddsLoss(
        ClassLoss(rng.integers(0, n_classes, 20), n_classes, rng.uniform(0.1, 2, 20)), rng.normal(size=20), 0.3
    )
    scores = rng.normal(size=(20, loss.classes.n_outputs + 1))
    _, slope = loss.value_and_slope(scores)
    for i, k in product(range(0, 20, 7), range(scores.shape[1])):
        up, down = scores.copy(), scores.copy()
        up[i, k] += 1e-5
        down[i, k] -= 1e-5
        difference = loss.value_and_slope(up)[0] - loss.value_and_slope(down)[0]
        assert slope[i, k] == pytest.approx(difference / 2e-5, abs=1e-7)


# ---------------------------------------------------------------- the learner


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("p_full", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.01])
def test_the_objective_never_rises(n_classes, p_full, gamma):
    weight = np.random.default_rng(0).uniform(0.1, 3.0, 90)
    judge = Judge(weighted(make_problem(n_classes, n=90), weight))
    model = AdaptLstsq(p_full=p_full, gamma=gamma, n_rounds=8, is_refitted=False).learn(judge)
    assert len(model.objective_) >= 3
    assert (np.diff(model.objective_) <= 1e-12).all()
    assert np.average(sigmoid(model.hidden_), weights=weight) <= p_full + 1e-12


def test_without_penalty_the_gate_is_the_least_squares_fit_to_the_log_odds():
    weight = np.random.default_rng(1).uniform(0.5, 2, 100)
    problem = weighted(make_problem(2, n=100), weight)
    model = AdaptLstsq(p_full=0.3, l2=0.0, n_rounds=2, is_refitted=False)
    model.learn(Judge(problem))
    Z = make_standard(problem.train.X, weight).transform(problem.train.X)
    root = np.sqrt(weight)[:, None]
    fit, *_ = np.linalg.lstsq(root * np.column_stack([Z, np.ones(100)]), root[:, 0] * model.hidden_, rcond=None)
    assert model.coef_[:, -1] == pytest.approx(fit, abs=1e-3)  # the solver stops at a slope of 1e-4


def test_groups_are_shared_by_gate_and_classes_and_exactly_zero():
    judge = Judge(make_problem(n=150))
    owner = judge.problem.sensor_of
    for gamma in (0.0, 0.02, 0.05, 5.0):
        model = AdaptLstsq(p_full=0.2, gamma=gamma, n_rounds=5).learn(judge)
        for s in range(3):
            assert model.coef_[:-1][owner == s].any() == (s in model.sensors_)
    assert model.sensors_ == []


@pytest.mark.parametrize("settings", [{"p_full": 0.0}, {"p_full": 1.5}, {"stiffness": 0.0}])
def test_what_log_odds_cannot_hold_is_refused_in_one_line(settings):
    with pytest.raises(InputError, match="expected p_full above 0 and at most 1, and stiffness above 0"):
        AdaptLstsq(**settings).learn(Judge(make_problem()))
