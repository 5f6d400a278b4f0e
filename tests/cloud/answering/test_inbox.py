# SPDX-License-Identifier: Apache-2.0
"""The inbox: one device's flood leaves room for all others, who are served in turn with it."""

from __future__ import annotations

import threading
import time

from hardcase_cloud.answering import inbox
from hardcase_cloud.answering.inbox import MAX_INBOX, MAX_MUTED, MAX_PER_DEVICE, MUTE_S, Inbox
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


def send(box: Inbox, topic: str, at: float = 0.0) -> bool:
    """Whether a message on this topic is admitted; it is then put into the inbox."""
    is_admitted = box.admits(topic, at)
    if is_admitted:
        box.put(Message(topic, b"x"), at)
    return is_admitted


def test_a_flood_of_one_device_is_dropped_before_the_inbox_and_counted():
    box = Inbox()
    for _ in range(45_000):
        send(box, request_topic("loud"))
    assert box.lost == 45_000 - MAX_PER_DEVICE
    for k in range(3):
        send(box, request_topic(f"quiet-{k}"))
    assert devices(box) == ["loud", "quiet-0", "quiet-1", "quiet-2"] + ["loud"] * (MAX_PER_DEVICE - 1)


def test_topics_that_name_no_device_share_one_place():
    box = Inbox()
    for k in range(200):
        send(box, f"hardcase/v1/-{k}/request")
    assert box.lost == 200 - MAX_PER_DEVICE


def test_more_than_the_inbox_holds_is_counted_and_forgotten():
    box = Inbox()
    for k in range(MAX_INBOX + 3):
        send(box, request_topic(f"d{k}"))
    assert box.lost == 3
    assert len(devices(box)) == MAX_INBOX
    assert send(box, request_topic(f"d{MAX_INBOX}"))  # it was not its fault, so it is heard at once


def test_a_device_that_filled_its_share_is_muted_for_a_time_and_others_are_not():
    box = Inbox()
    loud = request_topic("loud")
    assert [send(box, loud) for _ in range(MAX_PER_DEVICE + 1)] == [True] * MAX_PER_DEVICE + [False]
    assert len(devices(box)) == MAX_PER_DEVICE
    assert not send(box, loud, MUTE_S - 0.01)
    assert send(box, request_topic("quiet"), MUTE_S - 0.01)
    assert send(box, loud, MUTE_S)
    assert box.lost == 2


def test_no_more_devices_are_remembered_as_muted_than_allowed():
    box = Inbox()
    for k in range(2 * MAX_MUTED):
        box._mute(f"d{k}", 1.0)
    assert len(box._muted_until) <= MAX_MUTED


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
