# SPDX-License-Identifier: Apache-2.0
"""A roll-out: waves, timeouts, what ends it, and that it says done only when every device runs the bundle for good."""

from __future__ import annotations

import json
import math
import random

import pytest

from hardcase_cloud.rollout.waves import machine
from hardcase_cloud.rollout.waves.plan import Plan
from hardcase_edge.errors import InputError

TARGET = "ab" * 32


def rollout(n: int = 30, **plan: object) -> machine.Rollout:
    return machine.Rollout(Plan(**{"canary": 4, "factor": 3.0, **plan}), TARGET, [f"d{k}" for k in range(n)], 0.0)  # type: ignore[arg-type]


def through(it: machine.Rollout, now: float, devices: list[str], end: str = machine.GOOD) -> None:
    for device in devices:
        it.presence(device, True)
        for state in ("offered", "loading 1/2", "trial", end):
            it.observe(now, device, state, "why" if end != machine.GOOD else "")


def restarted(it: machine.Rollout) -> machine.Rollout:
    states = {d: (i.state, i.since, i.reason) for d in it.order if (i := it.instance(d))}
    again = machine.Rollout.restored(json.loads(json.dumps(it.to_json())), states)
    for d in it.order:
        again.presence(d, it.instance(d).is_online)  # type: ignore[union-attr]
    return again


def test_a_good_bundle_goes_out_in_waves_and_is_done_when_all_run_it() -> None:
    it, now, waves = rollout(soak_s=5.0), 0.0, []
    while not it.is_over:
        if wave := it.tick(now):
            waves.append(len(wave))
            assert it.tick(now + 4.9) == []
            through(it, now, wave)
        now += 5
    assert (waves, it.state, it.counts[machine.GOOD], it.ended) == ([4, 8, 18], machine.DONE, 30, 15.0)


def test_no_wave_begins_before_the_last_one_has_ended() -> None:
    it = rollout()
    first = it.tick(0)
    through(it, 1, first[1:])
    it.presence(first[0], True)
    it.observe(1, first[0], "trial")
    assert it.tick(2) == []
    it.observe(3, first[0], machine.GOOD)
    assert len(it.tick(3)) == 8


def test_what_a_trial_waits_for_is_kept_and_its_time_runs_on() -> None:
    it = rollout()
    first = it.tick(0)[0]
    it.observe(1, first, "trial")
    it.take_changes()
    it.observe(2, first, "trial", "waits for 30 answers of f0, has 0")
    assert {d: (i.state, i.since, i.reason) for d, i in it.take_changes().items()} == {
        first: ("trial", 1, "waits for 30 answers of f0, has 0")
    }
    it.observe(3, first, "trial", "waits for 30 answers of f0, has 0")
    assert it.take_changes() == {}
    it.observe(4, first, machine.GOOD)
    assert it.instance(first).reason == ""


def test_a_bundle_that_crashes_touches_the_canary_only() -> None:
    it = rollout(1000, canary=10, abort_above=0.05, abort_after=5)
    through(it, 1, it.tick(0), machine.ROLLED_BACK)
    assert it.tick(2) == []
    assert (it.state, it.n_released, it.reason) == (machine.ABORTED, 10, "10 of 10 devices failed, allowed are 5.0%")
    assert not any(it.may_have(device) for device in it.order)


def test_few_failures_are_allowed_and_then_it_is_not_done() -> None:
    it, now = rollout(200, canary=100, abort_above=0.05, abort_after=10), 0.0
    wave = it.tick(0)
    through(it, now, wave[:-2])
    through(it, now, wave[-2:], machine.ROLLED_BACK)
    while not it.is_over:
        through(it, now, it.tick(now))
        now += 1
    assert (it.state, it.reason) == (machine.INCOMPLETE, "2 devices do not run it")


