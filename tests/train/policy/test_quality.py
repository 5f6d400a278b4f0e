# SPDX-License-Identifier: Apache-2.0
"""Quality: a loss for each row, 1 less its weighted mean, and the one place that figures take it from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_train.policy.batch import Outcome
from hardcase_train.policy.quality import ACCURACY, Quality, figures_of
from hardcase_train.policy.selection import Judge
from tests.helpers.train.problems import make_problem, weighted

LABELS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=40)
SQUARED = Quality("1 - squared distance", lambda y, answer: np.square((y - answer) / 3.0))


def outcome_of(label: np.ndarray) -> Outcome:
    zeros = np.zeros(len(label))
    return Outcome(label, zeros, zeros.astype(bool), zeros, zeros)


@given(LABELS)
def test_a_loss_is_one_number_a_row_and_0_where_the_answer_is_best(rows: list[tuple[int, int, int]]) -> None:
    y, answer, _ = np.array(rows).T
    for measure in (ACCURACY, SQUARED):
        loss = measure.loss(y, answer)
        assert loss.shape == y.shape
        assert loss.dtype == np.float64
        assert (loss >= 0).all()
        assert ((loss == 0) == (y == answer)).all()
        alone = [float(measure.loss(y[k : k + 1], answer[k : k + 1])[0]) for k in range(len(y))]
        assert loss.tolist() == alone  # no row's loss depends on another's


@given(LABELS)
def test_a_weight_is_a_repetition_and_its_scale_says_nothing(rows: list[tuple[int, int, int]]) -> None:
    y, answer, weight = np.array(rows).T
    again = np.repeat(np.arange(len(y)), weight)
    for measure in (ACCURACY, SQUARED):
        heavy = measure(y, answer, weight.astype(float))
        assert heavy == pytest.approx(measure(y[again], answer[again]))
        assert heavy == pytest.approx(measure(y, answer, 0.01 * weight))
        assert measure(y, answer) == measure(y, answer, np.ones(len(y)))


@given(LABELS, st.randoms(use_true_random=False))
def test_quality_is_from_0_to_1_and_the_order_of_rows_says_nothing(rows, random) -> None:  # type: ignore[no-untyped-def]
    y, answer, weight = np.array(rows).T
    order = list(range(len(y)))
    random.shuffle(order)
    for measure in (ACCURACY, SQUARED):
        quality = measure(y, answer, weight)
        assert isinstance(quality, float)
        assert -1e-12 <= quality <= 1
        assert quality == pytest.approx(measure(y[order], answer[order], weight[order]))
        assert measure(y, y, weight) == 1.0


@given(LABELS)
def test_accuracy_is_the_share_of_right_answers(rows: list[tuple[int, int, int]]) -> None:
    y, answer, weight = np.array(rows).T
    assert ACCURACY.name == "accuracy"
    assert ACCURACY(y, answer) == pytest.approx(np.mean(y == answer))
    assert ACCURACY(y, answer, weight) == pytest.approx(weight[y == answer].sum() / weight.sum())


def test_a_row_of_weight_0_counts_nothing() -> None:
    assert ACCURACY(np.array([0, 1]), np.array([0, 0]), np.array([2.0, 0.0])) == 1.0


def test_figures_are_made_by_it() -> None:
    """Those of an outcome, and those of the judged rows with the standard error of the loss against f0's."""
    judge = Judge(weighted(make_problem(), 0.5 + np.arange(150) % 4))
    label = np.random.default_rng(0).integers(0, 3, len(judge.y))
    figures = judge.summary(outcome_of(label))
    assert figures["quality"] == ACCURACY(judge.y, label, judge.weight)
    assert figures["quality"] == figures_of(outcome_of(label), judge.y, judge.weight)["quality"]
    more_lost = ACCURACY.loss(judge.y, label) - ACCURACY.loss(judge.y, judge.hpc_label)
    f0 = ACCURACY(judge.y, judge.hpc_label, judge.weight)
    assert np.average(more_lost, weights=judge.weight) == pytest.approx(f0 - figures["quality"])
    away = judge.weight * (more_lost - (f0 - figures["quality"]))
    assert figures["loss_se"] == pytest.approx(np.sqrt(np.square(away).sum()) / judge.weight.sum())
