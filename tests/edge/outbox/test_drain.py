# SPDX-License-Identifier: Apache-2.0
"""What goes out next: one record to a silent store, a window to one that answers, and requests before all."""

from __future__ import annotations

from math import inf

from hardcase_edge.fleet.outbox.drain import Drain, DrainConfig
from tests.helpers.edge.outbox import make_made


def sending(drain: Drain, now: float, n: int, *, is_asking: bool = False, first: int = 1) -> list[int]:
    """The sequences that go out now, of the records from ``first`` on, and ``n`` of them at most."""
    went, fresh = [], first
    while len(went) < n and drain.may_send(now, is_asking=is_asking):
        made, may_be_new = drain.next(now)
        if made is None and may_be_new:
            made, fresh = make_made(fresh), fresh + 1
        if made is None:
            break
        drain.sent(made, now)
        went.append(made.sequence)
    return went


def opened(**settings: float) -> Drain:
    """A drain whose store has acknowledged the record 1 at time 0."""
    drain = Drain(DrainConfig(**settings))
    assert sending(drain, 0.0, 5) == [1]
    assert drain.acknowledged([(1, 1, 1)], 0.0) == [(1, 1)]
    return drain


def test_a_store_that_is_silent_gets_one_record_at_pauses_that_double():
    drain = Drain(DrainConfig(again_s=10.0, most_again_s=60.0))
    times, now = [], 0.0
    while now < 400:
        if sending(drain, now, 5):
            times.append(now)
        now = max(now + 0.5, min(drain.next_at(now, is_asking=False), 400.0))
    assert times == [0.0, 10.0, 30.0, 70.0, 130.0, 190.0, 250.0, 310.0, 370.0]


def test_the_first_acknowledgement_opens_the_window():
    drain = opened(window=4, burst=100)
    assert sending(drain, 1.0, 50, first=2) == [2, 3, 4, 5]
    assert sending(drain, 1.5, 50, first=6) == []
    assert drain.acknowledged([(1, 3, 4), (2, 2, 2), (1, 90, 99)], 2.0) == [(1, 3), (1, 4)]
    assert sending(drain, 2.0, 50, first=6) == [6, 7]


def test_a_record_that_was_not_acknowledged_is_sent_again_while_others_are():
    drain = opened(window=4, burst=100, again_s=10.0)
    assert sending(drain, 0.0, 3, first=2) == [2, 3, 4]
    drain.acknowledged([(1, 3, 4)], 9.0)
    assert drain.next_at(9.0, is_asking=False) == 10.0
    assert sending(drain, 10.0, 1) == [2]


def test_a_store_that_falls_silent_closes_the_window():
    drain = opened(window=4, burst=100, again_s=10.0)
    assert sending(drain, 0.0, 50, first=2) == [2, 3, 4, 5]
    assert sending(drain, 9.9, 50, first=6) == []
    assert sending(drain, 10.0, 50, first=6) == [2]
    assert sending(drain, 19.9, 50, first=6) == []
    drain.acknowledged([(1, 2, 2)], 19.95)
    assert sending(drain, 20.0, 50, first=6) == [3, 4, 5, 6], "what was in flight goes again, then the next"


def test_after_a_new_connection_one_record_asks_whether_the_store_is_there():
    drain = opened(window=4, burst=100)
    assert sending(drain, 0.0, 50, first=2) == [2, 3, 4, 5]
    drain.reconnected(1.0)
    assert sending(drain, 1.0, 50, first=6) == [2]
    drain.acknowledged([(1, 2, 2)], 1.1)
    assert sending(drain, 1.1, 50, first=6) == [3, 4, 5, 6]


def test_the_rate_is_limited():
    drain = opened(window=10_000, burst=10, rate=100.0)
    went = sum(len(sending(drain, k / 100, 100, first=10_000 + 100 * k)) for k in range(1, 1001))
    assert 1000 <= went <= 1010


def test_while_a_request_waits_one_record_goes_in_a_second():
    drain = opened(window=100, burst=100, behind_request_s=1.0)
    went = [len(sending(drain, k / 10, 100, is_asking=True, first=100 * k)) for k in range(5, 50)]
    assert sum(went) == 4
    assert drain.next_at(5.0, is_asking=True) <= 5.1


def test_a_record_that_no_store_acknowledges_does_not_hold_up_the_others():
    drain = opened(window=3, burst=100, again_s=10.0)
    assert sending(drain, 0.0, 50, first=2) == [2, 3, 4]
    drain.reconnected(1.0)
    assert sending(drain, 1.0, 50, first=5) == [2]
    assert sending(drain, 11.0, 50, first=5) == [3]
    drain.acknowledged([(1, 3, 3)], 11.1)
    assert sending(drain, 11.1, 50, first=5) == [4, 2, 5]


def test_nothing_is_due_when_nothing_is_in_flight():
    assert opened().next_at(50.0, is_asking=False) == inf
