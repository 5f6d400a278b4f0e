# SPDX-License-Identifier: Apache-2.0
"""The servo: spending stays on plan, the price in its range, and no stream of cases spends more than the limits."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.bundle.prices import Prices
from hardcase_edge.more.servo.bucket import BASE_MOST, HALF, HOUR_MS, MOST_AMOUNT, MOST_MS, MOST_STEPS, Bucket
from hardcase_edge.more.servo.plan import Plan, energy_to_micro
from hardcase_edge.more.servo.servo import FORWARD, Servo, forward_bucket, spending_bucket

some = settings(max_examples=30)
amounts = st.one_of(st.integers(0, MOST_AMOUNT), st.integers(0, 10**7))
TABLE = Prices((1,), tuple((t,) for t in (1000, 800, 600, 400, 200, 0)), (1.0,) * 6, (0.5, 0.4, 0.3, 0.2, 0.1, 0.0), 2)


def hard_share(threshold: int, hardness: float) -> float:
    """Share of cases beyond the threshold, in a made world."""
    return min(1.0, hardness * threshold / 1000)


@given(amounts, st.integers(1, MOST_AMOUNT), st.integers(1, MOST_STEPS), st.data())
@some
def test_whatever_happens_no_more_is_spent_than_the_rate_and_two_bursts(rate, burst, steps, data) -> None:
    bucket = Bucket(rate, burst, steps, data.draw(st.integers(0, steps)))
    spent = passed = 0
    for ms, share in data.draw(st.lists(st.tuples(st.integers(0, MOST_MS), st.integers(0, 8)), max_size=20)):
        bucket.passed(ms)
        passed += ms
        cost = bucket.left * share // 8
        bucket.spent(cost)
        spent += cost
        assert 0 <= bucket.left <= 2 * burst
        assert 0 <= bucket.position <= steps
        assert spent <= burst + rate * passed // HOUR_MS
        bucket.resume(*bucket.state)
    largest = (rate // HOUR_MS * MOST_MS + 2 * burst, 2 * burst * HALF, steps * BASE_MOST, 4 * HALF**3)
    assert max(largest) < 2**63, "as C computes it"


@given(amounts, st.integers(1, MOST_AMOUNT), st.integers(1, MOST_STEPS), st.data())
@some
def test_a_price_begins_where_it_was_shipped(rate, burst, steps, data) -> None:
    begin = data.draw(st.integers(0, steps))
    assert Bucket(rate, burst, steps, begin).position == begin


@pytest.mark.parametrize("hardness", [[0.4, 1.6, 0.4, 1.6], [1.6, 0.4, 0.1]])
def test_spending_keeps_to_plan_under_steps_of_four_times_in_hardness(hardness) -> None:
    rng, servo = random.Random(1), Servo(TABLE, spending_bucket(360_000_000, 2_000_000, TABLE))
    spent, hours = 0, []
    for hour in hardness:
        before = spent
        for _ in range(3600):
            servo.passed(1000)
            budget, _ = servo.begin(None)
            cost = min(1_000_000 * (rng.random() < hard_share(servo.thresholds[0], hour)), budget)
            servo.ended(cost, False)
            spent += cost
            assert spent <= 360_000_000 * len(hours) + 360_000_000 + 9_000_000
        hours.append((spent - before) / 360_000_000)
    reachable = [hour >= 0.1 for hour in hardness]
    assert all(abs(h - 1) < 0.06 for h, ok in zip(hours, reachable, strict=True) if ok), hours


def test_a_stream_of_nothing_but_hard_cases_spends_the_hard_limit_and_no_more() -> None:
    servo = Servo(TABLE, spending_bucket(360_000_000, 2_000_000, TABLE))
    spent = 0
    for second in range(1, 7201):
        servo.passed(1000)
        budget, _ = servo.begin(None)
        servo.ended(min(budget, 2_000_000), True)
        spent += min(budget, 2_000_000)
        assert spent <= 100_000 * second + 9_000_000
    assert servo.thresholds == (0,), "the highest price"


def test_forwards_keep_to_their_share_of_decisions() -> None:
    servo, forwarded = Servo(TABLE, None, forward_bucket(0.1, TABLE)), 0
    for k in range(1, 3001):
        _, may_forward = servo.begin(None)
        forwards = may_forward and random.Random(k).random() < hard_share(servo.thresholds[0], 0.5)
        servo.ended(10, forwards)
        forwarded += forwards
        assert forwarded * FORWARD <= 100_000 * k + servo.forwards.burst
    assert 0.09 < forwarded / 3000 < 0.106
    assert servo.begin(None)[0] is None, "there is no budget"


def test_without_a_budget_nothing_is_spent_beyond_the_shipped_price() -> None:
    servo = Servo(TABLE, None, forward_bucket(0.5, TABLE))
    for _ in range(5000):
        servo.begin(None)
        servo.ended(1, False)
    assert servo.thresholds == (600,) == TABLE.levels[TABLE.shipped]


def test_a_bundle_without_prices_is_limited_only() -> None:
    servo = Servo(None, spending_bucket(3_600_000, 5_000_000, None))
    assert (servo.thresholds, servo.position, servo.begin(7)) == ((), 0, (7, True))
    assert servo.begin(None) == (5_000_000, True)
    servo.ended(5_000_000, True)
    servo.passed(1000)
    assert servo.begin(None) == (1000, True)


def test_an_interval_stretches_only_where_the_highest_price_is_not_enough() -> None:
    servo = Servo(TABLE, spending_bucket(360_000_000, 2_000_000, TABLE))
    stretches = []
    for _ in range(12):
        stretches.append(servo.stretch)
        servo.ended(1_000_000, False)
    assert stretches[0] == 1.0 == stretches[4]
    assert stretches == sorted(stretches)
    assert stretches[-1] == servo.stretch == 8.0


def test_a_battery_is_spread_over_what_is_left_of_its_time() -> None:
    plan = Plan(left=1000, left_ms=10 * HOUR_MS)
    plan.passed(HOUR_MS)
    assert plan.rate == 111, "an hour that spent nothing is spread over the others"
    plan.spent(910)
    assert (plan.rate, plan.most(500), plan.most(None), plan.most(3)) == (10, 90, 90, 3)
    plan.passed(100 * HOUR_MS)
    assert plan.rate == 90
    assert Plan(50, 1000, HOUR_MS).rate == 50, "the lower of two"
    assert energy_to_micro(1.0, "mJ") == 3_600_000_000


def test_a_clock_shortens_a_plan_by_a_day_an_hour_and_never_lengthens_it() -> None:
    plan = Plan(left=1000, left_ms=100 * HOUR_MS)
    plan.date_is_in(10**15, HOUR_MS)
    assert plan.left_ms == 100 * HOUR_MS, "a clock that begins in 1970"
    plan.date_is_in(0, HOUR_MS)
    assert plan.left_ms == 76 * HOUR_MS, "a clock that is years ahead"
    plan.date_is_in(70 * HOUR_MS, HOUR_MS)
    assert plan.left_ms == 70 * HOUR_MS
