# SPDX-License-Identifier: Apache-2.0
"""The test by betting: valid at every moment, strong where the mean is elsewhere, and an interval that covers."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest

from hardcase_edge.base.betting import FEW, MANY, Bets, interval, log_wealth


@pytest.mark.parametrize("stakes", [FEW, MANY])
@pytest.mark.parametrize("bound", [0.05, 0.5, 0.93])
def test_the_mean_wealth_is_one_at_the_bound(bound: float, stakes: tuple[float, ...]) -> None:
    """Over all sequences of eight values, each weighed with its probability: exactly, not by a sample."""
    total = 0.0
    for values in product((0, 1), repeat=8):
        bets = Bets(bound, 0.05, stakes=stakes)
        for value in values:
            bets.see(value)
        total += math.exp(bets.log_wealth) * math.prod(bound if v else 1 - bound for v in values)
    assert total == pytest.approx(1.0, abs=1e-9)


def test_a_true_hypothesis_is_rejected_at_any_time_with_probability_delta_at_most() -> None:
    rng, n_rejected = random.Random(1), 0
    for _ in range(100):
        bets = Bets(0.1, 0.2)
        for _ in range(100):
            bets.see(float(rng.random() < 0.1))
        n_rejected += bets.is_rejected
    assert 0 < n_rejected <= 20


@pytest.mark.parametrize("stakes", [FEW, MANY])
def test_counts_and_single_values_give_the_same_wealth(stakes: tuple[float, ...]) -> None:
    bets = Bets(0.2, 0.05, stakes=stakes)
    for value in [1, 0, 0, 1, 0]:
        bets.see(value)
    assert bets.log_wealth == pytest.approx(log_wealth(5, 2, 0.2, stakes))
    again = Bets(0.2, 0.05, bets.logs, stakes=stakes)
    again.see(0.0, 10)
    assert again.log_wealth == pytest.approx(log_wealth(15, 2, 0.2, stakes))


def test_the_interval_shrinks_round_the_mean() -> None:
    assert interval(0, 0) == (0.0, 1.0)
    widths = []
    for n in (20, 200, 2000, 20_000):
        low, high = interval(n, n * 9 // 10)
        assert low < 0.9 < high
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.03
