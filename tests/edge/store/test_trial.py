# SPDX-License-Identifier: Apache-2.0
"""The rules of a trial, one by one, in virtual time."""

from __future__ import annotations

import pytest

from hardcase_edge.bundle.agreement import Agreement
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.store.trial import PASSED, Rules, SensorHealth, Trial

RULES = Rules(decisions=3, deadline_s=100, memory_bytes=1_000)
AUDITED = Rules(decisions=3, deadline_s=100, memory_bytes=1_000, audits=4)


def verdicts(trial: Trial, *decisions: tuple[float, bool, int]) -> list[str]:
    return [trial.decided(now, is_connected=up, memory_bytes=memory) for now, up, memory in decisions]


def test_a_trial_passes_with_its_last_decision() -> None:
    assert verdicts(Trial(RULES, 5), (6, False, 10), (7, False, 10), (104, False, 1_000)) == ["", "", PASSED]


def test_a_trial_fails_by_memory() -> None:
    assert verdicts(Trial(RULES, 5), (6, False, 1_001)) == ["it took 1001 bytes of memory, more than 1000"]


def test_a_trial_fails_at_its_deadline() -> None:
    trial = Trial(RULES, 5)
    assert (trial.waited(104.9), trial.waited(105)) == ("", "after 100 s it had made 0 decisions")
    assert verdicts(trial, (105, True, 0)) == ["after 100 s it had made 1 decisions"]


def test_where_the_cloud_was_seen_it_must_be_seen_again() -> None:
    trial = Trial(RULES, 0, needs_cloud=True)
    assert verdicts(trial, *[(k, False, 0) for k in range(5)]) == [""] * 5
    assert trial.waited(100) == "after 100 s it had made 5 decisions and no connection to the cloud"
    assert verdicts(trial, (50, True, 0)) == [PASSED]
    once = Trial(RULES, 0, needs_cloud=True)
    assert verdicts(once, (1, True, 0), (2, False, 0), (3, False, 0))[-1] == PASSED


def test_a_trial_waits_for_its_audits_and_passes_with_the_last_one() -> None:
    agreement = Agreement(0.9)
    trial = Trial(AUDITED, 0, agreement=agreement)
    assert verdicts(trial, *[(1, True, 0)] * 5) == [""] * 5
    for k in range(4):
        assert trial.wants_audit
        assert verdicts(trial, (2, True, 0)) == [""]
        agreement.audited(k > 0)
    assert not trial.wants_audit
    assert verdicts(trial, (3, True, 0)) == [PASSED]


def test_a_cloud_that_does_not_answer_holds_a_trial_up_for_half_of_its_deadline() -> None:
    trial = Trial(AUDITED, 0, agreement=Agreement(0.9))
    assert verdicts(trial, *[(k, True, 0) for k in (1, 2, 3, 49.9, 50)]) == ["", "", "", "", PASSED]


def test_a_trial_fails_by_answers_with_which_f0_does_not_agree() -> None:
    agreement = Agreement(0.95)
    trial = Trial(AUDITED, 0, agreement=agreement)
    for _ in range(3):
        assert verdicts(trial, (1, True, 0)) == [""]
        agreement.audited(False)
    assert verdicts(trial, (60, True, 0)) == [
        "f0 agreed with 0 of 3 audited answers, and the bundle promises 0.95 of all"
    ]


def test_without_a_promise_or_with_no_audits_asked_for_nothing_waits_for_f0() -> None:
    for trial in (Trial(AUDITED, 0), Trial(RULES, 0), Trial(Rules(decisions=3, audits=0), 0, agreement=Agreement(0.9))):
        assert not trial.wants_audit
        assert verdicts(trial, *[(1, True, 0)] * 3) == ["", "", PASSED]


@pytest.mark.parametrize(
    "wrong",
    [{"decisions": 0}, {"decisions": 2_000_000}, {"deadline_s": 0.5}, {"deadline_s": float("nan")}, {"audits": -1}],
)
def test_rules_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Rules(**wrong)


