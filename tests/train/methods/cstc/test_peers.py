# SPDX-License-Identifier: Apache-2.0
"""The linear peers of trees of classifiers: AND-OR's loss and stages, and greedy purchases by least squares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardcase_train.data.problem import Rows
from hardcase_train.methods.cstc.and_or import SHARPNESS, AndOr, AndOrLoss, stage_levels
from hardcase_train.methods.cstc.greedy_tree import GreedyTree, bought
from hardcase_train.policy.selection import Judge
from tests.helpers.train.problems import BRIEF, make_problem


def loss(price: float = 0.0, n: int = 30) -> AndOrLoss:
    rng = np.random.default_rng(0)
    free = np.array([[True, True, False], [True, True, True]])
    share = rng.random(n) + 0.1
    owner, costs = np.array([0, 0, 1]), np.array([1.0, 5.0])
    return AndOrLoss(rng.normal(size=(n, 3)), rng.random(n) < 0.5, share / share.sum(), owner, costs, free, price)


def test_the_slope_of_and_or_is_that_of_finite_differences() -> None:
    made = loss(price=0.1)
    at = np.random.default_rng(1).normal(size=(2, 4))
    at[0, 2] = 0.0  # not free
    slope = made(at.ravel())[1]
    for k in range(8):
        step = np.zeros(8)
        step[k] = 1e-6
        expected = (made(at.ravel() + step)[0] - made(at.ravel() - step)[0]) / 2e-6
        assert slope[k] == pytest.approx(0.0 if k == 2 else expected, abs=1e-6)


def test_a_rare_row_loses_by_its_worst_stage_and_a_usual_one_by_its_best() -> None:
    made = replace(loss(), Z=np.zeros((2, 3)), is_rare=np.array([True, False]))
    near = np.log(2) / SHARPNESS + 1e-9

    def value(share: tuple[float, float], *biases: float) -> float:
        at = np.zeros((2, 4))
        at[:, -1] = biases
        return replace(made, share=np.array(share))(at.ravel())[0]

    rare, usual = (1.0, 0.0), (0.0, 1.0)
    assert value(rare, 3.0, -2.0) == pytest.approx(np.logaddexp(0, 2.0), abs=near)
    assert value(usual, 3.0, -2.0) == pytest.approx(np.logaddexp(0, -2.0), abs=near)
    assert value(rare, 3.0, 3.0) < 0.2 < value(usual, 3.0, 3.0)


def test_stages_are_levels_of_cost() -> None:
    problem = make_problem(2, n=30)  # sensors of 1, 5 and 20
    assert stage_levels(problem, 5) == [1.0, 5.0, 20.0]
    assert stage_levels(problem, 1) == [20.0]
    assert stage_levels(replace(problem, kept=(0, 1)), 4) == [1.0, 5.0]


def columns(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(n, 3))
    Z[:, 2] = Z[:, 0] + 0.5 * Z[:, 1]
    Y = (2 * Z[:, 0] + Z[:, 1])[:, None]
    return Z - Z.mean(axis=0), Y - Y.mean(axis=0)


def test_a_node_buys_by_gain_over_cost_until_its_budget_is_spent_or_nothing_is_left_to_gain() -> None:
    Z, Y = columns()
    owner, none = np.arange(3), np.zeros(3, dtype=bool)
    assert bought(Z, Y, owner, np.ones(3), none, 1.0).tolist() == [False, False, True]  # the most alone
    assert bought(Z, Y, owner, np.array([1.0, 1.0, 9.0]), none, 9.0).tolist() == [True, True, False]
    assert bought(Z, Y, owner, np.array([1.0, 1.0, np.inf]), none, 99.0).tolist() == [True, True, False]
    assert not bought(Z, Y, owner, np.ones(3), none, 0.5).any()
    at_hand = np.array([True, True, False])
    assert bought(Z, Y, owner, np.ones(3), at_hand, 99.0).tolist() == at_hand.tolist()  # the third adds nothing


def test_a_greedy_trees_leaves_have_what_their_parents_bought() -> None:
    points = GreedyTree(depth=1).points(Judge(make_problem(2, n=90, effort=BRIEF), is_alone=True))
    costs = [p.valid.cost for p in points]
    assert costs == sorted(costs)
    assert points[-1].valid.quality > 0.75


def test_a_cascade_whose_usual_class_is_the_second_is_that_of_the_classes_exchanged() -> None:
    problem = make_problem(2, n=90, effort=BRIEF)
    weight = np.where(problem.train.y == 1, 3.0, 1.0)  # the second is usual
    first = replace(problem, train=replace(problem.train, weight=weight))

    def exchanged(rows: Rows) -> Rows:
        return replace(rows, y=1 - rows.y, hpc=rows.hpc[:, ::-1])

    second = replace(first, train=exchanged(first.train), valid=exchanged(first.valid), test=exchanged(first.test))
    found, other = (AndOr(n_stages=3).points(Judge(p, is_alone=True)) for p in (first, second))
    assert first.majority == 1
    assert max(p.valid.quality for p in found) > 0.75
    assert [(p.valid.cost, p.valid.quality) for p in found] == [(p.valid.cost, p.valid.quality) for p in other]
