# SPDX-License-Identifier: Apache-2.0
"""Chunks of one bundle: any order, a window of them, nothing twice, and again after silence or a new connection."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.fleet.update.messages import Chunk, Offer, digests_of, name_of
from hardcase_edge.fleet.update.metered import Metered, parse_metered
from hardcase_edge.fleet.update.transfer import FIRST, LEAST, MOST, SILENT_S, SLOW_S, Transfer

SIZE = 4_096
DATA = random.Random(2).randbytes(99 * SIZE + 5)
OFFER = Offer(size=len(DATA), sha256=sha256(DATA), chunk_bytes=SIZE, digests=digests_of(DATA, SIZE))


def chunk(index: int) -> Chunk:
    return Chunk(name_of(OFFER.sha256), index, DATA[index * SIZE : (index + 1) * SIZE])


def give(transfer: Transfer, now: float, index: int) -> str:
    reason = transfer.arrived(now, chunk(index))
    if not reason:
        transfer.wrote(index)
    return reason


def test_every_chunk_is_asked_for_once_and_they_may_come_in_any_order() -> None:
    transfer, rng, asked, waiting, now = Transfer(OFFER), random.Random(4), [], [], 0.0
    while not transfer.is_whole:
        new = transfer.wanted(now)
        asked += new
        waiting += new
        assert len(waiting) <= MOST
        now += 0.01
        assert give(transfer, now, waiting.pop(rng.randrange(len(waiting)))) == ""
    assert asked == list(range(OFFER.n_chunks))


def test_what_is_wrong_double_or_of_another_offer_is_dropped() -> None:
    transfer = Transfer(OFFER)
    transfer.wanted(0)
    assert transfer.arrived(0, Chunk(bytes(16), 0, DATA[:SIZE])) == "other_offer"
    assert transfer.arrived(0, Chunk(transfer.name, 100, b"")) == "malformed"
    assert transfer.arrived(0, Chunk(transfer.name, 0, DATA[1 : SIZE + 1])) == "wrong"
    assert transfer.arrived(0, Chunk(transfer.name, 0, DATA[:10])) == "wrong"
    assert give(transfer, 0, 0) == ""
    assert give(transfer, 0, 0) == "double"


def test_a_new_connection_asks_for_the_window_again_and_for_no_more() -> None:
    transfer = Transfer(OFFER, frozenset(range(10)))
    first = transfer.wanted(0)
    assert first == list(range(10, 10 + FIRST))
    give(transfer, 0.1, 11)
    transfer.connected()
    assert transfer.wanted(0.2)[:3] == [10, 12, 13]


def test_silence_asks_again_and_waits_longer_each_time() -> None:
    transfer, times, now = Transfer(OFFER), [], 0.0
    for _ in range(4):
        times.append(now)
        assert transfer.wanted(now)[0] == 0
        assert transfer.wanted(now) == []
        due = transfer.due(now)
        assert due is not None
        now += due
    assert [b - a for a, b in pairwise(times)] == [SILENT_S, 2 * SILENT_S, 4 * SILENT_S]


def test_the_window_closes_where_chunks_queue_and_opens_where_they_do_not() -> None:
    slow, fast = Transfer(OFFER), Transfer(OFFER)
    for transfer, takes_s in ((slow, 2 * SLOW_S), (fast, 0.05)):
        now = 0.0
        for _ in range(12):
            for index in transfer.wanted(now):
                give(transfer, now + takes_s, index)
            now += takes_s
    assert (slow.window, fast.window) == (LEAST, MOST)


@pytest.mark.parametrize(("text", "start", "end"), [("07:00-23:30", 420, 1410), ("22:00-06:00", 1320, 360)])
def test_metered_hours_are_two_times_of_a_day(text: str, start: int, end: int) -> None:
    assert parse_metered(text) == Metered(start, end)


@pytest.mark.parametrize("text", ["", "7:00-8:00", "07:00-07:00", "24:00-01:00", "07:00-08:60", "07:00–08:00"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(Exception, match="use HH:MM-HH:MM"):
        parse_metered(text)


def test_a_clock_that_nobody_has_set_pauses_nothing() -> None:
    always = Metered(0, 1439)
    assert not always.is_on(100_000.0)
    assert not always.is_on(1_800_000_000.0, floor=1_900_000_000)
    assert Metered(0, 720).is_on(1_800_000_000.0) != Metered(720, 0).is_on(1_800_000_000.0)
