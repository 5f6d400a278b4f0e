# SPDX-License-Identifier: Apache-2.0
"""Quality: measures of answers with 1 as the best, their losses by row, and the one place that figures take it from."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    balanced_accuracy_score,
    f1_score,
    log_loss,
    ndcg_score,
    precision_score,
    r2_score,
    recall_score,
)

from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.quality import ACCURACY, Quality, figures_of, quality_from_json
from hardcase_train.policy.batch import Outcome
from hardcase_train.policy.selection import Judge
from tests.helpers.train.problems import make_problem, weighted

LABELS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=40)
COSTS = tuple(tuple(0.0 if a == y else 1.0 + 3 * y + a for a in range(4)) for y in range(4))
ERRORS = Quality("errors", "error costs", costs=COSTS, scale=2.5)
R2 = Quality("r2", "R2")
NDCG = Quality("ndcg", "NDCG at 3", at=3)
LOG_LOSS = Quality("log-loss", "log loss skill", n_classes=3)
MEASURES = (
    ACCURACY,
    ERRORS,
    Quality("balanced", "balanced accuracy"),
    Quality("f1", "F1 of 2", 2),
    Quality("macro-f1", "macro F1"),
    Quality("recall", "recall of 1 at precision 0.7", 1, 0.7),
)

STATED = st.lists(  # class, answer, weight, confidence
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 5), st.floats(0.001, 0.999)), min_size=1, max_size=30
)
RANKED = st.lists(  # relevance, score, weight, group
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=12
)


def outcome_of(label: np.ndarray) -> Outcome:
    zeros = np.zeros(len(label))
    return Outcome(label, zeros, zeros.astype(bool), zeros, zeros)


@given(LABELS)
def test_a_weight_is_a_repetition_and_its_scale_says_nothing(rows: list[tuple[int, int, int]]) -> None:
    y, answer, weight = np.array(rows).T
    again = np.repeat(np.arange(len(y)), weight)
    for measure in MEASURES:
        heavy = measure(y, answer, weight.astype(float))
        assert heavy == pytest.approx(measure(y[again], answer[again]))
        assert heavy == pytest.approx(measure(y, answer, 0.01 * weight))
        assert measure(y, answer) == measure(y, answer, np.ones(len(y)))


@given(LABELS, st.randoms(use_true_random=False))
def test_quality_is_at_most_1_and_the_order_of_rows_says_nothing(rows, random) -> None:  # type: ignore[no-untyped-def]
    y, answer, weight = np.array(rows).T
    order = list(range(len(y)))
    random.shuffle(order)
    for measure in MEASURES:
        quality = measure(y, answer, weight)
        assert isinstance(quality, float)
        assert quality <= 1 + 1e-12
        assert measure is ERRORS or quality >= -1e-12
        assert quality == pytest.approx(measure(y[order], answer[order], weight[order]))
        if measure.kind not in ("f1", "recall") or (y == measure.positive).any():
            assert measure(y, y, weight) == pytest.approx(1.0)


@given(LABELS)
def test_measures_are_those_of_scikit_learn(rows: list[tuple[int, int, int]]) -> None:
    y, answer, w = np.array(rows).T
    assert ACCURACY(y, answer, w) == pytest.approx(w[y == answer].sum() / w.sum())
    seen = np.isin(answer, y)  # scikit-learn warns of other answers, and counts them as we do
    if seen.all() and len(set(y)) > 1:
        balanced = balanced_accuracy_score(y, answer, sample_weight=w)
        assert MEASURES[2](y, answer, w) == pytest.approx(balanced)
    f1 = f1_score(y, answer, labels=[2], average="macro", sample_weight=w, zero_division=0)
    assert MEASURES[3](y, answer, w) == pytest.approx(f1)
    macro = f1_score(y, answer, average="macro", sample_weight=w, zero_division=0)
    assert MEASURES[4](y, answer, w) == pytest.approx(macro)
    one = {"labels": [1], "average": "macro", "sample_weight": w, "zero_division": 0}
    recall, precision = recall_score(y, answer, **one), precision_score(y, answer, **one)
    assert MEASURES[5](y, answer, w) == pytest.approx(recall * min(1, precision / 0.7))
    assert ERRORS(y, answer, w) == pytest.approx(1 - np.average(np.array(COSTS)[y, answer], weights=w) / 2.5)
    assert ERRORS.mean_errors(ERRORS(y, answer, w)) == pytest.approx(np.average(np.array(COSTS)[y, answer], weights=w))


@given(LABELS.filter(lambda rows: len({y for y, _, _ in rows}) > 1), st.integers(0, 39))
def test_a_rows_loss_is_minus_the_derivative_by_its_weight(rows: list[tuple[int, int, int]], k: int) -> None:
    """d quality / d w_i = -(loss_i - mean loss) / sum of weights: the delta method."""
    y, answer, weight = np.array(rows).T.astype(np.int64)
    w, k, step = weight.astype(float), k % len(y), 1e-5
    more, less = w.copy(), w.copy()
    more[k] += step
    less[k] -= step
    for measure in MEASURES:
        slope = (measure(y, answer, more) - measure(y, answer, less)) / (2 * step)
        losses = measure.row_losses(y, answer, w)
        hits, answered = (w[(answer == 1) & seen].sum() for seen in (y == 1, y >= 0))
        if measure.kind == "recall" and abs(hits - 0.7 * answered) < 1e-3:
            continue  # at the kink
        assert slope == pytest.approx(-(losses[k] - np.average(losses, weights=w)) / w.sum(), abs=1e-6)


@given(LABELS)
def test_r2_is_that_of_scikit_learn(rows: list[tuple[int, int, int]]) -> None:
    y, answer, w = np.array(rows, dtype=np.float64).T
    y = 0.25 * y - 3
    assert R2(y, y, w) == 1.0
    if len(y) > 1:
        assert R2(y, answer, w) == pytest.approx(r2_score(y, answer, sample_weight=w), abs=1e-9)
    if np.ptp(y) > 0:
        variance = np.average((y - np.average(y, weights=w)) ** 2, weights=w)
        assert R2.row_losses(y, answer, w) == pytest.approx((y - answer) ** 2 / variance)


def ndcg_of_all_orders(y: list[int], score: list[int], at: int) -> float | None:
    """The mean over every order of the rows that the scores allow, ideal gain first; None without a relevant row."""
    gains = [
        sum((2 ** y[i] - 1) / np.log2(rank + 2) for rank, i in enumerate(order[:at]))
        for order in itertools.permutations(range(len(y)))
        if all(score[a] >= score[b] for a, b in itertools.pairwise(order))
    ]
    best = sum((2**g - 1) / np.log2(rank + 2) for rank, g in enumerate(sorted(y, reverse=True)[:at]))
    return float(np.mean(gains) / best) if best else None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=6), st.integers(1, 7))
def test_ndcg_is_the_mean_over_all_orders_of_ties(rows: list[tuple[int, int]], at: int) -> None:
    y, score = ([row[k] for row in rows] for k in (0, 1))
    ndcg = Quality("ndcg", "NDCG", at=at)(np.array(y), np.array(score))
    assert ndcg == pytest.approx(ndcg_of_all_orders(y, score, at) or 0.0)
    if any(y) and len(y) > 1:
        assert ndcg == pytest.approx(ndcg_score([np.exp2(y) - 1], [score], k=at))


@given(RANKED)
def test_ndcg_is_the_mean_over_groups_that_have_a_relevant_row(rows: list[tuple[int, int, int, int]]) -> None:
    y, score, w, group = np.array(rows).T
    each = (
        {g: ndcg_of_all_orders(list(y[group == g]), list(score[group == g]), 3) for g in set(group.tolist())}
        if max(np.bincount(group)) <= 6
        else {}
    )
    kept = [g for g, value in each.items() if value is not None]
    if kept:
        mean = np.average([each[g] for g in kept], weights=[w[group == g].mean() for g in kept])
        assert NDCG(y, score, w, group) == pytest.approx(mean)
        assert NDCG(y, score, w, 7 * group - 3) == pytest.approx(mean)
    losses = NDCG.row_losses(y, score, w, group)
    assert np.average(losses, weights=w) == pytest.approx(1 - NDCG(y, score, w, group))
    for k in range(len(y)):
        more, less = w.astype(float), w.astype(float)
        more[k] += 1e-5
        less[k] -= 1e-5
        slope = (NDCG(y, score, more, group) - NDCG(y, score, less, group)) / 2e-5
        assert slope == pytest.approx(-(losses[k] - np.average(losses, weights=w)) / w.sum(), abs=1e-6)


@pytest.mark.parametrize("measure", [*MEASURES, LOG_LOSS, R2, NDCG], ids=lambda m: m.kind)
def test_a_measure_travels_as_plain_values(measure: Quality) -> None:
    n_classes = 0 if measure.is_of_values else 3 if measure.reads_confidences else 4
    assert quality_from_json(json.loads(json.dumps(measure.to_json())), "front.json", n_classes) == measure


@pytest.mark.parametrize(
    "data",
    [
        None, "accuracy", {}, {"kind": "best", "name": "x"}, {"kind": "accuracy"}, {"kind": "accuracy", "name": 3},
        {"kind": "f1", "name": "x", "positive": 4}, {"kind": "f1", "name": "x", "positive": True},
        {"kind": "recall", "name": "x", "positive": 0, "precision": 0}, {"kind": "errors", "name": "x"},
        {"kind": "errors", "name": "x", "costs": [[0, 1]] * 4, "scale": 1},
        {"kind": "errors", "name": "x", "costs": [[0, 1, 1, -1]] * 4, "scale": 1},
        {"kind": "errors", "name": "x", "costs": [[0, 1, 1, 1]] * 4, "scale": 0},
        {"kind": "errors", "name": "x", "costs": [[0, 1, 1, float("nan")]] * 4, "scale": 1},
        {"kind": "log-loss", "name": "x", "n_classes": 1}, {"kind": "log-loss", "name": "x", "n_classes": 5},
        {"kind": "ndcg", "name": "x", "at": 0}, {"kind": "ndcg", "name": "x", "at": 2.5}, {"kind": "r2", "name": "x"},
        {"kind": "log-loss", "name": "x", "n_classes": 3}, {"kind": "ndcg", "name": "x"},
        ACCURACY.to_json(),
    ],
)  # fmt: skip
def test_a_measure_from_outside_is_checked(data: object) -> None:
    is_of_classes = data == ACCURACY.to_json()  # and none of values
    said = "the quality measure 'accuracy' is not one of values; train again$" if is_of_classes else ".*"
    with pytest.raises(InputError, match=rf"^front\.json: {said}"):
        quality_from_json(data, "front.json", 0 if is_of_classes else 4)


@given(STATED)
def test_log_loss_is_scikit_learns_against_that_of_the_class_shares(rows: list[tuple[int, int, int, float]]) -> None:
    y, label, w = np.array([row[:3] for row in rows]).T
    sure = np.array([row[3] for row in rows])
    p = np.repeat(((1 - sure) / 2)[:, None], 3, axis=1)
    p[np.arange(len(y)), label] = sure
    quality = LOG_LOSS(y, LOG_LOSS.answers(label, sure), w)
    shares = np.tile(np.bincount(y, w, 3) / w.sum(), (len(y), 1))
    of_shares = log_loss(y, shares, labels=[0, 1, 2], sample_weight=w)
    if len(set(y)) > 1:
        assert quality == pytest.approx(1 - log_loss(y, p, labels=[0, 1, 2], sample_weight=w) / of_shares)
    else:
        assert quality == pytest.approx(0)
    again = np.repeat(np.arange(len(y)), w)
    assert quality == pytest.approx(LOG_LOSS(y[again], LOG_LOSS.answers(label, sure)[again]))


@given(STATED.filter(lambda rows: len({row[0] for row in rows}) > 1), st.integers(0, 29))
def test_a_log_loss_is_minus_the_derivative_by_its_weight(rows: list[tuple[int, int, int, float]], k: int) -> None:
    y, label, w = np.array([row[:3] for row in rows]).T
    stated = LOG_LOSS.answers(label, np.array([row[3] for row in rows]))
    k, losses = k % len(y), LOG_LOSS.row_losses(y, stated, w)
    more, less = w.astype(float), w.astype(float)
    more[k] += 1e-5
    less[k] -= 1e-5
    slope = (LOG_LOSS(y, stated, more) - LOG_LOSS(y, stated, less)) / 2e-5
    assert slope == pytest.approx(-(losses[k] - np.average(losses, weights=w)) / w.sum(), abs=1e-6)


def test_certainty_that_is_wrong_costs_a_lot_but_not_all() -> None:
    y = np.array([0, 1] * 50)
    stated = np.full(100, 0.9)
    stated[0] = 1.0
    wrong = LOG_LOSS.answers(np.r_[1, y[1:]], stated)
    assert np.isfinite(LOG_LOSS(y, wrong))
    assert LOG_LOSS(y, wrong) < LOG_LOSS(y, LOG_LOSS.answers(np.r_[1, y[1:]], np.full(100, 0.9))) - 0.1


@pytest.mark.parametrize("stated", [None, np.array([0.5, np.nan])])
def test_an_answer_that_states_no_confidence_has_no_log_loss(stated: np.ndarray | None) -> None:
    with pytest.raises(
        InputError, match=r"^log loss skill needs a confidence of every answer, which some do not state"
    ):
        LOG_LOSS.answers(np.array([0, 1]), stated)
    assert ACCURACY.answers(np.array([0, 1]), stated).tolist() == [0, 1]


def test_a_row_of_weight_0_counts_nothing() -> None:
    assert ACCURACY(np.array([0, 1]), np.array([0, 0]), np.array([2.0, 0.0])) == 1.0


def test_figures_are_made_by_it() -> None:
    """Those of an outcome, and those of the judged rows with the standard error of the loss against f0's."""
    judge = Judge(weighted(make_problem(), 0.5 + np.arange(150) % 4))
    label = np.random.default_rng(0).integers(0, 3, len(judge.y))
    figures = judge.summary(outcome_of(label))
    assert figures.quality == ACCURACY(judge.y, label, judge.weight)
    assert figures.quality == figures_of(outcome_of(label), judge.y, judge.weight).quality
    more_lost = (judge.y != label).astype(float) - (judge.y != judge.hpc_label)
    f0 = ACCURACY(judge.y, judge.hpc_label, judge.weight)
    assert np.average(more_lost, weights=judge.weight) == pytest.approx(f0 - figures.quality)
    away = judge.weight * (more_lost - (f0 - figures.quality))
    assert figures.loss_se == pytest.approx(np.sqrt(np.square(away).sum()) / judge.weight.sum())
