# SPDX-License-Identifier: Apache-2.0
"""The benchmark of early exit by proximity: who leaves, what it costs, and the measures that it shares with others."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.cstc import trees_on_the_way
from benchmarks.early_exit import walk
from benchmarks.relevance import precision
from hardcase_edge.program.definition import THRESHOLD, Acquire, Answer, Branch, Slice, Tree, Trees
from hardcase_train.data.from_arrays import make_problem
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.trees.binning import Bins, make_bins
from hardcase_train.trees.boosting import NO_ROWS, Ensemble
from hardcase_train.trees.grower import GrownTree
from hardcase_train.trees.size import size_of
from hardcase_train.trees.subset_classifier import fit_classifier
from tests.helpers.train.problems import BRIEF


def fitted() -> tuple[Problem, Ensemble, Rows]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = 2 * X[:, 0] + X[:, 1]
    problem = make_problem(X, y, np.ones(400), 0, None, [3.0, 7.0], 1.0, 0, "small", BRIEF, np.arange(400) // 20)
    bins = make_bins(problem.train.X, problem.dtypes, 64)
    codes, every = bins.transform(problem.train.X), np.arange(len(problem.train.y))
    model = fit_classifier(problem, problem.offered, bins, codes, size_of(problem).model, 6, every)
    return problem, model, problem.valid


def test_nobody_leaves_without_need_and_more_leave_the_weaker_the_bound() -> None:
    problem, model, rows = fitted()
    costs = [walk(problem, model, rows, strength)[0] for strength in (99.0, 1.0, 0.1)]
    assert costs[0].tolist() == [16.0] * len(rows.y)  # both sensors, and six trees
    assert costs[1].mean() < 16.0
    assert (costs[2] <= costs[1]).all()
    assert costs[2].mean() < costs[1].mean()
    assert costs[2].min() >= 4.0  # a sensor and a tree at least


def test_the_five_best_of_a_group_never_leave() -> None:
    problem, model, rows = fitted()
    cost, score = walk(problem, model, rows, 0.1)
    whole = walk(problem, model, rows, 99.0)[1]
    assert rows.group is not None
    for g in np.unique(rows.group):
        stays = (cost == 16.0) & (rows.group == g)
        assert stays.sum() >= 5
        assert score[stays] == pytest.approx(whole[stays])


@pytest.mark.parametrize(("strength", "n_trees"), [(0.25, 1), (0.5, 1), (0.75, 2), (1.0, 2), (1.5, 3), (99.0, 3)])
def test_a_document_leaves_where_the_bound_falls_below_its_distance(strength: float, n_trees: int) -> None:
    """Of six documents, one is half a point below the five others from the first of three trees on.

    XKW14 6.2: after tree i of 3, who is (3 - i) / 2 * s below the fifth best leaves: s, s / 2, and after the last 0.
    """
    problem, _, _ = fitted()
    root = (np.array([0]), np.array([0]), np.array([True]), np.array([[-1, -2]]))
    trees = [GrownTree(*root, np.array([[low], [0.0]]), NO_ROWS) for low in (-0.5, 0.0, 0.0)]
    bins = Bins((np.array([0.5]),))
    model = Ensemble(bins, np.array([0]), np.zeros(1), trees, [(0, 1)] * 3)
    X = np.column_stack([[1.0] * 5 + [0.0], np.zeros(6)])
    rows = Rows(X, np.zeros(6), np.zeros((6, 0)), np.arange(6), group=np.zeros(6, dtype=np.int64))
    cost, score = walk(problem, model, rows, strength)
    assert cost.tolist() == [3.0 + 3] * 5 + [3.0 + n_trees]  # the sensor of the first feature, and 1 for each tree
    assert score.tolist() == [0.0] * 5 + [-0.5]


def test_precision_is_the_mean_over_all_orders_of_ties() -> None:
    y, score = np.array([1, 0, 1, 0, 0, 1, 0]), np.array([3.0, 2.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    shares = []
    for ties in itertools.permutations(range(7)):
        order = np.lexsort((ties, -score))[:5]
        shares.append(y[order].sum() / 5)
    assert precision(y, score, np.zeros(7, dtype=int)) == pytest.approx(np.mean(shares))
    two = np.concatenate([np.zeros(7, dtype=int), np.ones(7, dtype=int)])
    assert precision(np.append(y, 0 * y), np.append(score, score), two) == pytest.approx(np.mean(shares))


def test_a_way_counts_the_trees_of_each_ensemble_once() -> None:
    stump = Tree(0, 1, (), (), (), (), (1.0,))
    scorers = (Trees((), (0.0,), (stump,) * 3), Trees((), (0.0,), (stump,) * 4))
    first, second = Slice(0, 0, 1), Slice(1, 0, 1)
    nodes = (Branch(first, THRESHOLD, (1, 2), 0.0), Answer(first), Acquire((0,), 3, 3), Answer(second))
    assert trees_on_the_way(nodes, scorers).tolist() == [3.0, 3.0, 3.0, 7.0]  # type: ignore[arg-type]
