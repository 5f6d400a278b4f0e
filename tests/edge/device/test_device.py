# SPDX-License-Identifier: Apache-2.0
"""The loop, with clocks and a cloud of its own: every decision is counted once and said in one record."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter

import pytest

from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.errors import InputError
from hardcase_edge.link.wire import OK, REFUSED, Reply
from tests.helpers.edge.device import EASY, EASY_LINE, FORWARD_COST, HARD, HPC, FakeBank, FakeLink, make_loaded


class Clock:
    """Time that passes only when someone waits, or when told to."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.at

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.at += seconds


def make_device(xs, link=None, clock=None, bank=None, manifest=None, **knobs):
    clock = clock or Clock()
    loaded, config = make_loaded(**(manifest or {})), RuntimeConfig(**knobs)
    return Device(loaded, bank or FakeBank(xs), link, config, now=clock.now, monotonic=clock.now, wait=clock.wait)


def reply(result=1, confidence=9_000, status=OK):
    return Reply(bytes(16), HPC, status, result, confidence)


def routes(records):
    return [r["route"] for r in records]


def test_an_easy_case_is_answered_here():
    link = FakeLink()
    (record,) = make_device([EASY], link).run()
    assert record == EASY_LINE
    assert json.loads(json.dumps(record)) == record
    assert not link.asked


def test_a_hard_case_is_asked_in_the_cloud():
    link = FakeLink([reply(result=0)])
    (record,) = make_device([HARD], link, deadline_ms=1500).run()
    assert (record["label"], record["confidence"], record["route"]) == ("low", 0.9, "cloud")
    assert (record["cost"], record["sensors"]) == (FORWARD_COST, ["x", "vib"])
    assert link.asked == [((HARD, 1.0, 2.0, 3.0, 4.0), 1.5)]


@pytest.mark.parametrize("answer", [None, reply(status=REFUSED)])
def test_no_reply_or_a_refusal_is_answered_here_and_marked_degraded(answer):
    (record,) = make_device([HARD], FakeLink([answer])).run()
    assert (record["label"], record["confidence"], record["route"]) == ("high", 0.6, "degraded")
    assert record["cost"] == FORWARD_COST, "what was sent was paid for"


@pytest.mark.parametrize("link", [None, FakeLink(can_ask=False)])
def test_with_nobody_to_ask_nothing_is_bought_for_the_cloud(link):
    (record,) = make_device([HARD], link).run()
    assert (record["route"], record["cost"], record["sensors"]) == ("degraded", 1.0, ["x"])


X, VIB, FALLBACK = 0, 1, 3  # sensors, and the node that answers without them
WITHOUT = {(X,): {FALLBACK: (5_500, 5_100)}, (VIB,): {FALLBACK: (None, 5_300)}}


def without(link=None, x=HARD, measured=WITHOUT, **sensors):
    """What the record says of a decision without some sensors: route, confidence and the sensors missed."""
    (record,) = make_device([], link, bank=FakeBank([x], **sensors), manifest={"without": measured}).run()
    return record["route"], record["confidence"], record["failed"]


@pytest.mark.parametrize("sensors", [{"dead": [X]}, {"broken": [X]}, {"dead": [X, VIB]}])
def test_an_answer_without_a_sensor_it_wanted_is_degraded_and_has_the_confidence_measured_without_it(sensors):
    assert without(x=EASY, **sensors) == ("degraded", 0.55, ["x"])


@pytest.mark.parametrize("measured", [{}, {(VIB,): {FALLBACK: (5_500, None)}}, {(X,): {4: (5_500, None)}}])
def test_a_confidence_that_nobody_measured_is_null(measured):
    assert without(x=EASY, dead=[X], measured=measured) == ("degraded", None, ["x"])


def test_a_reply_to_a_request_without_a_sensor_is_the_clouds_and_nobody_knows_how_sure_it_is():
    assert without(FakeLink([reply(result=0)]), dead=[VIB]) == ("cloud", None, ["vib"])
    assert without(FakeLink([reply(result=0)]), broken=[VIB]) == ("cloud", None, ["vib"])


