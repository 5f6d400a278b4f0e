# SPDX-License-Identifier: Apache-2.0
"""Whatever bytes come in, amqtt reads whole packets or the connection's end, and loses no byte of a good packet."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_cloud.broker.packet_reader import PacketReader

CONNECT = b"\x10\x0f\0\4MQTT\4\2\0\x3c\0\3raw"


@given(st.binary(max_size=60))
def test_no_bytes_make_a_read_raise_anything_but_an_end(noise):
    async def drink() -> None:
        stream = asyncio.StreamReader()
        stream.feed_data(CONNECT + noise)
        stream.feed_eof()
        reader = PacketReader(stream)
        await reader.connect()
        with contextlib.suppress(asyncio.IncompleteReadError):
            for _ in range(len(CONNECT) + len(noise)):
                await reader.read(1)
        with pytest.raises(asyncio.IncompleteReadError):
            await reader.read(1)

    asyncio.run(drink())


def test_a_read_that_is_cancelled_within_a_header_loses_no_byte():
    whole = b"\xc0\0"  # PINGREQ

    async def interrupted() -> bytes:
        stream = asyncio.StreamReader()
        stream.feed_data(CONNECT + whole[:1])
        reader = PacketReader(stream)
        await reader.connect()
        await reader.read(len(CONNECT))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        stream.feed_data(whole[1:])
        return await reader.read(1) + await reader.read(1)

    assert asyncio.run(interrupted()) == whole


def test_a_length_inside_a_packet_reads_nothing_of_the_next():
    async def beyond() -> bytes:
        stream = asyncio.StreamReader()
        stream.feed_data(CONNECT + b"\xc0\0")
        reader = PacketReader(stream)
        await reader.connect()
        with pytest.raises(asyncio.IncompleteReadError):
            await reader.read(len(CONNECT) + 1)
        return await reader.read(2)

    assert asyncio.run(beyond()) == b"\xc0\0"


def test_a_publisher_waits_while_too_much_is_on_its_way():
    async def read_one(answers: list[bool], limit_s: float) -> bytes:
        stream = asyncio.StreamReader()
        stream.feed_data(CONNECT + b"\x30\4\0\1ax")
        reader = PacketReader(stream, lambda _session: answers.pop(0) if len(answers) > 1 else answers[0])
        await reader.connect()
        await reader.read(len(CONNECT))
        async with asyncio.timeout(limit_s):
            return await reader.read(1)

    assert asyncio.run(read_one([True, True, False], 60)) == b"\x30"
    with pytest.raises(TimeoutError):
        asyncio.run(read_one([True], 0.2))
