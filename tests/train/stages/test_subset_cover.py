# SPDX-License-Identifier: Apache-2.0
"""Sets that together serve most rows: greedy against every choice there is, lazy against plain, and on a problem."""

from __future__ import annotations

from itertools import chain, combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_train.data.problem import Subset
from hardcase_train.policy.selection import Judge
from hardcase_train.stages import subset_cover as sensor_subsets
from hardcase_train.stages.subset_cover import QuickBank, cover, find_subsets, grow, quick_rewards, total_reward
from hardcase_train.stages.subset_search import SubsetSearch
from tests.helpers.train.problems import make_problem

SURE = 1 - 1 / np.e
many = settings(max_examples=80)


@st.composite
def instances(draw):
    """Rewards of a few sets on a few rows, of two kinds: right or wrong, and anything between; weights and costs."""
    n_sets, n = draw(st.integers(1, 7)), draw(st.integers(1, 8))
    value = draw(st.sampled_from([st.sampled_from([0.0, 1.0]), st.floats(0, 1)]))
    row = st.lists(value, min_size=n, max_size=n)
    rewards = np.array(draw(st.lists(row, min_size=n_sets, max_size=n_sets)))
    weight = np.array(draw(st.lists(st.floats(0.1, 3), min_size=n, max_size=n)))
    costs = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0]), min_size=n_sets, max_size=n_sets)))
    return rewards, weight, costs


def every(n: int) -> list[tuple[int, ...]]:
    return list(chain.from_iterable(combinations(range(n), k) for k in range(n + 1)))


def best_of(rewards, weight, choices) -> float:
    return max(total_reward(rewards[list(c)], weight) for c in choices)


@given(instances(), st.integers(0, 4))
@many
def test_so_many_sets_are_within_1_minus_1_over_e_of_the_best(instance, count):
    rewards, weight, _ = instance
    picked = cover(rewards, weight, count=count)
    assert len(picked) <= count
    best = best_of(rewards, weight, [c for c in every(len(rewards)) if len(c) <= count])
    assert total_reward(rewards[picked], weight) >= SURE * best - 1e-12


@given(instances(), st.floats(0, 12))
@many
def test_sets_of_unequal_cost_are_within_half_of_that(instance, budget):
    rewards, weight, costs = instance
    picked = cover(rewards, weight, costs=costs, budget=budget)
    assert costs[picked].sum() <= budget * (1 + 1e-8)
    best = best_of(rewards, weight, [c for c in every(len(rewards)) if costs[list(c)].sum() <= budget])
    assert total_reward(rewards[picked], weight) >= SURE / 2 * best - 1e-12


@given(instances(), st.floats(0, 12), st.integers(0, 4))
@many
def test_lazy_takes_the_sets_that_plain_greedy_takes(instance, budget, count):
    rewards, weight, costs = instance
    for limits in ({"count": count}, {"costs": costs, "budget": budget}, {"costs": costs, "budget": 3.0, "count": 2}):
        lazy, plain = (cover(rewards, weight, is_lazy=is_lazy, **limits) for is_lazy in (True, False))
        assert lazy == plain


def test_lazy_computes_fewer_gains(monkeypatch):
    asked = []
    gain = sensor_subsets._gain
    monkeypatch.setattr(sensor_subsets, "_gain", lambda *args: asked.append(1) or gain(*args))
    rng = np.random.default_rng(0)
    rewards = (rng.random((60, 400)) < 0.3 * rng.random((60, 1)) ** 4).astype(float)
    counts = []
    for is_lazy in (True, False):
        asked.clear()
        cover(rewards, np.ones(400), count=10, is_lazy=is_lazy)
        counts.append(len(asked))
    assert counts[0] < counts[1] / 2


def test_gain_per_cost_alone_would_miss_the_one_set_that_matters():
    """The classic trap: a trifle that is nearly free leaves no room for the set that serves every row."""
    rewards = np.array([[0.02, 0.0], [1.0, 1.0]])
    costs = np.array([0.001, 10.0])
    assert cover(rewards, np.ones(2), costs=costs, budget=10.0) == [1]


# ---------------------------------------------------------------- growing