def test_with_neither_reply_nor_sensor_the_confidence_is_that_of_both_together():
    assert without(FakeLink([None]), dead=[VIB]) == ("degraded", 0.53, ["vib"])


def test_a_dead_sensor_that_the_walk_does_not_want_changes_nothing():
    assert without(x=EASY, dead=[VIB]) == ("local", 0.95, [])
    assert without(FakeLink(can_ask=False), dead=[VIB]) == ("degraded", 0.6, []), "nothing is bought for no cloud"


def test_an_answer_without_a_sensor_that_the_budget_did_not_allow_has_the_confidence_measured_without_it():
    (record,) = make_device([EASY], manifest={"without": WITHOUT}, budget=0.5).run()
    assert (record["route"], record["failed"], record["unpaid"]) == ("degraded", [], ["x"])
    assert record["confidence"] == 0.55, "and not 0.6, which is that of hard cases with x"
    (record,) = make_device([EASY], budget=0.5).run()
    assert (record["route"], record["confidence"]) == ("degraded", None)


RANGES = ((-1.0, 2.0), (0.0, 0.5), None, None, None)


@pytest.mark.parametrize(
    ("x", "strict", "expected"),
    [
        (EASY, False, ("local", 0.95, [], ["x"])),
        (EASY, True, ("degraded", 0.55, ["x"], ["x"])),
        (2.0, True, ("local", 0.95, [], [])),
        (-1.0000001, False, ("local", 0.95, [], ["x"])),
        (HARD, False, ("cloud", 0.9, [], ["vib_mean"])),
        (HARD, True, ("cloud", None, ["vib"], ["vib_mean"])),
    ],
)
def test_readings_that_training_never_saw_are_named_and_fail_their_sensor_where_that_is_strict(x, strict, expected):
    manifest = {"ranges": RANGES, "without": WITHOUT}
    (record,) = make_device([x], FakeLink([reply()]), manifest=manifest, strict_range=strict).run()
    assert tuple(record[k] for k in ("route", "confidence", "failed", "out_of_range")) == expected


def test_a_budget_holds_for_the_request_and_for_sending_it_again():
    (record,) = make_device([HARD], FakeLink(), budget=FORWARD_COST - 0.001).run()
    assert (record["route"], record["cost"]) == ("local", 1.0)
    once_more = FORWARD_COST - 11
    for budget, resent in ((FORWARD_COST, 0), (FORWARD_COST + once_more, 1), (None, 3)):
        link = FakeLink([reply()], resends=3)
        (record,) = make_device([HARD], link, budget=budget).run()
        assert link.counters["resent"] == resent
        assert record["cost"] == FORWARD_COST + resent * once_more


def test_every_decision_is_counted_once():
    link = FakeLink([reply(), None, reply()])
    device = make_device([EASY, HARD, None, HARD, HARD, -EASY], link)
    records = list(device.run())
    assert routes(records) == ["local", "cloud", "degraded", "degraded", "cloud", "local"]
    assert device.counters == Counter(asked=6, local=2, cloud=2, degraded=2)
    assert device.counters == Counter(asked=len(records), **Counter(routes(records)))


def test_the_run_ends_with_the_items_or_at_the_count():
    assert len(list(make_device([EASY] * 5).run())) == 5
    assert len(list(make_device([EASY] * 5, count=3).run())) == 3
    assert len(list(make_device([EASY] * 5, count=9).run())) == 5
    assert list(make_device([]).run()) == []


def test_decisions_start_an_interval_apart_however_long_they_take():
    clock = Clock()
    device = make_device([EASY] * 3, clock=clock, interval_s=10.0)
    times = []
    for record in device.run():
        times.append(record["t"])
        clock.at += 3.0
    assert times == [1000.0, 1010.0, 1020.0]


def test_a_decision_that_takes_longer_than_the_interval_delays_the_rest_without_a_burst():
    clock = Clock()
    device = make_device([EASY] * 4, clock=clock, interval_s=10.0)
    times = []
    for record in device.run():
        times.append(record["t"])
        clock.at += 25.0 if len(times) == 1 else 1.0
    assert times == [1000.0, 1025.0, 1035.0, 1045.0]


