# SPDX-License-Identifier: Apache-2.0
"""Nested sets from prices: what is bought first, that sets grow, and that few sensors do without."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from hardcase_train.data.from_arrays import make_problem
from hardcase_train.data.problem import Problem
from hardcase_train.methods.baselines.cascade import ConfidenceCascade
from hardcase_train.methods.baselines.static import StaticSubset
from hardcase_train.policy.selection import Judge
from hardcase_train.stages import priced_sets, subset_search
from hardcase_train.stages.priced_sets import MANY_SENSORS, PricedSets
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.trees.boosting import extend
from tests.helpers.train.problems import BRIEF

N = 300
DEAR, CHEAP, FREE = 3, 5, 7


def problem(n_sensors: int = MANY_SENSORS, n_classes: int = 2) -> Problem:
    """Sensors 3 and 5 tell the same, 3 at five times the cost; 7 is free; 9 tells what is left; all others nothing."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, N)
    X = np.round(rng.normal(size=(N, n_sensors)), 1)
    X[:, DEAR] = X[:, CHEAP] = np.round(y + 0.7 * rng.normal(size=N), 1)
    X[:, 9] = np.where(rng.random(N) < 0.7, y, 0.5)
    costs = np.ones(n_sensors)
    costs[DEAR], costs[FREE] = 5.0, 0.0
    answers = y if n_classes else y + 0.1 * rng.normal(size=N)
    made = make_problem(X, answers, np.ones(N), n_classes, None, costs.tolist(), 99.0, 0, "small", BRIEF)
    hpc = np.full((N, max(n_classes, 1)), 0.5)
    return made.with_hpc(hpc)


def search(made: Problem) -> SubsetSearch:
    return SubsetSearch(Judge(made, is_alone=True), 1)


@cache
def found() -> PricedSets:
    return PricedSets(problem())


def test_sets_are_nested_and_begin_with_what_is_worth_most() -> None:
    sets = found()
    for chain in (sets.plain, sets.onward):
        assert len(chain) >= 3
        assert all(set(a) < set(b) for a, b in pairwise(chain))
        assert set(chain[0]) <= {FREE, CHEAP, 9}
        assert DEAR not in chain[2]
        assert {CHEAP, 9} <= set(chain[2])


def test_the_same_rows_give_the_same_sets() -> None:
    one, two = found(), PricedSets(problem())
    assert (one.plain, one.onward) == (two.plain, two.onward)


def test_what_is_bought_stays_free(monkeypatch: pytest.MonkeyPatch) -> None:
    free: list[set[int]] = []

    def recorded(ensemble: object, loss: object, grower: object, fitted: object, penalty: np.ndarray, *rest: object):
        free.append(set(np.flatnonzero(penalty == 0).tolist()))
        extend(ensemble, loss, grower, fitted, penalty, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(priced_sets, "extend", recorded)
    sets = PricedSets(problem(n_classes=0)).plain
    for bought in sets[:-1]:
        assert {FREE, *bought} in free


def test_rows_that_are_answered_weigh_less_so_later_sets_differ() -> None:
    sets = found()
    assert sets.plain[0] == sets.onward[0]
    assert sets.plain != sets.onward


def test_values_have_sets_too_bought_for_all_rows() -> None:
    sets = PricedSets(problem(n_classes=0))
    assert sets.onward is sets.plain
    assert {CHEAP, 9} <= set(sets.plain[2])


def test_sensors_that_are_not_offered_are_never_bought() -> None:
    made = replace(problem(), kept=tuple(s for s in range(MANY_SENSORS) if s != CHEAP))
    assert all(CHEAP not in s for s in PricedSets(made).plain)


def test_methods_on_sensor_sets_try_them_from_fifty_sensors_on() -> None:
    many, few = search(problem()), search(problem(n_sensors=10))
    assert few.priced() == []
    chains = [[list(s) for s in chain] for chain in many.priced()]
    many.paths = lambda: [[(), (0,)]]  # type: ignore[method-assign]  # the greedy search takes its time
    settings = ConfidenceCascade.grid(many)
    assert all({"chain": chain, "classifier": "trees"} in settings for chain in chains)
    sensors = [setting["sensors"] for setting in StaticSubset.grid(many)]
    assert all(subset in sensors for chain in chains for subset in chain)
    assert sensors == sorted(sensors, key=lambda s: (-len(s), s))


def test_of_very_many_sensors_greedy_paths_go_over_those_that_prices_buy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_search, "MOST_SEARCHED", 5)
    many = search(problem())
    bought = max((s for chain in many.priced() for s in chain if len(s) <= 5), key=len)
    assert {frozenset(path[-1] if path[-1] else path[0]) for path in many.paths()} == {frozenset(bought)}
    assert all(set(s) <= set(bought) for s in many.walked())


def test_sets_go_on_where_the_first_sensors_fit_the_training_rows_already() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, N)
    X = np.round(y[:, None] + rng.normal(size=(N, MANY_SENSORS)), 1)  # every sensor tells a little
    made = make_problem(X, y, np.ones(N), 2, None, [1.0] * MANY_SENSORS, 99.0, 0, "small", BRIEF)
    sets = PricedSets(made.with_hpc(np.full((N, 2), 0.5))).plain
    assert len(sets[-1]) >= 30
    assert sum(10 <= len(s) <= 30 for s in sets) >= 3