@pytest.mark.parametrize(
    ("state", "after", "reason"), [("", 3600, "offered"), ("loading 0/9", 7200, "loading"), ("trial", 99, "trial")]
)
def test_every_state_times_out(state: str, after: float, reason: str) -> None:
    it = rollout(4, offer_s=3600, load_s=7200, trial_s=99, abort_above=1.0)
    for device in it.tick(0):
        it.presence(device, True)
        if state:
            it.observe(0, device, state)
    it.tick(after - 0.5)
    assert not it.is_over
    it.tick(after)
    assert (it.state, it.counts[machine.TIMED_OUT]) == (machine.INCOMPLETE, 4)
    assert it.instance("d0").reason == f"it stayed {reason}"  # type: ignore[union-attr]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_device_that_is_not_there_has_not_failed_and_nobody_waits_for_it_twice(restarts: bool) -> None:
    it = rollout(16, canary=4)
    first = it.tick(0)
    through(it, 0, first[1:])
    second = it.tick(3600)
    assert (it.counts[machine.AWAY], len(second)) == (1, 8)
    it.presence(first[0], True)
    it.observe(3601, first[0], "loading 1/2")
    if restarts:
        it = restarted(it)
    through(it, 3602, second)
    third = it.tick(3603)
    assert len(third) == 4
    through(it, 3604, third)
    it.tick(3605)
    assert it.state == machine.RUNNING, "one device is loading"
    it.observe(3606, first[0], machine.GOOD)
    it.tick(3606)
    assert it.state == machine.DONE


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("says", "hours"),
    [("l", 6), ("p" * 16 + "l", 22), ("l" + "p" * 16 + "l", 22), ("pppal", 10), ("pppg", 9), ("ppt", 8)],
)
def test_metered_hours_in_which_a_device_is_there_are_no_time_of_loading(says: str, hours: int, restarts: bool) -> None:
    """Each hour it is loading, paused, gone or on trial, or nobody is served (a); then the last goes on."""
    words = {"l": "loading 1/9", "p": "paused 1/9", "g": "paused 1/9", "t": "trial"}
    it, now, away_s = rollout(1, abort_above=1.0), 0, 0
    (device,) = it.tick(0)
    while not it.is_over:
        said = says[min(now // 3600, len(says) - 1)]
        if said == "a":
            away_s += 600
        else:
            it.excuse(away_s)
            away_s = 0
            it.presence(device, said != "g")
            it.observe(now, device, words[said])
            it.tick(now)
        it = restarted(it) if restarts and now == 7_200 else it
        now += 600
    assert (it.counts[machine.TIMED_OUT], math.ceil((now - 600) / 3600)) == (1, hours)


def test_a_device_that_says_for_ever_that_its_hours_are_metered_times_out() -> None:
    it, hour = rollout(1, abort_above=1.0), 0
    (device,) = it.tick(0)
    while not it.is_over:
        it.presence(device, True)
        it.observe(3_600.0 * hour, device, "paused 1/9")
        it.tick(3_600.0 * hour)
        hour += 1
    assert (it.counts[machine.TIMED_OUT], hour - 1) == (1, 7 * 24 + 6)


def test_a_device_that_is_good_late_or_no_longer_counts_as_what_it_is() -> None:
    it = rollout(8, canary=4, abort_above=1.0, offer_s=10)
    first = it.tick(0)
    through(it, 0, first[1:])
    it.presence(first[0], True)
    it.tick(10)
    assert it.instance(first[0]).state == machine.TIMED_OUT  # type: ignore[union-attr]
    it.observe(11, first[0], machine.GOOD)
    it.observe(12, first[1], "unknown")
    assert [it.instance(d).state for d in first[:2]] == [machine.GOOD, machine.ROLLED_BACK]  # type: ignore[union-attr]


def test_devices_that_run_it_already_are_not_released() -> None:
    it = rollout(4, canary=2)
    for device in it.order:
        it.observe(0, device, machine.GOOD)
    assert it.tick(0) == []
    assert it.state == machine.DONE


def test_pause_resume_stop_and_supersede() -> None:
    it = rollout()
    first = it.tick(0)
    it.pause()
    through(it, 1, first)
    assert (it.tick(2), it.state) == ([], machine.PAUSED)
    it.resume()
    second = it.tick(3)
    assert len(second) == 8
    assert it.may_have(second[0])
    it.stop(4)
    it.resume()
    it.observe(5, second[0], machine.GOOD)
    assert (it.state, it.ended, it.tick(6), it.may_have(second[0])) == (machine.STOPPED, 4, [], False)
    other = rollout()
    other.stop(1, "roll-out 2 has a newer bundle", machine.SUPERSEDED)
    assert (other.state, other.is_over) == (machine.SUPERSEDED, True)


def audits(it: machine.Rollout, rng: random.Random, agreement: float, now: float) -> None:
    """Audits of the canary until the roll-out has an opinion, at most 4,000."""
    first = it.tick(now)
    through(it, now, first)
    for k in range(4_000):
        it.audited(first[k % len(first)], rng.random() < agreement)
        if it.tick(now) or it.is_over:
            return


def test_a_bundle_that_is_worse_by_three_points_stays_in_the_canary() -> None:
    outcomes = []
    for seed in range(4):
        it = rollout(100, canary=10, agreement=0.95)
        audits(it, random.Random(seed), 0.92, 0)
        it.tick(8 * 86_400)
        outcomes.append((it.state, it.n_released))
    assert outcomes == [(machine.ABORTED, 10)] * 4


def test_a_bundle_that_keeps_its_promise_leaves_the_canary() -> None:
    for seed in range(4):
        it = rollout(100, canary=10, agreement=0.95)
        audits(it, random.Random(seed), 0.96, 0)
        assert (it.state, it.n_released) == (machine.RUNNING, 30)


def test_audits_of_devices_that_do_not_run_it_say_nothing_of_it() -> None:
    it = rollout(agreement=0.95)
    first = it.tick(0)
    for _ in range(1000):
        it.audited(first[0], False)
        it.audited("d99", False)
        it.spent(first[0], 1.0)
    it.tick(0)
    assert (it.state, it.quality.criteria["agreement"].n) == (machine.RUNNING, 0)


def test_a_bundle_that_costs_more_than_its_budget_is_stopped_and_one_within_is_not() -> None:
    for mean, state in ((0.6, machine.ABORTED), (0.48, machine.RUNNING)):
        it, rng = rollout(budget=5.0, cost_limit=10.0, tolerance=0.03), random.Random(3)
        first = it.tick(0)
        through(it, 0, first)
        for _ in range(3_000):
            it.spent(first[0], 10 * rng.random() * 2 * mean if mean < 0.5 else 10 * min(1.0, rng.random() + 0.1))
            if it.tick(0):
                break
        assert it.state == state


def test_quality_that_is_never_certain_ends_it() -> None:
    it = rollout(agreement=0.95, quality_s=100.0)
    through(it, 5, it.tick(0))
    it.tick(105)
    assert (it.state, it.reason) == (machine.ABORTED, "the quality is not certain in time: no audits and no costs")


def test_a_roll_out_goes_on_after_a_restart_as_if_nothing_had_happened() -> None:
    def run(restarts: bool) -> tuple[object, ...]:
        it, rng, now, log = rollout(200, agreement=0.9, offer_s=50.0), random.Random(7), 0.0, []
        while not it.is_over and now < 1e5:
            if restarts:
                it = restarted(it)
            for device in it.tick(now):
                log.append((now, device))
                if rng.random() < 0.9:
                    through(it, now, [device])
            for device in it.order[:5]:
                for _ in range(40):
                    it.audited(device, rng.random() < 0.97)
            now += 10
        return log, it.state, it.counts, it.ended

    assert run(True) == run(False)


def test_whatever_devices_say_counts_add_up_and_done_means_good() -> None:
    rng = random.Random(11)
    words = [
        "unknown", "offered", "loading 1/3", "paused 0/3", "trial", machine.GOOD, machine.ROLLED_BACK, "refused", "x",
        "",
    ]  # fmt: skip
    outcomes = set()
    for _ in range(60):
        it, now, share = (
            rollout(12, abort_above=rng.choice([0.1, 1]), load_s=30, trial_s=30, abort_after=3),
            0.0,
            rng.choice([0.4, 1]),
        )
        while not it.is_over:
            it.tick(now)
            for _ in range(rng.randrange(6)):
                device = rng.choice([*it.order, "stranger"])
                it.observe(now, device, machine.GOOD if rng.random() < share else rng.choice(words))
                it.presence(device, rng.random() < 0.8)
            assert sum(it.counts.values()) == 12
            assert min(it.counts.values()) >= 0
            assert set(it.counts) <= set(machine.STATES)
            assert now < 1e5
            now += rng.choice([0.1, 5])
        outcomes.add(it.state)
        if it.state == machine.DONE:
            assert all(it.instance(d).state == machine.GOOD for d in it.order)  # type: ignore[union-attr]
    assert outcomes >= {machine.DONE, machine.ABORTED, machine.INCOMPLETE}
    assert it.counts[machine.WAITING] >= 0


@pytest.mark.parametrize(
    "bad",
    [{"canary": 0}, {"factor": 1}, {"abort_above": 1.5}, {"abort_after": 0}, {"offer_s": math.nan}, {"delta": 0.9},
     {"agreement": 1.0}, {"budget": 3.0}, {"budget": 30.0, "cost_limit": 10.0}, {"canary": "x"}],
)  # fmt: skip
def test_a_plan_that_makes_no_sense_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Plan(**bad)  # type: ignore[arg-type]


def test_a_plan_with_a_key_of_a_later_version_is_refused() -> None:
    assert Plan.from_json(Plan(canary=3).to_json()) == Plan(canary=3)
    with pytest.raises(InputError, match="update hardcase-cloud"):
        Plan.from_json({"colour": 1})
