"""The door's reading of MQTT: our clients' packets are understood, all others are refused, nothing else raises."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_cloud.broker.access import Door, DoorReader
from hardcase_cloud.broker.packets import PacketError, Publish, read_connect, read_publish, read_subscribe
from hardcase_edge.link.wire import reply_topic, request_topic, status_topic


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("!H", len(data)) + data


def connect(flags: int, *fields: bytes, level: int = 4) -> bytes:
    return text("MQTT") + bytes((level, flags, 0, 60)) + b"".join(fields)


def test_a_connect_with_everything_is_read_field_by_field():
    body = connect(0b1110_1110, text("id"), text("will/topic"), text("will"), text("user"), text(b"\0\xff"))
    found = read_connect(body)
    assert (found.client, found.will_topic, found.will_qos) == ("id", "will/topic", 1)
    assert (found.user, found.password) == ("user", b"\0\xff")


def test_a_connect_of_another_version_is_only_known_by_its_level():
    assert read_connect(connect(2, b"whatever", level=5)).level == 5


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(text("MQIsdp") + b"\3\2\0\0", id="mqtt-3.1"),
        pytest.param(connect(1, text("id")), id="reserved-flag"),
        pytest.param(connect(0x40, text("id"), text("pw")), id="password-without-user"),
        pytest.param(connect(0x08, text("id")), id="will-qos-without-will"),
        pytest.param(connect(0x1C, text("id"), text("t"), text("m")), id="will-qos-3"),
        pytest.param(connect(2, text("id"), b"x"), id="bytes-left"),
        pytest.param(connect(2, text("a\0b")), id="null-in-string"),
        pytest.param(connect(2, text(b"\xc3")), id="not-utf8"),
    ],
)
def test_a_connect_that_contradicts_itself_is_refused(body):
    with pytest.raises(PacketError):
        read_connect(body)


def test_a_connect_cut_anywhere_is_refused():
    body = connect(0b1110_1110, text("id"), text("t"), text("m"), text("u"), text("p"))
    for cut in range(len(body)):
        with pytest.raises(PacketError):
            read_connect(body[:cut])


def test_publish_and_subscribe_say_what_they_want():
    assert read_publish(0b0011, text("a/b") + b"\0\7payload") == Publish("a/b", 1, True)
    assert read_publish(0b0000, text("a/b")) == Publish("a/b", 0, False)
    assert read_subscribe(b"\0\1" + text("a/+") + b"\1" + text("#") + b"\0") == ["a/+", "#"]


@given(st.integers(0, 15), st.binary(max_size=40))
def test_no_bytes_raise_anything_but_a_packet_error(flags, body):
    for read in (read_connect, read_subscribe, lambda b: read_publish(flags, b)):
        with contextlib.suppress(PacketError):
            read(body)


@given(st.binary(max_size=60))
def test_no_bytes_make_the_door_raise_anything_but_an_end(noise):
    async def drink() -> None:
        stream = asyncio.StreamReader()
        stream.feed_data(b"\x10\x0f" + connect(2, text("raw")) + noise)
        stream.feed_eof()
        reader = DoorReader(stream, Door())
        await reader.connect()
        with contextlib.suppress(asyncio.IncompleteReadError):
            for _ in range(17 + len(noise)):
                await reader.read(1)
        with pytest.raises(asyncio.IncompleteReadError):
            await reader.read(1)

    asyncio.run(drink())


def test_a_read_that_is_cancelled_within_a_header_loses_no_byte():
    whole = b"\xc0\0"  # PINGREQ

    async def interrupted() -> bytes:
        stream = asyncio.StreamReader()
        stream.feed_data(b"\x10\x0f" + connect(2, text("raw")) + whole[:1])
        reader = DoorReader(stream, Door())
        await reader.connect()
        await reader.read(17)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        stream.feed_data(whole[1:])
        return await reader.read(1) + await reader.read(1)

    assert asyncio.run(interrupted()) == whole


@pytest.mark.parametrize(
    ("user", "topic", "may_publish", "may_retain", "may_subscribe"),
    [
        (None, request_topic("a"), True, False, True),
        (None, reply_topic("a"), True, False, True),
        (None, status_topic("a"), True, True, True),
        (None, "a", False, False, False),
        ("a", request_topic("a"), True, False, True),
        ("a", reply_topic("a"), False, False, True),
        ("a", status_topic("a"), True, True, True),
        ("a", request_topic("b"), False, False, False),
        ("a", reply_topic("b"), False, False, False),
        ("a", status_topic("b"), False, False, False),
        ("worker", request_topic("a"), False, False, True),
        ("worker", reply_topic("a"), True, False, True),
        ("worker", status_topic("a"), False, False, True),
        ("worker", request_topic("+"), False, False, True),
        ("a", request_topic("+"), False, False, False),
        (None, request_topic("+"), False, False, True),
        (None, "hardcase/v1/+/reply", False, False, False),
    ],
)
def test_who_may_do_what(user, topic, may_publish, may_retain, may_subscribe):
    door = Door()
    assert door.may_publish(user, topic, is_retained=False) == may_publish
    assert door.may_publish(user, topic, is_retained=True) == may_retain
    assert door.may_subscribe(user, topic) == may_subscribe