def heard(*records: dict[str, object], before: set[str] | None = frozenset(), deadline: float = 1) -> list[str]:
    """The verdict after each decision of a trial of three, the last of them at this share of half of its deadline."""
    sensors = SensorHealth(inner=("memory",))
    trial = Trial(RULES, 0, sensors=sensors, broken_before=before)
    out = []
    for k, record in enumerate(records, 1):
        sensors.decided(record)
        out += verdicts(trial, (50 * deadline if k == len(records) else 1, True, 0))
    return out


BOTH, NO_B, NONE = ({"sensors": ["a", "b"], "failed": failed} for failed in ([], ["b"], ["a", "b"]))
LOST_B = "in 3 decisions these sensors only failed, and were not broken before: b"


def test_a_sensor_that_only_fails_and_did_not_before_fails_the_trial() -> None:
    assert heard(NO_B, NO_B, NO_B) == ["", "", LOST_B]
    assert heard({"sensors": ["a"], "failed": ["b"]}, NO_B, NO_B)[-1] == LOST_B, "a dead one is not among those bought"


def test_a_sensor_that_was_broken_before_and_one_that_fails_now_and_then_do_not() -> None:
    assert heard(NO_B, NO_B, NO_B, before={"b"}) == ["", "", PASSED]
    assert heard(NO_B, NO_B, BOTH) == ["", "", PASSED]
    assert heard(BOTH, NO_B, NO_B, NO_B)[2] == PASSED
    assert heard(NO_B, NO_B, NO_B, before=None) == ["", "", PASSED], "with no bundle before, nothing is compared"


def test_a_trial_without_one_reading_fails_whatever_was_broken_before() -> None:
    why = "no sensor gave a reading in 3 decisions, and these failed: a, b"
    for before in (frozenset(), {"a", "b"}, None):
        assert heard(NONE, NONE, NONE, before=before) == ["", "", why]
    inner = {"sensors": ["memory"], "failed": ["a"]}
    assert "no sensor gave a reading" in heard(inner, inner, inner)[-1], "what the device fills itself is no evidence"
    nothing = {"sensors": [], "failed": []}
    assert heard(nothing, nothing, nothing) == ["", "", PASSED], "a policy that wanted no sensor has lost none"


def test_a_sensor_that_failed_once_and_was_not_asked_again_is_waited_for() -> None:
    only_a = {"sensors": ["a"], "failed": []}
    assert heard(NO_B, *[only_a] * 5, deadline=0.5) == [""] * 6
    assert heard(NO_B, *[only_a] * 5) == [""] * 5 + [PASSED], "half of the deadline is over"
    assert heard(NO_B, only_a, only_a, BOTH, deadline=0.5)[-1] == PASSED
    assert heard(NO_B, only_a, NO_B, only_a, NO_B)[-1] == LOST_B.replace("3", "5")


def test_a_sensor_of_items_fails_only_if_no_part_gave_its_reading() -> None:
    some = {"bought": {"a": [0, 1], "b": [0, 1]}, "failed": {"b": [1]}}
    none = {"bought": {"a": [0, 1], "b": [0]}, "failed": {"b": [0, 1]}}
    assert heard(some, some, some) == ["", "", PASSED]
    assert heard(none, none, none) == ["", "", LOST_B]


def test_a_reason_names_three_sensors_and_is_short() -> None:
    lost = {"sensors": ["a"], "failed": [name * 90 for name in "bcdef"]}
    reason = heard(lost, lost, lost)[-1]
    assert reason.endswith(f": {'b' * 24}, {'c' * 24}, {'d' * 24} and 2 more")
    assert len(reason) <= 200


def test_a_sensor_is_broken_after_three_failures_in_a_row_and_works_again_after_three_readings() -> None:
    sensors = SensorHealth({"old"})
    for failed in (True, True, False, True, True):
        sensors.decided(NO_B if failed else BOTH)
    assert sensors.broken == {"old"}
    sensors.decided(NO_B)
    assert sensors.broken == {"old", "b"}
    for record in (BOTH, BOTH, NO_B, BOTH, BOTH):
        sensors.decided(record)
    assert sensors.broken == {"old", "b"}
    sensors.decided(BOTH)
    assert sensors.broken == {"old"}
