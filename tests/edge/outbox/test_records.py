# SPDX-License-Identifier: Apache-2.0
"""Which decisions are published, and what their records say."""

from __future__ import annotations

import json

import pytest

from hardcase_edge.errors import InputError
from hardcase_edge.fleet.outbox.records import MAX_RECORD_BYTES, Recorder, Rule
from hardcase_edge.settings.values import parse_bytes, parse_share

DECISION = {
    "t": 5.0, "label": "low", "confidence": 0.9, "route": "local", "cost": 1.0, "sensors": ["x"], "failed": [],
    "out_of_range": [], "latency_ms": 0.25,
}  # fmt: skip


def test_changes_are_of_the_answer_or_of_failed_sensors():
    rule = Rule("changes")
    lines = [("low", []), ("low", []), ("high", []), ("high", ["x"]), ("high", ["x"]), ("low", [])]
    taken = [rule.takes({**DECISION, "label": label, "failed": failed}) for label, failed in lines]
    assert taken == [True, False, True, True, False, True]


def test_a_share_is_drawn_and_all_is_all():
    draws = iter([0.005, 0.5, 0.0099, 0.01])
    rule = Rule("1%", lambda: next(draws))
    assert [rule.takes(DECISION) for _ in range(4)] == [True, False, True, False]
    assert Rule("all").takes(DECISION)


def test_a_record_has_its_numbers_and_times():
    clock = iter([100.0, 101.5, 103.25])
    recorder = Recorder("pi-1", "ab", 7, now=lambda: 50.0, monotonic=lambda: next(clock))
    made = recorder.decision(DECISION)
    assert (made.boot, made.sequence, made.made, made.is_audit) == (7, 1, 50.0, False)
    assert json.loads(made.payload) == {
        "kind": "decision", "device": "pi-1", "bundle": "ab", "boot": 7, "sequence": 1, "at": 1.5, "t": 50.0,
        "label": "low", "confidence": 0.9, "route": "local", "cost": 1.0, "failed": [], "latency_ms": 0.25,
    }  # fmt: skip
    audit = recorder.audit(DECISION, [0.5, None], 3.0)
    assert (audit.sequence, audit.is_audit) == (2, True)
    told = json.loads(audit.payload)
    assert (told["kind"], told["at"], told["readings"], told["audit_cost"]) == ("audit", 3.25, [0.5, None], 3.0)


def test_a_record_of_an_item_has_its_size_its_budget_and_whether_it_was_late():
    item = {"item_size": 32, "budget": 4.0, "late": False}
    for made in (
        Recorder("pi-1", "ab", 7).decision(DECISION | item),
        Recorder("pi-1", "ab", 7).audit(DECISION | item, [], 0),
    ):
        assert item.items() <= json.loads(made.payload).items()


def test_a_clock_that_shows_the_past_gives_no_wall_time():
    made = Recorder("pi-1", "ab", 7, floor=1000.0, now=lambda: 3.0).decision(DECISION)
    assert made.made is None
    assert json.loads(made.payload)["t"] is None


def test_a_record_that_is_too_long_is_not_made_and_its_number_is_not_used_again():
    recorder = Recorder("pi-1", "ab", 7)
    assert recorder.audit(DECISION, [1.0] * MAX_RECORD_BYTES, 0.0) is None
    assert recorder.decision(DECISION).sequence == 2


@pytest.mark.parametrize("text", ["", "64", "0K", "2000G", "1e6", "-5M", "M", "9" * 30, "64 MB", "\u0661M"])
def test_a_wrong_number_of_bytes_is_refused(text):
    with pytest.raises(InputError, match="--outbox is"):
        parse_bytes(text, "--outbox")


@pytest.mark.parametrize("text", ["", "%", "0%", "101%", "-1%", "nan%", "inf%", "one", "0.5", " %"])
def test_a_wrong_share_is_refused(text):
    with pytest.raises(InputError, match="give a percentage"):
        parse_share(text, "--audit")
    if text:
        with pytest.raises(InputError, match="give a percentage"):
            Rule(text)
