# SPDX-License-Identifier: Apache-2.0
"""The inbox: one device's flood leaves room for all others, who are served in turn with it."""

from __future__ import annotations

import threading
import time

from hardcase_cloud.answering import inbox
from hardcase_cloud.answering.inbox import MAX_INBOX, MAX_PER_DEVICE, Inbox
from hardcase_cloud.answering.turns import Turns
from hardcase_edge.link.connection import Message
from hardcase_edge.link.wire import request_topic
from hardcase_edge.program.readings import MAX_REQUEST_BYTES


def devices(box: Inbox) -> list[str]:
    """The device of each message, in the order in which they are taken."""
    order = []
    while (incoming := box.take(0.0)) is not None:
        order.append(incoming.topic.split("/")[-2])
    return order


def test_a_flood_of_one_device_is_dropped_before_the_inbox_and_counted():
    box = Inbox()
    for _ in range(45_000):
        box.put(Message(request_topic("loud"), b"x"), 0.0)
    assert box.lost == 45_000 - MAX_PER_DEVICE
    for k in range(3):
        box.put(Message(request_topic(f"quiet-{k}"), b"x"), 0.0)
    assert devices(box) == ["loud", "quiet-0", "quiet-1", "quiet-2"] + ["loud"] * (MAX_PER_DEVICE - 1)


def test_topics_that_name_no_device_share_one_place():
    box = Inbox()
    for k in range(200):
        box.put(Message(f"hardcase/v1/-{k}/request", b"x"), 0.0)
    assert box.lost == 200 - MAX_PER_DEVICE


def test_more_than_the_inbox_holds_is_counted_and_forgotten():
    box = Inbox()
    for k in range(MAX_INBOX + 3):
        box.put(Message(request_topic(f"d{k}"), b"x"), 0.0)
    assert box.lost == 3
    assert len(devices(box)) == MAX_INBOX


def test_no_more_of_an_oversized_message_is_kept_than_tells_that_it_is_oversized():
    box = Inbox()
    box.put(Message(request_topic("d"), b"x" * 10**6, b"c"), 1.0)
    incoming = box.take(0.0)
    assert incoming is not None
    assert (len(incoming.payload), incoming.correlation, incoming.at) == (MAX_REQUEST_BYTES + 1, b"c", 1.0)


def test_whoever_waits_is_woken_by_a_message_and_otherwise_by_the_time():
    box = Inbox()
    began = time.monotonic()
    assert box.take(0.05) is None
    assert 0.05 <= time.monotonic() - began < 5
    threading.Timer(0.05, box.put, (Message(request_topic("d"), b"x"), 0.0)).start()
    assert box.take(10.0) is not None
    assert time.monotonic() - began < 5
    assert inbox.MAX_PER_DEVICE * 8 <= MAX_INBOX  # several devices may flood at once


def test_turns_go_round_and_each_device_keeps_its_order():
    turns = Turns[int](most=7, most_per_device=4)
    for device, item in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6), ("a", 7)]:
        assert turns.put(device, item)
    assert not turns.put("d", 8)
    taken = [turns.take() for _ in range(7)]
    assert taken == [("a", 1), ("b", 4), ("c", 5), ("a", 2), ("b", 6), ("a", 3), ("a", 7)]
    assert turns.put("d", 8)
