# SPDX-License-Identifier: Apache-2.0
"""A client's connection as a machine: what each packet of a broker makes of it, and that no bytes break it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_cloud.mqtt import packets
from hardcase_cloud.mqtt.attempts import Pauses
from hardcase_cloud.mqtt.machine import Acknowledged, Closed, Granted, Machine, Refused, Up
from hardcase_cloud.mqtt.packets import V5, V311
from hardcase_edge.errors import WireError

TOPICS = ["$share/g/a/+", "b"]
CONNECTED = {V5: b"\x20\x03\x01\x00\x00", V311: b"\x20\x02\x01\x00"}
NO_V5 = {V5: b"\x20\x03\x00\x84\x00", V311: b"\x20\x02\x00\x01"}


def suback(version: int, packet_id: int, *reasons: int) -> bytes:
    body = packet_id.to_bytes(2, "big") + (b"\0" if version == V5 else b"") + bytes(reasons)
    return bytes((0x90, len(body))) + body


def up(version: int = V5, **settings: int) -> Machine:
    machine = Machine(version, ["b"], 1000, **settings)
    assert machine.feed(CONNECTED[version] + suback(version, 1, 1)) == [Up()]
    machine.answer()
    return machine


@pytest.mark.parametrize("version", [V5, V311])
def test_a_connection_is_up_once_all_topics_are_granted(version: int) -> None:
    machine = Machine(version, TOPICS, 1000)
    assert (machine.feed(CONNECTED[version]), machine.is_up, machine.has_session) == ([], False, True)
    topics = TOPICS if version == V5 else ["a/+", "b"]
    assert machine.answer() == packets.subscribe(1, topics, version)
    assert (machine.answer(), machine.feed(suback(version, 1, 1, 0)), machine.is_up) == (b"", [Up()], True)
    assert machine.feed(suback(version, 7, 0x80)) == [Granted(7, b"\x80")]
    message = packets.publish("b", b"x", 5, version)
    assert [event.payload for event in machine.feed(message)] == [b"x"]  # type: ignore[union-attr]
    assert (machine.feed(b"\xe0\x00"), machine.is_up) == ([Closed(0)], False)


def test_without_topics_it_is_up_at_once() -> None:
    machine = Machine(V5, (), 1000)
    assert (machine.feed(CONNECTED[V5]), machine.answer(), machine.is_up) == ([Up()], b"", True)


@pytest.mark.parametrize("version", [V5, V311])
def test_a_refusal_says_what_and_why(version: int) -> None:
    [refused] = Machine(version, TOPICS, 1000).feed(NO_V5[version])
    assert isinstance(refused, Refused)
    assert refused.is_version
    assert refused.words.startswith("refused the connection")
    machine = Machine(version, ["b", "c"], 1000)
    [refused] = machine.feed(CONNECTED[version] + suback(version, 1, 1, 0x80))
    assert refused == Refused(0x80, "c")
    assert (refused.words, refused.is_version, machine.is_up) == ("refused the subscription to c", False, False)
    assert Refused(0x87).words == "refused the connection: not authorised"


def test_so_many_messages_await_an_acknowledgement_and_no_more() -> None:
    machine = up(max_in_flight=2)
    first, second = machine.publish("t", b"1"), machine.publish("t", b"2")
    assert (first, second) == (packets.publish("t", b"1", 2), packets.publish("t", b"2", 3))
    assert (machine.publish("t", b"3"), machine.in_flight) == (b"", 2)
    assert machine.publish("t", b"0", qos=0) == packets.publish("t", b"0")
    assert machine.feed(packets.puback(2)) == [Acknowledged(2, 0)]
    assert (machine.publish("t", b"3"), machine.in_flight) == (packets.publish("t", b"3", 4), 2)
    machine.feed(packets.puback(9) * 5)
    assert machine.in_flight == 0


def test_who_has_nobody_to_give_it_to_refuses_a_message() -> None:
    assert [Acknowledged(1, reason).is_refused for reason in (0, 0x10, 0x87)] == [False, True, True]


def test_a_broker_that_connects_twice_is_none() -> None:
    with pytest.raises(WireError, match="second CONNACK"):
        up().feed(CONNECTED[V5])


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=60)), max_size=5), st.sampled_from((V311, V5)))
def test_no_bytes_raise_anything_but_a_wire_error(said: list[tuple[int, bytes]], version: int) -> None:
    machine = Machine(version, TOPICS, 100)
    with suppress(WireError):
        machine.feed(b"".join(bytes((first, len(body))) + body for first, body in said))
    assert len(machine.answer()) < 100


def test_pauses_double_up_to_the_longest_and_begin_again() -> None:
    pauses = Pauses(1.0, 5.0)
    for most_s in (1, 2, 4, 5, 5):
        assert most_s / 2 <= pauses.next() <= most_s
    pauses.reset()
    assert pauses.next() <= 1