def test_a_signal_handler_may_stop_the_device_at_any_line_of_its_wait():
    """A handler runs between two lines of the thread that waits, so it must not need a lock that the wait holds."""
    device = Device(make_loaded(), FakeBank([EASY]), config=RuntimeConfig(interval_s=1000.0))
    began = []

    def handler(*_: object) -> None:
        began.append(True)
        device.stop()

    def run() -> None:
        assert next(device.run())["route"] == "local"
        sys.settrace(handler)  # called wherever a function begins
        device._wait(0.0)
        device._wait(1000.0)
        sys.settrace(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60.0)
    assert not thread.is_alive()
    assert began


def test_stopping_ends_the_run_after_the_decision_at_hand():
    link = FakeLink()
    device = make_device([EASY] * 5, link)
    records = []
    for record in device.run():
        records.append(record)
        device.stop()
    assert len(records) == 1
    assert link.cancelled.is_set()


def test_a_stop_wakes_a_device_that_waits_for_its_next_decision():
    import threading
    import time

    device = Device(make_loaded(), FakeBank([EASY] * 3), None, RuntimeConfig(interval_s=60.0))
    run = device.run()
    assert next(run)["route"] == "local"
    threading.Timer(0.2, device.stop).start()
    began = time.monotonic()
    assert list(run) == []
    assert time.monotonic() - began < 30


def test_the_device_is_idle_only_between_decisions():
    class Nosy(FakeBank):
        def next_item(self):
            seen.append(("next", device.is_idle))
            return super().next_item()

        def read(self, sensors):
            seen.append(("read", device.is_idle))
            return super().read(sensors)

    seen = []
    device = Device(make_loaded(), Nosy([EASY]), None, RuntimeConfig())
    seen.extend(("said", device.is_idle) for _ in device.run())
    assert seen == [("next", True), ("read", False), ("said", False), ("next", True)]


def test_a_device_without_an_interval_does_not_spin_while_a_sensor_hangs():
    clock, bank = Clock(), FakeBank([None] * 3)
    bank.pause_s = 0.3  # as the bank says after an item for which a sensor was still busy
    list(make_device([], None, clock, bank).run())
    assert sum(clock.waits) == pytest.approx(0.9)
    clock, bank = Clock(), FakeBank([None] * 3)
    bank.pause_s = 0.3
    list(make_device([], None, clock, bank, interval_s=0.1).run())
    assert sum(clock.waits) == pytest.approx(0.3), "an interval is kept, whatever the sensors do"


def test_the_facts_are_sent_with_the_first_decision_and_then_at_a_bounded_rate():
    clock = Clock()
    link = FakeLink()
    device = make_device([EASY] * 100, link, clock, interval_s=1.0, facts_every_s=30.0)
    list(device.run())
    assert [s["asked"] for s in link.facts] == [1, 31, 61, 91]
    last = device.facts()
    assert (last["asked"], last["local"], last["cloud"], last["degraded"]) == (100, 100, 0, 0)
    assert last["bundle"] == make_loaded().bundle.sha256
    assert json.loads(json.dumps(last)) == last


@pytest.mark.parametrize(
    ("knobs", "line"),
    [
        ({"budget": -1.0}, "the budget is -1.0; use 0 to 1e12"),
        ({"budget": float("nan")}, "the budget is nan"),
        ({"deadline_ms": 0}, "the deadline is 0 ms; use 1 to 3600000"),
        ({"interval_s": -1.0}, "an interval is negative"),
        ({"interval_s": float("nan")}, "an interval is negative"),
        ({"count": 0}, "the count is 0; use 1 or more"),
        ({"item_size": 2}, "the item size is 2; this bundle supports 1 to 1"),
    ],
)
def test_a_knob_out_of_range_is_told_in_one_line(knobs, line):
    with pytest.raises(InputError, match=line.replace("(", r"\(")):
        make_device([], **knobs)
