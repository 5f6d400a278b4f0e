# SPDX-License-Identifier: Apache-2.0
"""A promise tested again: seldom called broken while it holds, soon when it does not, and remembered over a restart."""

from __future__ import annotations

import json
import random

import pytest

from hardcase_edge.base.change import Change, stake_at, stakes
from hardcase_edge.more.drift.promise import ALPHA, BROKEN, HOLDS, MOST_BREAKS, UNKNOWN, Promise, promise_of
from hardcase_edge.more.drift.reaction import LOOK, PROBE
from hardcase_edge.settings.values import ALARM, FORWARD


def audits(promise: Promise, share: float, n: int, seed: int) -> Promise:
    draw = random.Random(seed)
    for _ in range(n):
        promise.decided(is_forwarded=False)
        promise.audited(draw.random() < share)
    return promise


def test_all_stakes_together_are_never_more_than_the_purse():
    staked = sum(stake_at(n) for n in range(1, 20_000))
    assert 0.85 < staked < 1
    assert min(stake_at(n) for n in (1, 2, 10, 1_000, 10**6)) > 0


@pytest.mark.parametrize("bound", [0.001, 0.02, 0.2, 0.6])
def test_a_value_at_the_bound_multiplies_no_stake_on_average(bound):
    """The supermartingale, exactly: one step from any state, of ones with a probability of the bound."""
    change = Change(bound, 1e-9)
    for k in range(50):
        change.see(float(k % 17 == 0), k)
    before, stake = change.to_json()[3], stake_at(51)
    after = {}
    for value in (0.0, 1.0):
        step = Change(bound, 1e-9)
        assert step.restore(change.to_json())
        step.see(value, 51)
        after[value] = step.to_json()[3]
    for k in range(len(stakes(bound))):
        mean = (1 - bound) * after[0.0][k] + bound * after[1.0][k]
        assert mean == pytest.approx(before[k] + stake)


def test_a_promise_that_holds_is_seldom_called_broken_and_one_that_breaks_soon():
    assert sum(audits(Promise(0.95, None), 0.95, 400, seed).state == BROKEN for seed in range(20)) <= 20 * ALPHA
    for seed in range(5):
        promise = audits(Promise(0.95, None), 0.99, 400, seed)
        assert promise.state == HOLDS
        audits(promise, 0.5, 40, seed)
        assert promise.state == BROKEN
        assert 380 <= promise.broken_since <= 430, "the decision at which it began to break, about"


def test_nothing_is_said_of_few_audits():
    assert audits(Promise(0.95, None), 1.0, 20, 0).state == UNKNOWN


def test_a_broken_promise_stays_broken_and_a_rule_forwards_all_until_f0_agrees():
    alarm = audits(audits(Promise(0.9, None, ALARM), 0.3, 40, 1), 1.0, 500, 1)
    assert (alarm.state, alarm.breaks, alarm.forwarded_share) == (BROKEN, 1, 0.0)
    promise = audits(Promise(0.9, None, FORWARD), 0.3, 10, 1)
    assert (promise.breaks, promise.forwarded_share) == (1, 1.0)
    audits(promise, 1.0, 200, 1)
    assert promise.facts() | {"agreement": 0} == {
        "state": BROKEN, "since": 2, "decisions": 210, "agreement": 0, "now": HOLDS, "rule": FORWARD, "forwarding": 1.0,
        "rest": {"cases": 0, "alone": 0, "wrong_at_most": 0, "uncovered": 0},
    }  # fmt: skip


def test_audits_that_fail_again_have_all_cells_rest_and_the_ledger_goes_on():
    promise = audits(Promise(0.9, None, FORWARD), 0.0, 10, 1)
    for _ in range(400):
        if promise.rest.takes(3, 0.5):
            promise.rest.answered(agrees=True)
    alone, breaks = promise.rest.alone, promise.breaks
    assert (alone, promise.forwarded_share) == (400 - LOOK, pytest.approx(PROBE))
    audits(promise, 0.0, 40, 1)
    assert promise.breaks > breaks
    assert (promise.rest.takes(3, 0.5), promise.rest.alone) == (True, alone)
    audits(promise, 0.0, 3_000, 1)
    assert promise.breaks == MOST_BREAKS


def test_more_forwarding_than_promised_breaks_the_promise_without_an_audit():
    promise = Promise(None, 0.1)
    for k in range(3_000):
        promise.decided(is_forwarded=k % 10 == 0 if k < 2_000 else k % 2 == 0)
    assert promise.state == BROKEN
    assert 1_990 <= promise.facts()["forward"]["since"] <= 2_040


def test_decisions_that_may_forward_more_than_promised_are_counted_and_test_nothing():
    promise = Promise(None, 0.1)
    for _ in range(500):
        promise.decided(is_forwarded=None)
    assert (promise.state, promise.decisions) == (UNKNOWN, 500)
    for _ in range(100):
        promise.decided(is_forwarded=True)
    assert promise.state == BROKEN
    assert 500 <= promise.facts()["forward"]["since"] <= 502


