# SPDX-License-Identifier: Apache-2.0
"""Costs of errors: tables from words, measures by name, soft targets, and the losses that learners see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.quality import MAX_RANKS, Quality, quality_from_json
from hardcase_train.data.error_costs import (
    chosen_quality,
    cost_table,
    error_losses,
    measure_of,
    named_quality,
    soft_rows,
    targets_of,
)
from hardcase_train.settings.toml import read_config

CLASSES = ("crack", "dirt", 3)
COSTS = st.lists(st.floats(0.1, 100), min_size=9, max_size=9).map(
    lambda values: np.where(np.eye(3, dtype=bool), 0.0, np.array(values).reshape(3, 3))
)
SHARES = st.lists(st.floats(0.01, 1), min_size=3, max_size=3).map(lambda v: np.array(v) / sum(v))


def test_the_narrower_word_wins() -> None:
    """A cell of the matrix before a miss, a miss before a false alarm, and that before all other errors."""
    said = {"other": 1, "false_alarm": {"3": 7}, "miss": {"crack": 50}, "matrix": {"dirt": {"crack": 9}}}
    assert cost_table(said, CLASSES, "").tolist() == [[0, 50, 50], [9, 0, 7], [1, 1, 0]]


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"miss": {"crack": 5}}, "the answer crack to a case of dirt has no cost above 0"),
        ({"miss": {"hole": 5}, "other": 1}, "miss names the class 'hole'; classes are crack, dirt, 3"),
        ({"matrix": {"dirt": {"dirt": 5}}, "other": 1}, "right answer 'dirt' a cost"),
        ({"other": 0}, "no cost above 0"),
        ({"misses": {"crack": 5}, "other": 1}, r"\[cost.errors\] has the unknown key 'misses'; use miss, false_alarm"),
        ({"other": {"crack": 5}}, "other is {'crack': 5}, a cost from 0 to 1e"),
        ({"miss": 5, "other": 1}, "miss is '5', a table of costs by class is expected"),
        ({"miss": {"crack": {"dirt": 5}}, "other": 1}, "miss.crack is {'dirt': 5}, a cost from 0"),
        ({"matrix": {"crack": 5}, "other": 1}, "matrix.crack is '5', a table of costs by class is expected"),
        ({"false_alarm": {"3": float("inf")}, "other": 1}, "false_alarm.3 is inf, a cost from 0 to 1e"),
    ],
)
def test_what_an_error_costs_must_be_said(said: dict, line: str) -> None:
    with pytest.raises(InputError, match=line) as found:
        cost_table(said, CLASSES, "[cost.errors]")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("wish", "line"),
    [
        ("best", "quality is 'best'; use accuracy, balanced, macro-f1, log-loss, f1 or recall of a class"),
        ({"f1": "hole"}, "names the class 'hole'"),
        ({"f1": "dirt", "precision": 0.5}, "use f1 = CLASS, or recall = CLASS, precision = SHARE"),
        ({"recall": "dirt"}, "needs precision"),
        ({"recall": "dirt", "precision": 1.5}, "needs precision"),
    ],
)
def test_a_measure_that_is_none_is_one_line(wish, line) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=line):
        named_quality(wish, CLASSES, "[policy]")


@pytest.mark.parametrize("ranks", [0, MAX_RANKS + 1, 2.5, True, "5"])
def test_ranks_that_no_build_could_hold_are_refused(ranks: object) -> None:
    with pytest.raises(InputError, match='"rank" is measured by "ndcg", or ndcg = 1 to 1000000'):
        chosen_quality("rank", {"ndcg": ranks}, None, (), np.zeros(1), np.ones(1), "[policy]", "")


@pytest.mark.parametrize(
    ("task", "wish"),
    [("class", {"f1": "x" * 300}), ("class", {"recall": "x" * 300, "precision": 0.5}), ("rank", {"ndcg": MAX_RANKS})],
)
def test_what_training_measures_an_export_reads(task: str, wish: dict[str, object]) -> None:
    classes = ("x" * 300, "y") if task == "class" else ()
    quality = chosen_quality(task, wish, None, classes, np.zeros(1), np.ones(1), "[policy]", "")
    assert quality_from_json(quality.to_json(), "front.json", len(classes)) == quality


def test_a_class_may_be_a_number() -> None:
    assert named_quality({"f1": 3}, CLASSES, "").positive == 2


@given(COSTS, SHARES)
def test_the_best_score_under_soft_targets_is_the_answer_of_least_expected_cost(costs, chances) -> None:  # type: ignore[no-untyped-def]
    """A learner that minimises log loss of soft targets has scores in the order of ``chances @ targets``."""
    y, weight = np.arange(3), np.ones(3)
    worth = chances @ targets_of(costs, y, weight)
    expected = chances @ costs
    assert expected[worth.argmax()] == pytest.approx(expected.min())


@given(COSTS, SHARES)
def test_targets_are_scaled_to_a_mean_of_1(costs, share) -> None:  # type: ignore[no-untyped-def]
    y = np.arange(3)
    assert np.average(targets_of(costs, y, share).sum(axis=1), weights=share) == pytest.approx(1.0)


def test_costs_that_are_all_alike_are_the_plain_loss() -> None:
    y = np.array([0, 1, 1])
    assert targets_of(1.0 - np.eye(2), y, np.ones(3)).tolist() == np.eye(2).tolist()
    number, label, weight = soft_rows(y, np.ones(3), None)
    assert (number.tolist(), label.tolist(), weight.tolist()) == ([0, 1, 2], [0, 1, 1], [1, 1, 1])


def test_soft_rows_stand_for_their_targets() -> None:
    targets = np.array([[0.5, 0.25, 0.0], [0.0, 1.0, 0.0], [0.1, 0.2, 0.3]])
    y, weight = np.array([2, 0, 1]), np.array([1.0, 2.0, 3.0])
    number, label, worth = soft_rows(y, weight, targets)
    found = np.zeros((3, 3))
    np.add.at(found, (number, label), worth)
    assert np.allclose(found, weight[:, None] * targets[y])
    assert (worth > 0).all()


def test_the_scale_is_the_cost_of_the_best_constant_answer() -> None:
    y = np.repeat([0, 1], [990, 10])
    quality = measure_of(np.array([[0.0, 5.0], [500.0, 0.0]]), y, np.ones(1000))
    assert quality.scale == pytest.approx(4.95)  # an alarm for every case; no alarm would cost 5
    assert quality(y, np.ones(1000, dtype=int)) == pytest.approx(0.0)


def test_f1_and_recall_take_the_ratio_at_which_f0_is_best() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(4000) < 0.05).astype(int)
    logit = rng.normal(size=4000) + 2.5 * y - 3.5
    p = 1 / (1 + np.exp(-logit))
    hpc, weight = np.column_stack([1 - p, p]), np.ones(4000)
    for measure in (Quality("f1", "F1", 1), Quality("recall", "recall", 1, 0.5), Quality("macro-f1", "macro F1")):
        losses = error_losses(measure, y, weight, hpc)
        assert losses is not None
        answers = (hpc @ targets_of(losses, y, weight)).argmax(axis=1)
        assert measure(y, answers) > measure(y, hpc.argmax(axis=1)) + 0.03
    assert error_losses(Quality("accuracy", "accuracy"), y, weight, hpc) is None
    balanced = error_losses(Quality("balanced", "balanced accuracy"), y, weight, hpc)
    assert balanced is not None
    assert balanced[1, 0] / balanced[0, 1] == pytest.approx((y == 0).sum() / (y == 1).sum())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[cost.errors]\nmiss = {a = "x"}', r"\[cost.errors\] miss.a is 'x', a cost"),
        ("[cost.errors]\nmiss = {a = -1}", r"\[cost.errors\] miss.a is -1, a cost"),
        ("[cost.errors]\nlate = {a = 1}", "unknown key 'late'"),
        ('[cost.errors]\nother = 1\n[policy]\nquality = "balanced"', "both say what an error counts"),
        ('[policy]\nclass_weight = "fair"', "use one of balanced"),
    ],
)
def test_a_configuration_that_is_wrong_is_one_line(tmp_path, text, line) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "hardcase.toml"
    path.write_text(f'[data]\nfile = "t.csv"\ntarget = "y"\n{text}\n')
    with pytest.raises(InputError, match=line) as found:
        read_config(path)
    assert "\n" not in str(found.value)


def test_balanced_class_weights_are_a_measure(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "hardcase.toml"
    path.write_text('[data]\nfile = "t.csv"\ntarget = "y"\n[policy]\nclass_weight = "balanced"\n')
    assert read_config(path).quality == "balanced"