def any_of(answers: list[set[int]]):
    """A row is served by each set that has one of its sensors."""
    return lambda subset: np.array([float(bool(a & set(subset))) for a in answers])


@given(st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=6), st.integers(1, 2), st.integers(0, 3))
@many
def test_growth_is_within_1_minus_1_over_e_where_one_sensor_serves_a_row(answers, count, budget):
    reward, weight = any_of(answers), np.ones(len(answers))
    found = grow(reward, np.ones(4), count, budget, weight)
    assert len(found) == count
    assert sum(map(len, found)) <= budget
    best = max(
        total_reward([reward(s) for s in sets], weight)
        for sets in product(every(4), repeat=count)
        if sum(map(len, sets)) <= budget
    )
    assert total_reward([reward(s) for s in found], weight) >= SURE * best - 1e-12


def test_growth_takes_gain_per_cost_and_makes_a_second_set_where_that_serves_other_rows():
    worth: dict[Subset, list[float]] = {(): [0, 0], (0,): [1, 0], (1,): [0, 0.9], (2,): [0, 1], (0, 2): [0.5, 0.5]}

    def reward(subset: Subset) -> np.ndarray:
        return np.array(worth.get(subset, [0.0, 0.0]), dtype=float)

    assert grow(reward, np.array([1.0, 1.0, 5.0]), 2, 10.0, np.ones(2)) == [(0,), (1,)]
    assert grow(reward, np.array([1.0, 9.0, 2.0]), 2, 10.0, np.ones(2)) == [(0,), (2,)]
    assert grow(reward, np.array([1.0, 1.0, 5.0]), 2, 1.0, np.ones(2)) == [(0,), ()]


# ---------------------------------------------------------------- on a problem


@pytest.fixture(scope="module")
def search() -> SubsetSearch:
    return SubsetSearch(Judge(make_problem(3, n=300)), 1)


def test_sets_are_found_within_the_budget_and_all_sensors_stand_last(search):
    found = find_subsets(search, 3, budget=7.0)
    assert found[-1] == (0, 1, 2)
    assert 1 <= len(found) <= 4
    assert all(s and s != (0, 1, 2) for s in found[:-1])
    assert sum(search.cost(s) for s in found[:-1]) <= 7.0
    assert [search.cost(s) for s in found] == sorted(search.cost(s) for s in found)


def test_the_default_budget_is_what_all_sensors_cost(search):
    assert find_subsets(search, 3) == find_subsets(search, 3, search.cost((0, 1, 2)))


def test_rewards_need_no_more_than_the_sensors_of_their_set(search):
    problem = search.problem
    before = quick_rewards(search)((1,))
    X = search.judge.X.copy()
    search.judge.X[:, problem.sensor_of != 1] = 0.0
    try:
        assert (quick_rewards(search)((1,)) == before).all()
    finally:
        search.judge.X[:] = X


def test_more_sensors_earn_more_and_none_earn_nothing(search):
    reward = quick_rewards(search)
    nothing, one, everything = (reward(s) for s in ((), (0,), (0, 1, 2)))
    for r in (nothing, one, everything):
        assert r.shape == search.probed.shape
        assert ((r >= 0) & (r <= 1)).all()
    assert not nothing.any()
    assert nothing.mean() < one.mean() < everything.mean()


def test_the_shared_sums_give_the_regression_that_each_set_would_give_alone():
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(80, 4)), rng.integers(0, 3, 80)
    weight = rng.random(80) + 0.1
    bank = QuickBank(Z, y, 3, weight, np.array([0, 1, 1, 2]))
    Z = np.clip(Z, -4, 4)
    P = np.column_stack([Z[:, 1], Z[:, 2], Z[:, 1] ** 2, Z[:, 1] * Z[:, 2], Z[:, 2] ** 2])
    mean, target = np.average(P, axis=0, weights=weight), np.eye(3)[y]
    share = np.average(target, axis=0, weights=weight)
    W, C = np.diag(weight / weight.sum()), P - mean
    coef = np.linalg.solve(C.T @ W @ C + 0.01 * np.eye(5), C.T @ W @ (target - share))
    np.testing.assert_allclose(bank.chances(bank.expand(Z), (1,)), C @ coef + share, atol=1e-10)
