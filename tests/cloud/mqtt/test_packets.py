# SPDX-License-Identifier: Apache-2.0
"""MQTT packets: what is written is read again, what is cut or too long is refused, and nothing else raised."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_cloud.mqtt import packets
from hardcase_cloud.mqtt.packets import V5, V311, read_publish
from hardcase_edge.errors import WireError
from hardcase_edge.framing.packets import Reader

ids = st.integers(1, 65_535)


@settings(max_examples=15)
@given(st.text(min_size=1, max_size=40), st.binary(max_size=400), ids, st.sampled_from((V311, V5)), st.booleans())
def test_a_message_is_read_as_it_was_written(topic, payload, packet_id, version, retain):
    data = packets.publish(topic, payload, packet_id, version, retain=retain, correlation=b"c", expiry_s=7)
    [(first, body)] = Reader(1000).feed(data)
    message = read_publish(first, body, version)
    assert (message.topic, message.payload, message.packet_id, message.retain) == (topic, payload, packet_id, retain)
    assert (message.correlation, message.expiry_s) == ((b"c", 7) if version == V5 else (None, None))


@settings(max_examples=15)
@given(st.lists(st.binary(max_size=300), max_size=6), st.lists(st.integers(1, 60), max_size=40))
def test_packets_are_whole_however_the_stream_is_cut(payloads, cuts):
    stream = b"".join(packets.publish("t", payload, 1 + k) for k, payload in enumerate(payloads))
    reader, found = Reader(1000), []
    for n in (*cuts, len(stream)):
        part, stream = stream[:n], stream[n:]
        found += reader.feed(part)
    assert [read_publish(first, body).payload for first, body in found] == payloads


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x30\xe9\x07", id="longer-than-allowed"),
        pytest.param(b"\x30\xff\xff\xff\x7f", id="the-longest-that-mqtt-has"),
        pytest.param(b"\x30\xff\xff\xff\xff\x01", id="a-length-of-five-bytes"),
    ],
)
def test_a_length_is_refused_before_the_packet_is_there(data):
    with pytest.raises(WireError):
        Reader(1000).feed(data)


@settings(max_examples=60)
@given(st.integers(0, 255), st.binary(max_size=60), st.sampled_from((V311, V5)))
def test_no_bytes_raise_anything_but_a_wire_error(first, body, version):
    for read in (
        lambda: read_publish(first, body, version),
        lambda: packets.read_connack(body, version),
        lambda: packets.read_suback(body, version),
        lambda: packets.read_acknowledgement(body),
        lambda: packets.read_properties(body, 0),
    ):
        with suppress(WireError):
            read()


def test_a_topic_alias_is_refused_because_none_was_offered():
    body = b"\x00\x00\x00\x01\x03\x23\x00\x01x"
    with pytest.raises(WireError, match="topic alias"):
        read_publish(0x32, body)
