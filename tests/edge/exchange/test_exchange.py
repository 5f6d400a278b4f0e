# SPDX-License-Identifier: Apache-2.0
"""The exchange: one request, what is sent when, and which reply counts; without a network and without a clock."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from hardcase_edge.exchange.exchange import ASKS_PER_RESEND, MAX_BUSY_MS, MOST_RESENDS, Exchange, Over, Send
from hardcase_edge.link.wire import MAX_BUSY_MS as WIRE_BUSY_MS

ID = bytes(range(100, 116))
EVEN = bytes([128] * 16)  # an id without jitter


def asking(exchange=None, *, id_=EVEN, now=0, deadline_ms=60_000, may_resend=lambda: True):
    """An exchange with a request that has been sent once on connection 1."""
    exchange = exchange or Exchange(1_000, Counter())
    exchange.ask(now, id_, deadline_ms, may_resend)
    assert exchange.poll(now, 1) == Send(id_, deadline_ms, False)
    exchange.sent()
    return exchange


def sendings(exchange, until, connection=1, now=0):
    """The times at which it sends, by its own ``due``, and how it ended."""
    times = []
    while now <= until:
        action = exchange.poll(now, connection)
        if isinstance(action, Over):
            return times, now
        if action is not None:
            exchange.sent()
            times.append(now)
            continue
        now += exchange.due(now)
    return times, None


def test_pauses_between_transmissions_double():
    assert sendings(asking(deadline_ms=20_000), 30_000) == ([1_000, 3_000, 7_000], 20_000)


def test_pauses_are_jittered_by_the_id_alone():
    firsts = {sendings(asking(id_=Random(k).randbytes(16)), 2_000)[0][0] for k in range(300)}
    assert min(firsts) >= 750
    assert max(firsts) < 1_250
    assert len(firsts) > 100
    assert sendings(asking(id_=ID), 9_000) == sendings(asking(id_=ID), 9_000)


def test_a_new_connection_carries_the_request_again_at_once_and_the_same_one_does_not():
    exchange = asking()
    assert exchange.poll(10, 1) is None
    assert exchange.poll(10, 0) is None
    assert exchange.poll(20, 2) == Send(EVEN, 59_980, True)


def test_a_transmission_that_did_not_go_out_is_tried_after_the_pause_and_is_the_first():
    exchange = Exchange(1_000, Counter())
    exchange.ask(0, EVEN, 5_000)
    assert exchange.poll(0, 1) == Send(EVEN, 5_000, False)
    assert exchange.poll(0, 1) is None
    assert exchange.due(0) == 1_000
    assert exchange.poll(1_000, 1) == Send(EVEN, 4_000, False)
    assert exchange._counters == {}


def test_nothing_is_sent_again_with_little_time_left():
    exchange = asking(deadline_ms=1_040)
    assert exchange.poll(1_000, 1) is None
    assert exchange.due(1_000) == 40
    assert exchange.poll(1_001, 2) is None
    assert exchange.poll(1_040, 2) == Over(None)


def test_transmissions_again_stay_within_a_tenth_of_the_requests_and_what_is_saved():
    counters = Counter()
    exchange, now = Exchange(100, counters), 0
    for k in range(200):
        exchange.connected()  # the circuit stays closed
        exchange.ask(now, bytes([k] * 16), 3_000)
        _, now = sendings(exchange, now + 4_000, now=now)
    assert counters["sent"] == 200
    assert 200 // ASKS_PER_RESEND <= counters["resent"] <= MOST_RESENDS + 200 // ASKS_PER_RESEND


def test_a_budget_that_declines_is_not_asked_twice():
    paid = iter([True, False, True])
    exchange = asking(may_resend=lambda: next(paid))
    assert sendings(exchange, 70_000) == ([1_000], 60_000)
    assert list(paid) == [True]


def test_only_the_reply_that_is_waited_for_counts_and_only_once():
    counters = Counter()
    exchange = asking(Exchange(1_000, counters), id_=ID)
    exchange.replied(5, EVEN, "foreign")
    assert exchange.poll(5, 1) is None
    exchange.replied(6, ID, "right")
    exchange.replied(6, ID, "again")
    assert exchange.poll(6, 1).reply == "right"
    exchange.replied(7, ID, "late")
    exchange.replied(7, b"", "to nobody")
    assert counters == Counter(sent=1, replies=1, unknown=2, late=2)
    assert exchange.poll(8, 1) is exchange.due(8) is None


def test_a_reply_after_the_deadline_is_late():
    exchange = asking(id_=ID, deadline_ms=100)
    assert exchange.poll(100, 1) == Over(None)
    exchange.replied(101, ID, "late")
    assert exchange._counters == Counter(sent=1, late=1)
    assert exchange.can_ask(101)


def busy(exchange, now, ms, id_=EVEN):
    asking(exchange, id_=id_, now=now)
    exchange.replied(now, id_, "busy", ms)
    return exchange.poll(now, 1)


def test_a_busy_cloud_is_left_alone_for_as_long_as_it_says_and_longer_if_it_stays_busy():
    exchange, now, pauses = Exchange(1_000, Counter()), 0, []
    for _ in range(6):
        assert busy(exchange, now, 400, bytes(16)).reply == "busy"
        began = now
        while not exchange.can_ask(now):
            now += 100
        pauses.append(now - began)
    assert pauses == [400, 800, 1_600, 3_200, 3_200, 3_200]
    asking(exchange, now=now)
    exchange.replied(now, EVEN, "answered")
    exchange.poll(now, 1)
    assert exchange.can_ask(now)
    busy(exchange, now, 400, bytes(16))
    assert (exchange.can_ask(now + 399), exchange.can_ask(now + 400)) == (False, True)
    assert exchange._counters["busy"] == 7


def test_the_first_busy_reply_is_told_and_the_next_are_not():
    exchange = Exchange(1_000, Counter())
    assert busy(exchange, 0, 400).line == "the cloud is busy; the device decides alone for 400 ms"
    assert busy(exchange, 1_000, 400).line == ""


@pytest.mark.parametrize("ms", [MAX_BUSY_MS, 10**15])
def test_no_reply_keeps_a_device_away_for_longer_than_a_minute_and_its_jitter(ms):
    exchange = Exchange(1_000, Counter())
    busy(exchange, 0, ms, bytes([255] * 16))
    busy(exchange, 0, ms, bytes([255] * 16))
    assert not exchange.can_ask(MAX_BUSY_MS)
    assert exchange.can_ask(MAX_BUSY_MS * 3 // 2)
    assert MAX_BUSY_MS == WIRE_BUSY_MS


def test_a_new_connection_closes_the_circuit_and_the_cloud_stays_busy():
    exchange = Exchange(1_000, Counter())
    busy(exchange, 0, 400)
    exchange.connected()
    assert not exchange.can_ask(399)


def test_three_silences_open_the_circuit_and_a_test_is_sent_once():
    exchange, now = Exchange(1_000, Counter()), 0
    for _ in range(3):
        assert exchange.can_ask(now)
        asking(exchange, now=now, deadline_ms=100)
        now += 100
        end = exchange.poll(now, 1)
    assert end.line == "3 requests in a row had no reply; the device decides alone until the cloud answers"
    assert not exchange.can_ask(now + 499)
    assert exchange.can_ask(now + 500)
    exchange.ask(now + 500, EVEN, 60_000, lambda: pytest.fail("a test is sent once"))
    assert sendings(exchange, now + 70_000, now=now + 500) == ([now + 500], now + 60_500)


def test_a_reply_in_time_forgets_silences_and_a_late_one_closes_no_circuit():
    exchange, now = Exchange(1_000, Counter()), 0
    for k, is_answered in enumerate((False, False, True, False, False, False)):
        asking(exchange, now=now, deadline_ms=100)
        if is_answered:
            exchange.replied(now, EVEN, "right")
        now += 100
        exchange.poll(now, 1)
        assert exchange.can_ask(now) is (k < 5)
    exchange.replied(now, EVEN, "late")
    assert not exchange.can_ask(now)


def test_a_silence_without_a_connection_is_not_the_clouds():
    exchange = Exchange(1_000, Counter())
    for k in range(4):
        asking(exchange, now=1_000 * k, deadline_ms=100)
        assert exchange.poll(1_000 * k + 100, 0) == Over(None)
        assert exchange.can_ask(1_000 * k + 100)


def test_a_refusal_of_the_broker_ends_the_request_and_opens_the_circuit():
    exchange = asking()
    exchange.refused(5, "no matching subscribers")
    assert exchange.due(5) == 0
    end = exchange.poll(5, 1)
    assert end.reply is None
    assert end.line.startswith("the broker takes no request: no matching subscribers;")
    assert not exchange.can_ask(6)
    exchange.refused(7, "late")
    assert exchange._counters == Counter(sent=1, rejected=1)


def test_a_circuit_is_tested_after_half_of_the_time_that_it_has_been_open():
    exchange = Exchange(1_000, Counter())
    for now in (0, 20_000):
        asking(exchange, now=now)
        exchange.refused(now, "closed")
        exchange.poll(now, 1)
    assert not exchange.can_ask(29_999)
    assert exchange.can_ask(30_000)


def test_a_cancelled_request_is_over_and_says_nothing_of_the_cloud():
    exchange = asking()
    exchange.cancel()
    assert exchange.poll(1, 1) == Over(None)
    exchange.cancel()
    assert exchange.poll(1, 1) is None
    assert exchange.can_ask(1)


def test_any_order_of_events_ends_each_request_once():
    chance = Random(5)
    for _ in range(300):
        exchange, now, connection, ends = Exchange(200, Counter()), 0, 1, 0
        for k in range(12):
            id_ = bytes([k]) * 16
            exchange.ask(now, id_, chance.randint(1, 2_000))
            while exchange.waiting:
                event = chance.randrange(6)
                now += chance.randrange(300)
                if event == 0:
                    exchange.replied(now, chance.choice([id_, bytes(16), b"x"]), "reply", chance.choice([0, 50]))
                elif event == 1:
                    exchange.refused(now, "no") if chance.random() < 0.1 else None
                elif event == 2:
                    connection = chance.choice([0, connection + 1])
                    exchange.connected()
                action = exchange.poll(now, connection)
                if isinstance(action, Send):
                    assert connection
                    exchange.sent() if chance.random() < 0.9 else None
                ends += isinstance(action, Over)
                assert exchange.waiting == b"" or exchange.due(now) >= 0
        assert ends == 12
        counters = exchange._counters
        assert counters["resent"] <= MOST_RESENDS + 12 / ASKS_PER_RESEND
