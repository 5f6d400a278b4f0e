# SPDX-License-Identifier: Apache-2.0
"""Intervals: Wilson's beside scipy's, coverage of the others by simulation; counts by class beside counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hardcase_edge.more.batch.intervals import effective_rows, loss_interval, paired, quality_interval, wilson
from hardcase_edge.more.batch.per_class import per_class
from hardcase_edge.more.batch.quality import ACCURACY, R2, Quality

BALANCED = Quality("balanced", "balanced accuracy")
ERRORS = Quality("errors", "error costs", costs=((0.0, 5.0), (50.0, 0.0)), scale=5.0)


@pytest.mark.parametrize("n", [1, 2, 7, 100, 4000])
def test_wilsons_interval_is_scipys(n: int) -> None:
    for k in {0, 1, n // 3, n // 2, n - 1, n}:
        low, high = stats.binomtest(k, n).proportion_ci(method="wilson")
        assert wilson(k, n) == pytest.approx((low, high), abs=1e-12)
    assert wilson(0, n)[0] == 0.0
    assert wilson(n, n)[1] == 1.0


def test_without_rows_every_share_is_possible() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("worse", "better"), [(0.02, 0.01), (0.05, 0.05), (0.0, 0.03)])
def test_a_loss_of_accuracy_lies_in_its_interval_as_often_as_it_says(worse: float, better: float) -> None:
    rng = np.random.default_rng(0)
    draws = rng.multinomial(300, [worse, better, 1 - worse - better], size=2000)
    inside = [low <= worse - better <= high for low, high in (paired(w, b, 300) for w, b, _ in draws)]
    assert 0.93 < np.mean(inside) <= 1.0


@pytest.mark.parametrize("quality", [ACCURACY, BALANCED, ERRORS], ids=lambda q: q.kind)
def test_a_measure_and_its_loss_lie_in_their_intervals_as_often_as_they_say(quality: Quality) -> None:
    rng = np.random.default_rng(1)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        y = (rng.random(n) < 0.3).astype(np.int64)
        return y, np.where(rng.random(n) < 0.2, 1 - y, y), np.where(rng.random(n) < 0.1, 1 - y, y)

    y, answers, reference = draw(400_000)
    truth, lost = quality(y, answers), quality(y, reference) - quality(y, answers)
    inside, inside_loss = [], []
    for _ in range(400):
        y, answers, reference = draw(400)
        low, high = quality_interval(quality, y, answers)
        inside.append(low <= truth <= high <= 1)
        loss, (low, high) = loss_interval(quality, y, answers, reference)
        assert loss == quality(y, reference) - quality(y, answers)
        inside_loss.append(low <= lost <= high)
    assert 0.91 < np.mean(inside) < 0.99
    assert 0.91 < np.mean(inside_loss) < 0.99


def test_counts_by_class_are_those_counted_by_hand() -> None:
    rng = np.random.default_rng(2)
    y, answers = rng.integers(0, 4, (2, 50))
    counts = per_class(y, answers, 6)
    for k, count in enumerate(counts):
        right = sum(a == b == k for a, b in zip(y, answers, strict=True))
        assert (count.n, count.answered, count.right) == (list(y).count(k), list(answers).count(k), right)
    assert (counts[5].recall, counts[5].precision) == (None, None)
    assert counts[0].to_json()["recall_95"] == pytest.approx(wilson(counts[0].right, counts[0].n))
    assert counts[5].recall_95 == (0.0, 1.0)


# ---------------------------------------------------------------- rows in groups


def test_rows_of_their_own_groups_count_as_rows_without_groups() -> None:
    rng = np.random.default_rng(3)
    y, answers, reference = rng.integers(0, 2, (3, 60))
    group = np.arange(60) * 7
    for quality in (ACCURACY, BALANCED, ERRORS):
        assert quality_interval(quality, y, answers, group) == pytest.approx(
            quality_interval(quality, y, answers), abs=3e-2
        )
        assert loss_interval(quality, y, answers, reference, group)[1] == pytest.approx(
            loss_interval(quality, y, answers, reference)[1], abs=3e-2
        )


def test_rows_that_are_copies_of_one_count_once() -> None:
    right = np.array([1.0, 0.0] * 10)
    group = np.repeat(np.arange(20), 5)
    assert effective_rows(np.repeat(right, 5), group) == pytest.approx(effective_rows(right, np.arange(20)))
    for m in (1, 2, 3, 4, 10, 100):  # no difference to learn from: a group is a row, and few groups are Student's
        student = stats.t.ppf(0.975, max(m - 1, 1)) / stats.norm.ppf(0.975)
        assert effective_rows(np.ones(4 * m), np.repeat(np.arange(m), 4)) == pytest.approx(m / student**2, rel=0.02)
    assert effective_rows(np.repeat(right, 5), np.zeros(100)) == effective_rows(np.ones(9), np.zeros(9)) < 1


@pytest.mark.parametrize("quality", [ACCURACY, BALANCED, ERRORS], ids=lambda q: q.kind)
def test_intervals_hold_for_rows_in_groups_where_those_of_rows_do_not(quality: Quality) -> None:
    rng = np.random.default_rng(4)

    def draw(n_groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of machines; on some machines many answers are wrong."""
        group = np.repeat(np.arange(n_groups), 12)
        y = (rng.random(len(group)) < 0.4).astype(np.int64)
        wrong = rng.random(len(group)) < np.where(rng.random(n_groups) < 0.2, 0.8, 0.02)[group]
        return y, np.where(wrong, 1 - y, y), group

    truth = quality(*draw(60_000)[:2])
    inside = {True: [], False: []}  # type: ignore[var-annotated]
    for _ in range(300):
        y, answers, group = draw(60)
        for is_grouped in inside:
            low, high = quality_interval(quality, y, answers, group if is_grouped else None)
            inside[is_grouped].append(low <= truth <= high)
    assert np.mean(inside[True]) > 0.9
    assert np.mean(inside[False]) < 0.8


@pytest.mark.parametrize("n_groups", [4, 8])
@pytest.mark.parametrize("quality", [ACCURACY, BALANCED], ids=lambda q: q.kind)
def test_few_groups_have_wide_intervals_that_hold(quality: Quality, n_groups: int) -> None:
    rng = np.random.default_rng(3)

    def draw(m: int) -> tuple[np.ndarray, ...]:
        group = np.repeat(np.arange(m), 30)
        y = (rng.random(len(group)) < 0.4).astype(np.int64)
        wrong = rng.random(len(group)) < rng.beta(2, 8, m)[group]
        return y, np.where(wrong, 1 - y, y), np.where(rng.random(len(group)) < 0.15, 1 - y, y), group

    y, answers, reference, _ = draw(20_000)
    truth, lost = quality(y, answers), quality(y, reference) - quality(y, answers)
    inside = []
    for _ in range(300):
        y, answers, reference, group = draw(n_groups)
        low, high = quality_interval(quality, y, answers, group)
        of_loss = loss_interval(quality, y, answers, reference, group)[1]
        inside.append((low <= truth <= high, of_loss[0] <= lost <= of_loss[1]))
    assert np.mean(inside, axis=0) == pytest.approx([0.96, 0.96], abs=0.04)


def test_an_interval_of_values_does_not_exceed_the_best_that_there_is() -> None:
    y = np.array([0.0, 0.0, 0.0, 10.0, 1.0, 2.0])
    low, high = quality_interval(R2, y, y + 2 * (np.arange(6) == 3))
    assert low < 0.9
    assert high == 1.0
