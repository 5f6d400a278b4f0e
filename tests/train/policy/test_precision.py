# SPDX-License-Identifier: Apache-2.0
"""Precision@5 and average precision of benchmarks, against every order of ties."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest

from benchmarks.relevance import AT, average_precision, precision


def over_all_orders(y: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    """Mean Precision@5 and AP@5 of one group over all orders that the scores allow."""
    shares, averages = [], []
    for order in permutations(range(len(y))):
        if all(score[a] >= score[b] for a, b in pairwise(order)):
            seen = y[list(order)][:AT]
            shares.append(seen.sum() / AT)
            up_to = np.cumsum(seen) / np.arange(1, len(seen) + 1)
            averages.append((seen * up_to).sum() / min(y.sum(), AT))
    return float(np.mean(shares)), float(np.mean(averages))


@pytest.mark.parametrize("seed", range(6))
def test_ties_count_by_the_mean_over_all_their_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, score = np.append(1, rng.integers(0, 2, 5)), rng.integers(0, 3, 6).astype(float)
    other_y, other_score = np.array([0, 1, 0]), np.array([0.3, 0.3, 0.1])
    both = [over_all_orders(y, score), over_all_orders(other_y, other_score)]
    rows = np.append(y, other_y), np.append(score, other_score), np.repeat([4, 9], [6, 3])
    order = rng.permutation(9)
    shuffled = [part[order] for part in rows]
    assert precision(*shuffled) == pytest.approx(np.mean([share for share, _ in both]))
    assert average_precision(*shuffled) == pytest.approx(np.mean([average for _, average in both]))


def test_groups_without_a_relevant_row_do_not_count() -> None:
    y, score, group = np.array([1, 0, 0, 0]), np.array([0.9, 0.1, 0.5, 0.4]), np.array([0, 0, 1, 1])
    assert precision(y, score, group) == pytest.approx(1 / AT)
    assert average_precision(y, score, group) == pytest.approx(1.0)


def test_a_row_may_take_several_places() -> None:
    y, score, group, copies = np.array([1, 0, 1]), np.array([0.5, 0.9, 0.1]), np.zeros(3), np.array([1, 3, 2])
    rows = [np.repeat(part, copies) for part in (y, score, group)]
    assert precision(y, score, group, copies) == pytest.approx(precision(*rows)) == pytest.approx(2 / AT)
    assert average_precision(y, score, group, copies) == pytest.approx(average_precision(*rows))
