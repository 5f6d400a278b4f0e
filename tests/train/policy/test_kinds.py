# SPDX-License-Identifier: Apache-2.0
"""What a kind is in training: each question that learners ask, answered for classes and for values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardcase_edge.program.definition import MARGIN, THRESHOLD
from hardcase_train.data.problem import Problem
from hardcase_train.methods import METHODS
from hardcase_train.policy.kinds import answer_loss, hpc_loss, learned
from hardcase_train.policy.losses import ClassLoss, SquaredLoss
from tests.helpers.train.problems import make_problem


def of_values() -> Problem:
    p = make_problem(n=60)

    def values(rows):
        return replace(rows, y=rows.X[:, 0].round(3), hpc=rows.X[:, :1] + 0.1)

    return replace(p, n_classes=0, train=values(p.train), valid=values(p.valid), test=values(p.test))


CLASSES, VALUES = make_problem(n=60), of_values()


def test_the_loss_of_f0_is_that_of_its_answers() -> None:
    of_classes, values = answer_loss(CLASSES), answer_loss(VALUES)
    assert isinstance(of_classes, ClassLoss)
    assert isinstance(values, SquaredLoss)
    true = CLASSES.train.hpc[np.arange(len(CLASSES.train.y)), CLASSES.train.y]
    assert np.allclose(hpc_loss(CLASSES), -np.log(np.maximum(true, 1e-6)))
    assert np.allclose(hpc_loss(VALUES), np.square(VALUES.train.hpc[:, 0] - VALUES.train.y))


def test_scores_give_a_class_or_a_number() -> None:
    scores = np.array([[0.2, 0.9, -1.0], [2.0, 1.0, 0.5]])
    assert learned(CLASSES).results(scores).tolist() == [1, 0]
    assert learned(VALUES).results(scores[:, :1]).tolist() == [0.2, 2.0]


def test_cuts_sort_classes_by_margin_and_values_by_uncertainty() -> None:
    margin, scores = np.array([0.1, 0.7]), np.array([[5.0, 3.0], [6.0, -2.0]])
    assert learned(CLASSES).sureness(margin, scores).tolist() == [0.1, 0.7]
    assert learned(VALUES).sureness(margin, scores).tolist() == [-3.0, 2.0]
    of_class, of_value = (learned(p).cut_node(0, 0.4, answer=7, onward=2) for p in (CLASSES, VALUES))
    assert (of_class.rule, of_class.threshold, of_class.targets) == (MARGIN, 0.4, (2, 7))
    assert (of_value.rule, of_value.threshold, of_value.targets) == (THRESHOLD, -0.4, (7, 2))


def test_a_second_score_of_classes_is_a_gate_and_of_values_it_is_not() -> None:
    width = CLASSES.n_outputs
    scores = np.arange(2.0 * (width + 1)).reshape(2, -1)
    assert learned(CLASSES).gate(scores[:, :width]) is None
    assert np.array_equal(learned(CLASSES).gate(scores), scores[:, width])
    assert learned(VALUES).gate(scores[:, :2]) is None


def test_an_answer_is_right_if_it_is_the_class_or_within_the_tolerance() -> None:
    y = np.array([1.0, 2.0, 3.0])
    assert learned(CLASSES).is_right(np.array([1, 1, 3]), y.astype(int), 0.0).tolist() == [True, False, True]
    assert learned(VALUES).is_right(np.array([1.4, 2.6, 3.0]), y, 0.5).tolist() == [True, False, True]


@pytest.mark.parametrize("problem", [CLASSES, VALUES], ids=["classes", "values"])
def test_expected_losses_add_up_to_the_losses(problem: Problem) -> None:
    kind, train, rng = learned(problem), problem.train, np.random.default_rng(0)
    answers = np.where(rng.random(len(train.y)) < 0.3, train.y[0], train.y)
    sure = -np.abs(answers - train.y) + 0.2 * rng.normal(size=len(train.y))
    wrong = kind.expected(sure, None, [], answers, train.y, train.weight)
    errors = answers != train.y if kind.has_margins else np.square(answers - train.y)
    assert wrong.mean() == pytest.approx(errors.mean(), rel=0.05)
    assert kind.cloud(train.stakes, [], train.y, train.weight).shape == train.y.shape


def test_values_are_learned_by_the_methods_that_say_so() -> None:
    assert all(learned(CLASSES).takes(cls.method) for cls in METHODS.values())
    taken = {name for name, cls in METHODS.items() if learned(VALUES).takes(cls.method)}
    assert taken == {name for name, cls in METHODS.items() if cls.method.takes_values} != set(METHODS)
