# SPDX-License-Identifier: Apache-2.0
"""Boosted trees that do not weigh costs: more trees read more sensors, and samples prefer cheap trees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardcase_train.methods.boosted.adaboost_rs import FREE, ResampledAdaBoost, _AdaBoost
from hardcase_train.methods.boosted.stage_wise import StageWiseRegression
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.subset_search import SubsetSearch
from tests.helpers.train.problems import BRIEF, make_problem


def search(n_classes: int = 2) -> SubsetSearch:
    return SubsetSearch(Judge(make_problem(n_classes, n=120, effort=BRIEF), is_alone=True), 1)


def test_the_number_of_trees_trades_accuracy_against_cost() -> None:
    made = search()
    points = [StageWiseRegression.run(made, {"n_trees": n})[0] for n in (1, 40)]
    assert points[0].valid.cost < points[1].valid.cost
    assert points[0].valid.quality < points[1].valid.quality
    assert [len(p.program.scorers[0].trees) for p in points] == [1, 40]


def test_each_tree_of_adaboost_beats_chance_on_the_weights_that_the_trees_before_it_left() -> None:
    for n_classes in (2, 3):
        made = _AdaBoost(search(n_classes))
        assert len(made.whole) > 3
        assert all(vote > 0 and set(np.unique(tree.leaves)) <= {0.0, 1.0} for tree, vote in made.whole)


def test_cheap_trees_are_drawn_more_often() -> None:
    cheap = search()
    dear = cheap.problem
    sensors = tuple(replace(s, cost=(1000 * c,)) for s, c in zip(dear.sensors, (1, 1, 10_000_000), strict=True))
    judge = Judge(replace(dear, sensors=sensors), is_alone=True)
    draws = [{"n_drawn": 4, "draw": k} for k in range(8)]

    def rate(own: SubsetSearch) -> float:
        return float(np.mean([2 in ResampledAdaBoost.run(own, params)[0].params["sensors"] for params in draws]))

    assert rate(SubsetSearch(judge, 1)) < rate(cheap)


def test_a_tree_votes_by_how_often_it_was_drawn_times_its_cost() -> None:
    """(115): a vote over its probability, which is the vote over the cost; so the votes of a sample are unbiased."""
    made = _AdaBoost(search())
    ensemble = made.sample(made.whole, {"n_drawn": 12, "draw": 0})
    owner, costs = made.problem.sensor_of, made.problem.sensor_costs()

    def cost(features: np.ndarray) -> float:
        return float(costs[np.unique(owner[features])].sum())

    beside = FREE * np.mean([cost(tree.features) for tree, _ in made.whole])
    shares = np.array([np.abs(t.leaves).max() / (cost(t.features) + beside) for t in ensemble.trees])
    times = 12 * shares / shares.sum()
    assert len(times) > 2
    assert times == pytest.approx(np.round(times), abs=1e-9)
