# SPDX-License-Identifier: Apache-2.0
"""The service without a network: every request is answered once, dropped with a reason, or answered from memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_cloud.answer.service import MAX_CORRELATION_BYTES, MOST_OTHER, Service, ServiceConfig
from hardcase_edge.errors import HpcStuckError, HpcTimeoutError, InputError, WireError
from hardcase_edge.link.wire import BUSY, OK, REFUSED, other_hpc_in, request_topic, unpack_reply
from hardcase_edge.program.readings import MAX_REQUEST_BYTES

from ...helpers.cloud.requests import FAKE, N_CLASSES, FakeModel, ask

TOPIC = request_topic("pi-1")


def thirteen(error: type[Exception]) -> Callable[[Sequence[object]], Exception | None]:
    """Rows whose first reading is 13 fail like this."""
    return lambda row: error("thirteen") if row[0] == 13 else None


def hanging() -> FakeModel:
    return FakeModel(thirteen(HpcTimeoutError))


def make(**knobs: object) -> tuple[Service, FakeModel]:
    model = FakeModel(thirteen(InputError))
    return Service(model, ServiceConfig(**knobs)), model  # type: ignore[arg-type]


def reply_of(outgoing):
    return unpack_reply(outgoing.payload, bytes.fromhex(FAKE), N_CLASSES)


def test_a_request_is_answered_to_the_device_of_its_topic_with_its_id_and_correlation():
    service, _ = make()
    assert service.receive(TOPIC, ask(7, (1.0, None), deadline_ms=500), 10.0, b"corr") is None
    [out] = service.run(10.1)
    reply = reply_of(out)
    assert (out.device, out.correlation, reply.id) == ("pi-1", b"corr", (7).to_bytes(16, "big"))
    assert (reply.status, reply.result, reply.confidence) == (OK, 1, 5000)
    assert out.expires_s == pytest.approx(0.4)
    assert service.counters.as_dict() == {
        **Service(FakeModel()).counters.as_dict(),
        "received": 1,
        "served": 1,
        "batches": 1,
    }


def test_the_first_of_a_batch_waits_for_company_but_a_full_batch_does_not_wait():
    service, model = make(max_batch=3, linger_ms=2.0)
    assert service.due(0.0) is None
    service.receive(TOPIC, ask(1, (1.0, 1.0)), 1.0)
    assert service.due(1.0) == pytest.approx(0.002)
    service.receive(TOPIC, ask(2, (1.0, 1.0)), 1.001)
    assert service.due(1.001) == pytest.approx(0.001)
    assert service.due(5.0) == 0.0
    for k in range(3, 6):
        service.receive(TOPIC, ask(k, (1.0, 1.0)), 1.001)
    assert service.due(1.001) == 0.0
    assert len(service.run(1.001)) == 3
    assert len(service.run(1.001)) == 2
    assert model.batches == [3, 2]
    assert service.due(1.001) is None
    assert service.run(1.001) == []


def test_a_repeated_request_is_answered_from_memory_and_the_model_runs_once():
    service, model = make()
    payload = ask(1, (1.0, 1.0))
    service.receive(TOPIC, payload, 0.0)
    [first] = service.run(0.0)
    again = service.receive(TOPIC, payload, 0.5, b"second")
    assert again is not None
    assert (again.payload, again.device, again.correlation) == (first.payload, "pi-1", b"second")
    assert (model.batches, service.counters.repeated, service.counters.served) == ([1], 1, 1)


def test_a_request_repeated_while_it_waits_is_answered_once_with_the_later_deadline():
    service, model = make()
    service.receive(TOPIC, ask(1, (1.0, 1.0), deadline_ms=100), 0.0)
    service.receive(TOPIC, ask(1, (1.0, 1.0), deadline_ms=100), 0.09)
    [out] = service.run(0.15)
    assert out.expires_s == pytest.approx(0.04)
    assert (model.batches, service.counters.repeated, service.counters.expired) == ([1], 1, 0)


def test_the_same_id_of_another_device_is_another_request():
    service, _ = make()
    service.receive(TOPIC, ask(1, (1.0, 1.0)), 0.0)
    service.receive(request_topic("pi-2"), ask(1, (1.0, 1.0)), 0.0)
    assert [out.device for out in service.run(0.0)] == ["pi-1", "pi-2"]


def test_the_same_id_with_other_readings_is_malformed_whether_it_waits_or_is_answered():
    service, model = make()
    service.receive(TOPIC, ask(1, (1.0, 1.0)), 0.0)
    assert service.receive(TOPIC, ask(1, (2.0, 1.0)), 0.0) is None
    assert (len(service.run(0.0)), service.counters.malformed) == (1, 1)
    assert service.receive(TOPIC, ask(1, (2.0, 1.0)), 0.1) is None
    assert service.receive(TOPIC, ask(1, (1.0, 1.0), deadline_ms=900), 0.1) is not None  # sent again
    assert (model.batches, service.counters.malformed, service.counters.repeated) == ([1], 2, 1)


def test_no_number_of_requests_makes_another_devices_reply_forgotten():
    service, model = make(max_remembered=200, max_per_s_per_device=10_000)
    payload = ask(1, (1.0, 1.0))
    service.receive(TOPIC, payload, 0.0)
    service.run(0.0)
    for k in range(1000):
        service.receive(request_topic("loud"), ask(k, (1.0, 1.0)), 0.0)
        service.run(0.0)
    assert service.receive(TOPIC, payload, 0.1) is not None
    assert (len(model.batches), len(service._replies)) == (1001, 65)


def test_a_flood_of_one_device_takes_one_place_in_each_batch_that_others_fill():
    service, _ = make(max_batch=4)
    for k in range(60):
        service.receive(request_topic("loud"), ask(k, (1.0, 1.0)), 0.0)
    for k in range(3):
        service.receive(request_topic(f"quiet-{k}"), ask(k, (1.0, 1.0)), 0.0)
    assert [out.device for out in service.run(0.0)] == ["loud", "quiet-0", "quiet-1", "quiet-2"]


def test_a_device_that_makes_the_hpc_hang_again_is_refused_unasked_for_a_time():
    model = hanging()
    service = Service(model)

    def status(id_: int, x: float, now: float, device: str = "pi-1") -> int:
        out = service.receive(request_topic(device), ask(id_, (x, 0.0)), now)
        while out is None:
            out = next(iter(service.run(now)), None)
        return reply_of(out).status

    assert status(1, 13.0, 0.0) == REFUSED
    assert status(2, 1.0, 0.0) == OK  # the first costs its own row alone
    assert status(49, 1.0, 0.5, "pi-2") == OK
    assert status(3, 13.0, 1.0) == REFUSED
    n_batches = len(model.batches)
    assert [status(k, 1.0, 2.0 + k) for k in range(4, 49)] == [REFUSED] * 45
    assert len(model.batches) == n_batches
    assert status(50, 1.0, 2.0, "pi-2") == OK
    assert status(51, 1.0, 62.0) == OK
    assert (service.counters.hung, service.counters.refused, service.counters.served) == (2, 47, 4)


def still(row: Sequence[object]) -> Exception:
    """Of a model that answers nobody in time while it stands still."""
    return HpcTimeoutError("it stands still")


def statuses(service: Service, now: float) -> dict[str, list[int]]:
    """What each device hears until nothing waits."""
    heard: dict[str, list[int]] = {}
    while service.due(now) is not None:
        for out in service.run(now):
            heard.setdefault(out.device, []).append(reply_of(out).status)
    return heard


@pytest.mark.parametrize("seconds", [2.0, 30.0, 300.0])
def test_a_model_that_stands_still_for_a_while_bars_no_device(seconds: float):
    model = FakeModel()
    service = Service(model)
    devices = [f"d{k}" for k in range(4)]
    for stall in range(3):  # and again, when all have been answered in between
        began = 1_000.0 * stall
        model.fails = still
        for k in range(2):
            for device in devices:
                id_ = 10 * stall + 3 * k
                assert service.receive(request_topic(device), ask(id_, (1.0, 0.0)), began + k) is None
            heard = statuses(service, began + k)
            assert [*heard.values()].count([REFUSED]) <= 1, "the first that hangs may be at fault"
            assert sum(map(len, heard.values())) == len(devices)
        model.fails = lambda row: None
        for device in devices:
            out = service.receive(request_topic(device), ask(10 * stall + 9, (1.0, 0.0)), began + seconds)
            assert out is None, "nobody is refused unasked"
        assert statuses(service, began + seconds) == {device: [OK] for device in devices}
    assert service.counters.hung >= 3


def test_a_device_alone_that_meets_a_model_standing_still_is_not_barred():
    model = FakeModel()
    service = Service(model)
    for k in range(5):
        model.fails = still if k < 4 else lambda row: None
        assert service.receive(TOPIC, ask(k, (1.0, 0.0)), float(k)) is None
        assert statuses(service, float(k)) == {"pi-1": [OK if k == 4 else REFUSED]}


def test_a_success_after_the_pause_forgets_a_hang():
    service = Service(hanging())

    def status(id_: int, x: float, now: float, device: str = "pi-1") -> int:
        out = service.receive(request_topic(device), ask(id_, (x, 0.0)), now)
        return reply_of(out).status if out is not None else statuses(service, now)[device][0]

    for k in range(20):  # it hangs now and then, and answers well in between
        assert status(10 * k, 13.0, 100.0 * k) == REFUSED
        assert status(10 * k + 1, 1.0, 100.0 * k + 1, "pi-2") == OK
        assert status(10 * k + 2, 1.0, 100.0 * k + 99) == OK


def test_two_devices_whose_rows_hang_in_turn_are_barred_once_others_are_answered():
    service = Service(hanging())
    for k in range(40):
        now = 3.0 * k
        for device in ("bad-1", "bad-2"):
            service.receive(request_topic(device), ask(k, (13.0, 0.0)), now)
            statuses(service, now)
        service.receive(request_topic("good"), ask(k, (1.0, 0.0)), now)
        assert statuses(service, now) == {"good": [OK]}
    assert service.counters.hung <= 10, "two at first, and two after each pause"


def test_every_message_is_released_once_whatever_becomes_of_its_request():
    service = Service(hanging())
    bad, good = request_topic("bad"), request_topic("good")
    for tag in range(1, 7):  # after two that hang, the device is refused unasked
        service.receive(bad, ask(tag, (13.0, 0.0)), 0.0, tag=tag)
        while service.due(0.0) is not None:
            service.run(0.0)
    assert sorted(service.released()) == [1, 2, 3, 4, 5, 6]
    service.receive(good, ask(1, (1.0, 0.0)), 0.0, tag=7)
    service.receive(good, ask(1, (2.0, 0.0)), 0.0, tag=8)  # the id of another, which waits
    service.receive(good, ask(1, (1.0, 0.0)), 0.0, tag=9)  # the same again
    assert service.released() == [8]
    service.run(1.0)
    assert service.released() == [7, 9]


def test_nobody_waits_for_more_than_two_calls_that_hang():
    model = hanging()
    service = Service(model)
    for k in range(20):
        service.receive(request_topic(f"bad-{k}"), ask(k, (13.0, 0.0), deadline_ms=60_000), 0.0)
    assert service.run(0.0) == []  # the batch hangs
    for k in range(10):
        service.receive(request_topic("good"), ask(k, (1.0, 0.0)), 0.1)
        n_runs = next(n for n in range(1, 9) if "good" in {out.device for out in service.run(0.1)})
        assert n_runs <= 2
    again = service.receive(request_topic("bad-19"), ask(19, (13.0, 0.0), deadline_ms=60_000), 0.2)
    assert (again, service.counters.repeated) == (None, 1)  # it is still to be asked alone, and only once
    while service.due(0.2) is not None:
        service.run(0.2)
    assert (service.counters.hung, service.counters.served, len(service._waiting)) == (20, 10, 0)


def test_after_a_batch_that_fails_one_row_that_hangs_ends_the_search_for_the_culprit():
    hangs = thirteen(HpcTimeoutError)
    service = Service(FakeModel(lambda row: InputError("thirteen") if row[1] == 13 else hangs(row)))
    for k, row in enumerate([(1.0, 0.0), (1.0, 13.0)] + 30 * [(13.0, 0.0)]):
        service.receive(request_topic("loud"), ask(k, row), 0.0)
    replies = service.run(0.0)
    assert [reply_of(out).status for out in replies] == [OK, REFUSED, REFUSED]
    service.receive(request_topic("good"), ask(99, (1.0, 0.0)), 0.1)
    assert [{out.device for out in service.run(0.1)} for _ in range(2)] == [{"loud"}, {"good"}]
    while service.due(0.2) is not None:
        service.run(0.2)
    assert (service.counters.hung, service.counters.refused, len(service._waiting)) == (3, 31, 0)


def test_a_device_that_has_been_answered_before_does_not_wait_for_strangers_that_hang():
    service = Service(hanging())
    service.receive(request_topic("good"), ask(1, (1.0, 0.0)), 0.0)
    assert len(service.run(0.0)) == 1
    for k in range(10):
        service.receive(request_topic(f"bad-{k}"), ask(k, (13.0, 0.0)), 0.0)
    service.receive(request_topic("good"), ask(2, (1.0, 0.0)), 0.0)
    service.receive(request_topic("good"), ask(3, (1.0, 0.0)), 0.0)
    assert service.run(0.0) == []
    replies = [reply for _ in range(2) for reply in service.run(0.0)]
    assert [(out.device, max(reply_of(out).id)) for out in replies] == [("good", 2), ("good", 3)], "the older one first"


def test_a_suspect_shares_no_batch():
    model = hanging()
    service = Service(model)
    service.receive(TOPIC, ask(1, (13.0, 0.0)), 0.0)
    service.run(0.0)
    for k, device in enumerate(("a", "pi-1", "b")):
        service.receive(request_topic(device), ask(k + 2, (1.0, 0.0)), 0.1)
    assert [out.device for out in service.run(0.1)] == ["a", "b"]
    assert [out.device for out in service.run(0.1)] == ["pi-1"]
    assert model.batches == [1, 2, 1]


def test_what_a_stuck_hpc_cannot_answer_stays_unanswered_so_that_another_process_may():
    service = Service(FakeModel(lambda row: HpcStuckError("eight calls hang")))
    service.receive(TOPIC, ask(1, (1.0, 1.0)), 0.0)
    assert (service.run(0.0), service.is_stuck) == ([], True)
    assert service.receive(TOPIC, ask(1, (1.0, 1.0)), 0.1) is None
    assert (service.counters.refused, service.counters.repeated) == (0, 0)


def test_a_request_past_its_deadline_is_dropped_and_costs_the_model_nothing():
    service, model = make()
    service.receive(TOPIC, ask(1, (1.0, 1.0), deadline_ms=100), 0.0)
    assert service.run(0.1) == []
    assert (model.batches, service.counters.expired) == ([], 1)
    assert service.receive(TOPIC, ask(1, (1.0, 1.0), deadline_ms=100), 0.2) is None  # it may be asked anew
    assert len(service.run(0.2)) == 1


def test_a_row_that_the_model_cannot_answer_is_refused_and_its_neighbours_are_answered():
    service, _ = make()
    for k, x in enumerate((1.0, 13.0, 2.0)):
        service.receive(TOPIC, ask(k, (x, 0.0)), 0.0)
    assert [reply_of(out).status for out in service.run(0.0)] == [OK, REFUSED, OK]
    assert (service.counters.served, service.counters.refused) == (2, 1)


GOOD = ask(1, (1.0, 2.0))


@pytest.mark.parametrize(
    ("topic", "payload", "correlation", "reason"),
    [
        pytest.param(TOPIC, b"", b"", "malformed", id="empty"),
        pytest.param(TOPIC, GOOD + b"\0", b"", "malformed", id="one-byte-more"),
        pytest.param(TOPIC, b"\2" + GOOD[1:], b"", "malformed", id="newer-version"),
        pytest.param(TOPIC, GOOD[:4] + b"\0\0\0\0" + GOOD[8:], b"", "malformed", id="no-deadline"),
        pytest.param(TOPIC, b"x" * (MAX_REQUEST_BYTES + 1), b"", "oversized", id="oversized"),
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


def test_a_request_for_another_hpc_is_told_which_one_answers_here_within_bounds():
    service, model = make()
    told = [service.receive(TOPIC, ask(k, (1.0, 2.0), "cd" * 32, 500), 0.0, b"corr", tag=k + 1) for k in range(50)]
    replies = [out for out in told if out is not None]
    assert 1 <= len(replies) <= MOST_OTHER, "a flood of requests makes no flood of replies"
    assert len(replies[0].payload) <= 64
    assert other_hpc_in(replies[0].payload) == ((0).to_bytes(16, "big"), bytes.fromhex(FAKE))
    assert (replies[0].device, replies[0].correlation, replies[0].expires_s) == ("pi-1", b"corr", 0.5)
    with pytest.raises(WireError, match="a reply is from HPC abab") as error:
        unpack_reply(replies[0].payload, bytes.fromhex("cd" * 32), N_CLASSES)
    assert error.value.reason == "other_hpc", "a device goes on waiting"
    assert (service.due(0.0), model.batches, service.counters.other_hpc) == (None, [], 50)
    assert service.released() == list(range(1, 51))
    assert service.receive(TOPIC, ask(99, (1.0, 2.0), "cd" * 32), 10.0) is not None
    assert service.receive(TOPIC, ask(99, (1.0, 2.0), "cd" * 32), 20.0, b"c" * 9_999) is None


def test_a_full_queue_says_that_it_is_busy_and_one_device_cannot_fill_it():
    service, _ = make(max_waiting=10, max_waiting_per_device=4)
    replies = [service.receive(TOPIC, ask(k, (1.0, 1.0)), 0.0, b"c%d" % k, tag=k + 1) for k in range(20)]
    assert replies[:4] == [None] * 4
    assert [(r.device, r.correlation, reply_of(r).id[-1], reply_of(r).status) for r in replies[4:]] == [
        ("pi-1", b"c%d" % k, k, BUSY) for k in range(4, 20)
    ]
    assert service.released() == list(range(5, 21))
    for k in range(20):
        service.receive(request_topic(f"pi-{k + 2}"), ask(k, (1.0, 1.0)), 0.0)
    assert service.counters.busy == 16 + 14
    assert len(service.run(0.0)) == 10
    service.receive(TOPIC, ask(99, (1.0, 1.0)), 0.0)  # there is room again
    assert len(service.run(0.0)) == 1


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.booleans()), max_size=200))
def test_memory_is_bounded_and_every_request_is_accounted_for(steps):
    service, model = make(max_batch=3, max_waiting=6, max_waiting_per_device=3, max_remembered=5)
    replies, tags = 0, []
    for k, (device, id_, does_run) in enumerate(steps):
        replies += service.receive(request_topic(f"d{device}"), ask(id_, (1.0, 1.0)), k * 0.01, tag=k + 1) is not None
        if does_run:
            replies += len(service.run(k * 0.01))
        tags += service.released()
        assert len(service._waiting) <= 6
        assert len(service._replies) <= 5
        assert len(service._agenda) == len(service._waiting)
        assert all(sum(d == f"d{k}" for d, _ in service._waiting) <= 3 for k in range(6))
    c = service.counters
    assert sum(model.batches) == c.served
    assert c.received == len(steps)
    assert c.served + c.repeated + c.busy + c.expired + len(service._waiting) == c.received
    assert c.served <= replies <= c.served + c.repeated + c.busy
    tags += [tag for waiting in service._waiting.values() for tag in waiting.tags]
    assert sorted(tags) == [k + 1 for k in range(len(steps))], "every message is released once, when it waits no more"


# ---------------------------------------------------------------- too much to answer


def slow(**knobs: object) -> tuple[Service, FakeModel]:
    """A service that has learned that its model takes 10 ms a row."""
    model = FakeModel(row_s=0.01)
    service = Service(model, ServiceConfig(**knobs))  # type: ignore[arg-type]
    service.receive(request_topic("first"), ask(1, (1.0, 1.0)), 0.0)
    service.run(0.0)
    service.ended(model.now)
    return service, model


def send(service: Service, device: str, id_: int, deadline_ms: int, now: float) -> int:
    """The status of the reply at once; -1 if there is none."""
    out = service.receive(request_topic(device), ask(id_, (1.0, 1.0), deadline_ms=deadline_ms), now)
    return -1 if out is None else reply_of(out).status


def test_what_cannot_be_answered_in_time_is_refused_at_once_and_the_rest_is_answered_in_time():
    service, model = slow(max_batch=1)
    began = model.now
    taken = [k for k in range(100) if send(service, f"d{k}", k, 210, began) != BUSY]
    assert (len(taken), service.counters.busy) == (6, 94), (
        "a quarter of 210 ms holds 5 rows of 10 ms, which one waits for"
    )
    while service.due(model.now) is not None:
        [out] = service.run(model.now)
        service.ended(model.now)
        assert reply_of(out).status == OK
        assert model.now <= began + 0.065
    assert (service.counters.served, service.counters.expired) == (7, 0)


def test_a_model_that_is_slow_but_idle_is_asked():
    model = FakeModel(row_s=0.01)
    service = Service(model, ServiceConfig())
    for k in range(5):  # 0.8 s a row are more than a quarter of 2 s, and less than half
        assert service.receive(TOPIC, ask(k, (1.0, 1.0), deadline_ms=2_000), model.now) is None
        began = model.now
        assert [reply_of(out).status for out in service.run(model.now)] == [OK]
        model.now = began + 0.8
        service.ended(model.now)


def test_a_busy_reply_says_when_to_try_again_and_the_same_request_may_then_be_answered():
    service, model = slow(max_batch=1)
    for k in range(12):
        send(service, f"d{k}", k, 250, model.now)
    out = service.receive(TOPIC, ask(99, (1.0, 1.0), deadline_ms=250), model.now)
    assert out is not None
    assert (reply_of(out).status, reply_of(out).result) == (BUSY, 70), "7 rows wait"
    assert send(service, "pi-1", 99, 500, model.now) == -1, "a busy reply is not remembered"


def test_the_earliest_deadline_is_answered_first_but_no_device_overtakes_with_its_second_request():
    service, model = slow(max_batch=1)
    for device, id_, deadline_ms in (("a", 1, 900), ("b", 1, 500), ("c", 1, 700), ("b", 2, 290), ("a", 2, 280)):
        assert send(service, device, id_, deadline_ms, model.now) == -1
    order = []
    while service.due(model.now) is not None:
        order += [(out.device, reply_of(out).id[-1]) for out in service.run(model.now)]
        service.ended(model.now)
    assert order[:3] == [("b", 1), ("c", 1), ("a", 1)]
    assert sorted(order) == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1)]


def test_a_flood_of_one_device_leaves_the_others_their_answers_in_time():
    service, model = slow(max_batch=1)
    statuses = []
    for k in range(100):
        for j in range(20):
            send(service, "loud", 1000 * k + j, 600, model.now)
        statuses.append(send(service, f"quiet-{k}", k, 60, model.now))
        statuses += [reply_of(out).status for out in service.run(model.now) if out.device.startswith("quiet")]
        service.ended(model.now)
    assert statuses.count(BUSY) == 0
    assert statuses.count(OK) >= 98, "the last may still wait"


def test_a_batch_that_hangs_or_fails_does_not_make_the_service_busy():
    def hangs(row: Sequence[object]) -> Exception | None:
        model.now += 0.7 * (row[0] == 13)
        return thirteen(HpcTimeoutError)(row)

    model = FakeModel(hangs, row_s=0.01)
    service = Service(model, ServiceConfig())
    service.receive(TOPIC, ask(1, (13.0, 1.0)), 0.0)
    service.run(0.0)
    service.ended(model.now)
    assert [send(service, f"d{k}", k, 300, model.now) for k in range(20)] == [-1] * 20


def test_a_machine_that_stood_still_during_a_batch_makes_the_service_busy_for_no_longer_than_until_the_next_one():
    model = FakeModel(row_s=0.01)
    service = Service(model, ServiceConfig())
    service.receive(TOPIC, ask(0, (1.0, 1.0), deadline_ms=2_000), model.now)
    service.run(model.now)
    model.now += 60.0
    service.ended(model.now)
    statuses = []
    for k in range(1, 60):
        statuses.append(send(service, f"d{k}", k, 1_000, model.now))
        statuses += [reply_of(out).status for out in service.run(model.now)]
        service.ended(model.now)
    assert statuses.count(OK) == 59


def test_time_that_a_request_has_waited_at_the_broker_counts():
    service, model = slow(max_batch=1)
    for device, expiry_s in (("fresh", 3), ("old", 1), ("of-today", 2)):
        request = ask(1, (1.0, 1.0), deadline_ms=3_000)
        assert service.receive(request_topic(device), request, model.now, expiry_s=expiry_s) is None
    assert [(out.device, round(out.expires_s)) for _ in range(3) for out in service.run(0.0)] == [
        ("old", 2), ("fresh", 3), ("of-today", 3),
    ], "of 3 s at least one has passed where 1 is left"  # fmt: skip


def test_what_a_device_sends_beyond_its_rate_is_dropped_unread_and_acknowledged():
    service, _ = make(max_per_s_per_device=100, max_waiting_per_device=1000)
    for k in range(200):
        assert service.receive(TOPIC, b"not even a request", 0.0, tag=k + 1) is None
    assert (service.counters.malformed, service.counters.flooded) == (20, 180)
    assert service.released() == list(range(1, 201))
    assert send(service, "pi-2", 1, 1000, 0.0) == -1
    assert send(service, "pi-1", 1, 1000, 1.0) == -1, "after a second it is heard again"
    assert service.due(1.0) == 0.0
