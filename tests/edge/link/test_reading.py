# SPDX-License-Identifier: Apache-2.0
"""The client reads ahead and drops unparsed what its owner does not admit: no byte is lost, each drop acknowledged."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from hardcase_edge.link.address import parse_address
from hardcase_edge.link.paho_client import READ_AHEAD, V5, V311, Client, ConnectionConfig


def message(topic: str, payload: bytes, mid: int, qos: int, properties: bytes) -> bytes:
    """A PUBLISH of fewer than 16,384 bytes."""
    body = struct.pack(">H", len(topic)) + topic.encode() + struct.pack(">H", mid)[: 2 * (qos > 0)]
    body += properties + payload
    return bytes((0x30 | qos << 1, len(body) & 0x7F | 0x80, len(body) >> 7)) + body


@pytest.fixture(params=[V5, V311], ids=["5", "3.1.1"])
def wired(request):
    """A client, what it heard, the broker's end of its line, and the properties of a message without any."""
    ours, theirs = socket.socketpair()
    for line in (ours, theirs):
        line.setblocking(False)
    config = ConnectionConfig(address=parse_address("mqtt://127.0.0.1:1"), client_id="d")
    client = Client(config, request.param, None, None)
    heard: list[tuple[str, bytes]] = []
    client.on_message = lambda _c, _d, m: heard.append((m.topic, m.payload))
    client._sock = ours
    yield client, heard, theirs, b"\0" if request.param == V5 else b""
    client._sock = None
    ours.close()
    theirs.close()


def test_messages_cut_anywhere_are_heard_whole_and_in_order(wired):
    client, heard, broker, none = wired
    chance = random.Random(3)
    sent = [(f"t/{k}", chance.randbytes(chance.randrange(300))) for k in range(200)]
    stream = b"".join(message(topic, payload, 1, 0, none) for topic, payload in sent)
    while stream:
        n = chance.choice((1, 2, 3, 50, 500, 5000))
        broker.sendall(stream[:n])
        stream = stream[n:]
        assert client.loop_read() == 0
    assert heard == sent


def test_one_call_reads_once_from_the_socket_so_that_writing_has_its_turn(wired):
    client, heard, broker, none = wired
    broker.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * READ_AHEAD)
    one = message("t", b"x" * 1000, 1, 0, none)
    n = READ_AHEAD // len(one)
    broker.sendall(one * (n + 40))
    client.loop_read()
    assert 0 < len(heard) <= n
    while len(heard) < n + 40:
        client.loop_read()


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_not_admitted_is_dropped_and_acknowledged_in_one_write(wired, qos):
    client, heard, broker, none = wired
    client.admits = lambda topic: topic == "good"
    client.on_socket_register_write = lambda *_: None  # as in a connection
    broker.sendall(b"".join(message("bad", b"x", mid, qos, none) for mid in range(1, 101)))
    broker.sendall(message("good", b"y", 0, 0, none))
    client.loop_read()
    assert heard == [("good", b"y")]
    assert len(client._out_packet) == qos
    if qos:
        client.loop_write()
        assert broker.recv(4096) == b"".join(struct.pack(">BBH", 0x40, 2, mid) for mid in range(1, 101))


@pytest.mark.parametrize("body", [b"", b"\0", b"\xff\xff", b"\0\1t", b"\0\1t\0"])
def test_a_message_that_ends_before_its_id_ends_the_connection_and_acknowledges_nothing(wired, body):
    client, heard, broker, _ = wired
    client.admits = lambda topic: False
    broker.sendall(bytes((0x32, len(body))) + body)
    assert is_ended(client)
    assert (heard, client._acks) == ([], b"")


def is_ended(client: Client) -> bool:
    """Whether reading fails; a connection's thread then begins a new one."""
    try:
        return client.loop_read() != 0
    except Exception:  # paho's own parser has no common error
        return True