@pytest.mark.parametrize("bound", [0.001, 0.007, 0.012, 0.05])
@pytest.mark.parametrize(("times", "within"), [(2.0, 60), (1.3, 1_000)])
def test_a_small_promised_share_is_tested_by_stakes_that_suit_it(bound, times, within):
    draw, change = random.Random(1), Change(bound, ALPHA)
    n = round(within / bound)
    change.see_all([float(draw.random() < times * bound) for _ in range(n)], list(range(1, n + 1)))
    assert change.is_noticed


@pytest.mark.parametrize("bound", [0.001, 0.012])
def test_a_small_promised_share_that_is_kept_exactly_is_seldom_called_broken(bound):
    n, alarms = round(100 / bound), 0
    for seed in range(10):
        draw, change = random.Random(seed), Change(bound, ALPHA)
        change.see_all([float(draw.random() < bound) for _ in range(n)], list(range(1, n + 1)))
        alarms += change.is_noticed
    assert alarms <= 1


def test_a_break_of_a_small_promised_share_is_said_to_begin_about_where_it_began():
    draw, change = random.Random(4), Change(0.005, ALPHA)
    values = [float(draw.random() < 0.004 * (k < 20_000) + 0.02 * (k >= 20_000)) for k in range(24_000)]
    change.see_all(values, list(range(1, 24_001)))
    assert change.is_noticed
    assert 19_000 <= change.since <= 21_000


def test_a_purse_of_an_earlier_version_goes_on():
    change, earlier = Change(0.01, ALPHA), [5_000, 0, 4_990, [0.01, 0.02, 0.03, 0.04, 0.05], 1.2]
    assert change.restore(earlier)
    assert change.to_json() == earlier


def test_a_promise_goes_on_over_a_restart_and_damage_begins_anew():
    promise = audits(Promise(0.95, 0.3, FORWARD), 0.7, 77, 3)
    assert promise.rest is not None
    assert promise.rest.takes(4, 0.5)
    state = json.loads(json.dumps(promise.to_json()))
    again = Promise(0.95, 0.3, FORWARD)
    assert again.restore(state)
    assert again.to_json() == promise.to_json()
    for seed in range(3):
        audits(promise, 0.8, 50, seed)
        audits(again, 0.8, 50, seed)
    assert again.to_json() == promise.to_json()


@pytest.mark.parametrize(("before", "after"), [(ALARM, FORWARD), (FORWARD, ALARM)])
def test_a_broken_promise_stays_broken_under_another_rule_and_one_that_holds_goes_on(before, after):
    promise = audits(Promise(0.95, 0.3, before), 0.0, 60, 1)
    again = Promise(0.95, 0.3, after)
    assert again.restore(json.loads(json.dumps(promise.to_json())))
    assert (again.state, again.since, again.breaks, again.n) == (BROKEN, promise.since, promise.breaks, 0)
    assert again.forwarded_share == (1.0 if after == FORWARD else 0.0)
    promise, again = audits(Promise(0.95, 0.3, before), 1.0, 60, 1), Promise(0.95, 0.3, after)
    assert again.restore(promise.to_json())
    assert (again.state, again.n, again.decisions) == (promise.state, 60, promise.decisions)


@pytest.mark.parametrize("key", ["decisions", "breaks", "since", "n", "agreed", "broken", "holds", "forward", "rule"])
@pytest.mark.parametrize("value", [None, -1, 1e300, 2**60, "x", [], [[]], {}, float("nan"), True])
def test_a_damaged_state_is_refused_and_changes_nothing(key, value):
    promise = Promise(0.95, 0.3)
    before = promise.to_json()
    assert not promise.restore({**audits(Promise(0.95, 0.3), 0.9, 5, 0).to_json(), key: value})
    assert promise.to_json() == before


@pytest.mark.parametrize("value", [None, 3, [], {}, "x", [0, 1, 0, 0, 0, [], []]])
def test_damaged_cells_are_refused_with_the_promise_and_none_are_of_an_earlier_version(value):
    state = audits(Promise(0.95, None, FORWARD), 0.0, 9, 0).to_json()
    promise = Promise(0.95, None, FORWARD)
    assert not promise.restore({**state, "rest": value})
    assert promise.rest is None
    assert promise.restore({key: x for key, x in state.items() if key != "rest"})
    assert (promise.forwarded_share, promise.rest.alone) == (1.0, 0)


def test_a_manifest_promises_shares_and_nothing_else():
    claims = {"audits": {"at_least": 0.9}, "promise": {"max_forward": 0.2}}
    promise = promise_of(claims)
    assert promise is not None
    assert (promise.agreement, promise.max_forward) == (0.9, 0.2)
    for odd in ({}, {"audits": 3}, {"audits": {"at_least": 1}}, {"promise": {"max_forward": 1.0}}, {"promise": []}):
        assert promise_of(odd) is None
