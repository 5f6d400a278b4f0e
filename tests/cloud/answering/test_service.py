# SPDX-License-Identifier: Apache-2.0
"""The service without a network: every request is answered once, dropped with a reason, or answered from memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_cloud.answering.service import MAX_CORRELATION_BYTES, Service, ServiceConfig
from hardcase_edge.errors import HpcStuckError, HpcTimeoutError, InputError
from hardcase_edge.link.wire import OK, REFUSED, request_topic, unpack_reply
from hardcase_edge.program.readings import MAX_REQUEST_BYTES

from ...helpers.cloud.requests import DTYPES, N_CLASSES, ask

SHA = "ab" * 32
TOPIC = request_topic("pi-1")


class Model:
    """Answers (1, 5000), fails where the first reading is 13; remembers its batches."""

    sha256 = SHA
    dtypes = DTYPES

    def __init__(self) -> None:
        self.batches: list[int] = []

    def answer(self, rows: Sequence[Sequence[object]]) -> list[tuple[int, int]]:
        self.batches.append(len(rows))
        if any(row[0] == 13 for row in rows):
            raise InputError("thirteen")
        return [(1, 5000)] * len(rows)


def make(**knobs: object) -> tuple[Service, Model]:
    model = Model()
    return Service(model, ServiceConfig(**knobs)), model  # type: ignore[arg-type]


def reply_of(outgoing):
    return unpack_reply(outgoing.payload, bytes.fromhex(SHA), N_CLASSES)


def test_a_request_is_answered_to_the_device_of_its_topic_with_its_id_and_correlation():
    service, _ = make()
    assert service.receive(TOPIC, ask(7, (1.0, None), SHA, 500), 10.0, b"corr") is None
    [out] = service.run(10.1)
    reply = reply_of(out)
    assert (out.device, out.correlation, reply.id) == ("pi-1", b"corr", (7).to_bytes(16, "big"))
    assert (reply.status, reply.result, reply.confidence) == (OK, 1, 5000)
    assert out.expires_s == pytest.approx(0.4)
    assert service.counters.as_dict() == {
        **Service(Model()).counters.as_dict(),
        "received": 1,
        "served": 1,
        "batches": 1,
    }


def test_the_first_of_a_batch_waits_for_company_but_a_full_batch_does_not_wait():
    service, model = make(max_batch=3, linger_ms=2.0)
    assert service.due(0.0) is None
    service.receive(TOPIC, ask(1, (1.0, 1.0), SHA), 1.0)
    assert service.due(1.0) == pytest.approx(0.002)
    service.receive(TOPIC, ask(2, (1.0, 1.0), SHA), 1.001)
    assert service.due(1.001) == pytest.approx(0.001)
    assert service.due(5.0) == 0.0
    for k in range(3, 6):
        service.receive(TOPIC, ask(k, (1.0, 1.0), SHA), 1.001)
    assert service.due(1.001) == 0.0
    assert len(service.run(1.001)) == 3
    assert len(service.run(1.001)) == 2
    assert model.batches == [3, 2]
    assert service.due(1.001) is None
    assert service.run(1.001) == []


def test_a_repeated_request_is_answered_from_memory_and_the_model_runs_once():
    service, model = make()
    payload = ask(1, (1.0, 1.0), SHA)
    service.receive(TOPIC, payload, 0.0)
    [first] = service.run(0.0)
    again = service.receive(TOPIC, payload, 0.5, b"second")
    assert again is not None
    assert (again.payload, again.device, again.correlation) == (first.payload, "pi-1", b"second")
    assert (model.batches, service.counters.repeated, service.counters.served) == ([1], 1, 1)


def test_a_request_repeated_while_it_waits_is_answered_once_with_the_later_deadline():
    service, model = make()
    service.receive(TOPIC, ask(1, (1.0, 1.0), SHA, 100), 0.0)
    service.receive(TOPIC, ask(1, (1.0, 1.0), SHA, 100), 0.09)
    [out] = service.run(0.15)
    assert out.expires_s == pytest.approx(0.04)
    assert (model.batches, service.counters.repeated, service.counters.expired) == ([1], 1, 0)


def test_the_same_id_of_another_device_is_another_request():
    service, _ = make()
    service.receive(TOPIC, ask(1, (1.0, 1.0), SHA), 0.0)
    service.receive(request_topic("pi-2"), ask(1, (1.0, 1.0), SHA), 0.0)
    assert [out.device for out in service.run(0.0)] == ["pi-1", "pi-2"]


def test_the_same_id_with_other_readings_is_malformed_whether_it_waits_or_is_answered():
    service, model = make()
    service.receive(TOPIC, ask(1, (1.0, 1.0), SHA), 0.0)
    assert service.receive(TOPIC, ask(1, (2.0, 1.0), SHA), 0.0) is None
    assert (len(service.run(0.0)), service.counters.malformed) == (1, 1)
    assert service.receive(TOPIC, ask(1, (2.0, 1.0), SHA), 0.1) is None
    assert service.receive(TOPIC, ask(1, (1.0, 1.0), SHA, 900), 0.1) is not None  # less time left, as when sent again
    assert (model.batches, service.counters.malformed, service.counters.repeated) == ([1], 2, 1)


def test_no_number_of_requests_makes_another_devices_reply_forgotten():
    service, model = make(max_remembered=200)
    payload = ask(1, (1.0, 1.0), SHA)
    service.receive(TOPIC, payload, 0.0)
    service.run(0.0)
    for k in range(1000):
        service.receive(request_topic("loud"), ask(k, (1.0, 1.0), SHA), 0.0)
        service.run(0.0)
    assert service.receive(TOPIC, payload, 0.1) is not None
    assert (len(model.batches), len(service._replies)) == (1001, 65)


def test_a_flood_of_one_device_takes_one_place_in_each_batch_that_others_fill():
    service, _ = make(max_batch=4)
    for k in range(60):
        service.receive(request_topic("loud"), ask(k, (1.0, 1.0), SHA), 0.0)
    for k in range(3):
        service.receive(request_topic(f"quiet-{k}"), ask(k, (1.0, 1.0), SHA), 0.0)
    assert [out.device for out in service.run(0.0)] == ["loud", "quiet-0", "quiet-1", "quiet-2"]


class Hanging(Model):
    """Does not answer in time where the first reading is 13."""

    def answer(self, rows: Sequence[Sequence[object]]) -> list[tuple[int, int]]:
        self.batches.append(len(rows))
        if any(row[0] == 13 for row in rows):
            raise HpcTimeoutError("thirteen")
        return [(1, 5000)] * len(rows)


def test_a_device_that_makes_the_hpc_hang_again_is_refused_unasked_for_a_time():
    model = Hanging()
    service = Service(model)

    def status(id_: int, x: float, now: float, device: str = "pi-1") -> int:
        out = service.receive(request_topic(device), ask(id_, (x, 0.0), SHA), now)
        while out is None:
            out = next(iter(service.run(now)), None)
        return reply_of(out).status

    assert status(1, 13.0, 0.0) == REFUSED
    assert status(2, 1.0, 0.0) == OK  # the first costs its own row alone
    assert status(3, 13.0, 1.0) == REFUSED
    n_batches = len(model.batches)
    assert [status(k, 1.0, 2.0 + k) for k in range(4, 50)] == [REFUSED] * 46
    assert len(model.batches) == n_batches
    assert status(50, 1.0, 2.0, "pi-2") == OK
    assert status(51, 1.0, 62.0) == OK
    assert (service.counters.hung, service.counters.refused, service.counters.served) == (2, 48, 3)


def test_nobody_waits_for_more_than_two_calls_that_hang():
    model = Hanging()
    service = Service(model)
    for k in range(20):
        service.receive(request_topic(f"bad-{k}"), ask(k, (13.0, 0.0), SHA, 60_000), 0.0)
    assert service.run(0.0) == []  # the batch hangs
    for k in range(10):
        service.receive(request_topic("good"), ask(k, (1.0, 0.0), SHA), 0.1)
        n_runs = next(n for n in range(1, 9) if "good" in {out.device for out in service.run(0.1)})
        assert n_runs <= 2
    again = service.receive(request_topic("bad-19"), ask(19, (13.0, 0.0), SHA, 60_000), 0.2)
    assert (again, service.counters.repeated) == (None, 1)  # it is still to be asked alone, and only once
    while service.due(0.2) is not None:
        service.run(0.2)
    assert (service.counters.hung, service.counters.served, len(service._waiting)) == (20, 10, 0)


def test_after_a_batch_that_fails_one_row_that_hangs_ends_the_search_for_the_culprit():
    class Model13(Hanging):
        def answer(self, rows: Sequence[Sequence[object]]) -> list[tuple[int, int]]:
            if any(row[1] == 13 for row in rows):
                raise InputError("thirteen")
            return super().answer(rows)

    model = Model13()
    service = Service(model)
    for k, row in enumerate([(1.0, 0.0), (1.0, 13.0)] + 30 * [(13.0, 0.0)]):
        service.receive(request_topic("loud"), ask(k, row, SHA), 0.0)
    replies = service.run(0.0)
    assert [reply_of(out).status for out in replies] == [OK, REFUSED, REFUSED]
    service.receive(request_topic("good"), ask(99, (1.0, 0.0), SHA), 0.1)
    assert [{out.device for out in service.run(0.1)} for _ in range(2)] == [{"loud"}, {"good"}]
    while service.due(0.2) is not None:
        service.run(0.2)
    assert (service.counters.hung, service.counters.refused, len(service._waiting)) == (2, 31, 0)


def test_a_device_that_has_been_answered_before_does_not_wait_for_strangers_that_hang():
    service = Service(Hanging())
    service.receive(request_topic("good"), ask(1, (1.0, 0.0), SHA), 0.0)
    assert len(service.run(0.0)) == 1
    for k in range(10):
        service.receive(request_topic(f"bad-{k}"), ask(k, (13.0, 0.0), SHA), 0.0)
    service.receive(request_topic("good"), ask(2, (1.0, 0.0), SHA), 0.0)
    service.receive(request_topic("good"), ask(3, (1.0, 0.0), SHA), 0.0)
    assert service.run(0.0) == []
    replies = [reply for _ in range(2) for reply in service.run(0.0)]
    assert [(out.device, max(reply_of(out).id)) for out in replies] == [("good", 2), ("good", 3)], "the older one first"


def test_a_suspect_shares_no_batch():
    model = Hanging()
    service = Service(model)
    service.receive(TOPIC, ask(1, (13.0, 0.0), SHA), 0.0)
    service.run(0.0)
    for k, device in enumerate(("a", "pi-1", "b")):
        service.receive(request_topic(device), ask(k + 2, (1.0, 0.0), SHA), 0.1)
    assert [out.device for out in service.run(0.1)] == ["a", "b"]
    assert [out.device for out in service.run(0.1)] == ["pi-1"]
    assert model.batches == [1, 2, 1]


def test_what_a_stuck_hpc_cannot_answer_stays_unanswered_so_that_another_process_may():
    class Stuck(Model):
        def answer(self, rows: Sequence[Sequence[object]]) -> list[tuple[int, int]]:
            raise HpcStuckError("eight calls hang")

    service = Service(Stuck())
    service.receive(TOPIC, ask(1, (1.0, 1.0), SHA), 0.0)
    assert (service.run(0.0), service.is_stuck) == ([], True)
    assert service.receive(TOPIC, ask(1, (1.0, 1.0), SHA), 0.1) is None
    assert (service.counters.refused, service.counters.repeated) == (0, 0)


def test_a_request_past_its_deadline_is_dropped_and_costs_the_model_nothing():
    service, model = make()
    service.receive(TOPIC, ask(1, (1.0, 1.0), SHA, 100), 0.0)
    assert service.run(0.1) == []
    assert (model.batches, service.counters.expired) == ([], 1)
    assert service.receive(TOPIC, ask(1, (1.0, 1.0), SHA, 100), 0.2) is None  # it may be asked anew
    assert len(service.run(0.2)) == 1


def test_a_row_that_the_model_cannot_answer_is_refused_and_its_neighbours_are_answered():
    service, _ = make()
    for k, x in enumerate((1.0, 13.0, 2.0)):
        service.receive(TOPIC, ask(k, (x, 0.0), SHA), 0.0)
    assert [reply_of(out).status for out in service.run(0.0)] == [OK, REFUSED, OK]
    assert (service.counters.served, service.counters.refused) == (2, 1)


GOOD = ask(1, (1.0, 2.0), SHA)


@pytest.mark.parametrize(
    ("topic", "payload", "correlation", "reason"),
    [
        pytest.param(TOPIC, b"", b"", "malformed", id="empty"),
        pytest.param(TOPIC, GOOD + b"\0", b"", "malformed", id="one-byte-more"),
        pytest.param(TOPIC, b"\2" + GOOD[1:], b"", "malformed", id="newer-version"),
        pytest.param(TOPIC, GOOD[:4] + b"\0\0\0\0" + GOOD[8:], b"", "malformed", id="no-deadline"),
        pytest.param(TOPIC, b"x" * (MAX_REQUEST_BYTES + 1), b"", "oversized", id="oversized"),
        pytest.param(TOPIC, ask(1, (1.0, 2.0), "cd" * 32), b"", "other_hpc", id="other-hpc"),
        pytest.param("hardcase/v1/pi-1/reply", GOOD, b"", "malformed", id="reply-topic"),
        pytest.param("hardcase/v1/+/request", GOOD, b"", "malformed", id="wildcard-device"),
        pytest.param("hardcase/v2/pi-1/request", GOOD, b"", "malformed", id="other-root"),
        pytest.param("", GOOD, b"", "malformed", id="no-topic"),
        pytest.param(TOPIC, GOOD, b"c" * (MAX_CORRELATION_BYTES + 1), "malformed", id="long-correlation"),
    ],
)
def test_what_is_no_request_of_ours_is_counted_and_dropped(topic, payload, correlation, reason):
    service, model = make()
    assert service.receive(topic, payload, 0.0, correlation) is None
    assert service.due(0.0) is None
    assert (service.run(0.0), model.batches) == ([], [])
    counted = service.counters.as_dict()
    assert {k for k, n in counted.items() if n} == {"received", reason}


@pytest.mark.parametrize("cut", range(len(GOOD)))
def test_a_request_cut_anywhere_is_dropped(cut):
    service, _ = make()
    service.receive(TOPIC, GOOD[:cut], 0.0)
    assert (service.counters.malformed, service.due(0.0)) == (1, None)


@given(at=st.integers(0, len(GOOD) - 1), flip=st.integers(1, 255))
def test_a_flipped_byte_never_raises_and_is_answered_or_counted(at, flip):
    service, _ = make()
    bad = bytearray(GOOD)
    bad[at] ^= flip
    service.receive(TOPIC, bytes(bad), 0.0)
    served = len(service.run(0.0))
    c = service.counters
    assert served + c.malformed + c.other_hpc + c.oversized + c.expired == 1


def test_a_full_queue_drops_what_comes_and_one_device_cannot_fill_it():
    service, _ = make(max_waiting=10, max_waiting_per_device=4)
    for k in range(20):
        service.receive(TOPIC, ask(k, (1.0, 1.0), SHA), 0.0)
    assert service.counters.overloaded == 16
    for k in range(20):
        service.receive(request_topic(f"pi-{k + 2}"), ask(k, (1.0, 1.0), SHA), 0.0)
    assert service.counters.overloaded == 16 + 14
    assert len(service.run(0.0)) == 10
    service.receive(TOPIC, ask(99, (1.0, 1.0), SHA), 0.0)  # there is room again
    assert len(service.run(0.0)) == 1


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.booleans()), max_size=200))
def test_memory_is_bounded_and_every_request_is_accounted_for(steps):
    service, model = make(max_batch=3, max_waiting=6, max_waiting_per_device=3, max_remembered=5)
    replies = 0
    for k, (device, id_, does_run) in enumerate(steps):
        replies += service.receive(request_topic(f"d{device}"), ask(id_, (1.0, 1.0), SHA), k * 0.01) is not None
        if does_run:
            replies += len(service.run(k * 0.01))
        assert len(service._waiting) <= 6
        assert len(service._replies) <= 5
        assert len(service._turns) == len(service._waiting)
        assert all(sum(d == f"d{k}" for d, _ in service._waiting) <= 3 for k in range(6))
    c = service.counters
    assert sum(model.batches) == c.served
    assert c.received == len(steps)
    assert c.served + c.repeated + c.overloaded + c.expired + len(service._waiting) == c.received
    assert c.served <= replies <= c.served + c.repeated
