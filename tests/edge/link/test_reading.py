# SPDX-License-Identifier: Apache-2.0
"""The gate before paho bounds what is read, loses no byte, and lets writing have its turn."""

from __future__ import annotations

import random
import socket
import struct
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest

from hardcase_cloud.mqtt import packets
from hardcase_edge.framing.packets import Reader
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.gate import MAX_OWED, READ_AHEAD
from hardcase_edge.link.paho_client import V5, V311, Client, ConnectionConfig, is_acknowledged
from tests.helpers.cloud.brokers import until


def message(topic: str, payload: bytes, mid: int, qos: int, properties: bytes) -> bytes:
    """A PUBLISH of fewer than 16,384 bytes."""
    body = struct.pack(">H", len(topic)) + topic.encode() + struct.pack(">H", mid)[: 2 * (qos > 0)]
    body += properties + payload
    return bytes((0x30 | qos << 1, len(body) & 0x7F | 0x80, len(body) >> 7)) + body


@pytest.fixture(params=[V5, V311], ids=["5", "3.1.1"])
def wired(request):
    """A client that is connected, what it heard, the broker's end of its line, and a message's properties, none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = parse_address(f"mqtt://127.0.0.1:{server.getsockname()[1]}")
        config = ConnectionConfig(address=address, client_id="d", max_packet_bytes=20_000)
        client = Client(config, request.param, None, None)
        heard: list[tuple[str, bytes]] = []
        client.on_message = lambda m: heard.append((m.topic, m.payload))
        client.connect()
        client.loop(0.0)
        broker, _ = server.accept()
    with broker:
        broker.settimeout(5)
        assert broker.recv(4096)[0] == 0x10
        broker.sendall(b"\x20\x03\0\0\0" if request.param == V5 else b"\x20\x02\0\0")
        client.loop(1.0)
        yield SimpleNamespace(
            client=client, heard=heard, broker=broker, none=b"\0" if request.param == V5 else b"", version=request.param
        )
    client.close()


def test_messages_cut_anywhere_are_heard_whole_and_in_order(wired):
    chance = random.Random(3)
    sent = [(f"t/{k}", chance.randbytes(chance.randrange(300))) for k in range(200)]
    stream = b"".join(message(topic, payload, 1, 0, wired.none) for topic, payload in sent)
    while stream:
        n = chance.choice((1, 2, 3, 50, 500, 5000))
        wired.broker.sendall(stream[:n])
        stream = stream[n:]
        assert wired.client.loop(1.0)
    assert wired.heard == sent


def test_one_turn_reads_once_from_the_socket_so_that_writing_has_its_turn(wired):
    one = message("t", b"x" * 1000, 1, 0, wired.none)
    n = READ_AHEAD // len(one)
    wired.broker.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * READ_AHEAD)
    wired.broker.sendall(one * (n + 40))
    wired.client.loop(1.0)
    assert 0 < len(wired.heard) <= n
    while len(wired.heard) < n + 40:
        assert wired.client.loop(1.0)


@pytest.mark.parametrize("body", [b"", b"\0", b"\xff\xff", b"\0\1t", b"\0\1t\0"])
def test_a_message_that_ends_before_its_id_ends_the_connection_and_acknowledges_nothing(wired, body):
    wired.broker.sendall(bytes((0x32, len(body))) + body)
    assert is_ended(wired.client)
    assert wired.heard == []
    wired.client.close()
    assert wired.broker.recv(4096) == b""


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x30\xa1\x9c\x01", "a packet of 20001 bytes, at most 20000 are read"),
        (b"\x30\xff\xff\xff\x7f", "a packet of 268435455 bytes, at most 20000 are read"),
        (b"\x30\xff\xff\xff\xff\x01", "the length of a packet has more than four bytes"),
        (b"\x34\x07\0\1t\0\1xy", "a message of QoS 2, which nobody subscribes to"),
        (b"\x36\x07\0\1t\0\1xy", "a message of QoS 2, which nobody subscribes to"),
    ],
)
def test_a_packet_that_claims_too_much_ends_the_connection_before_it_is_there(wired, data, told):
    wired.broker.sendall(data)
    assert is_ended(wired.client)
    assert (wired.client.end, wired.heard, wired.client.is_dropped) == (told, [], False)


def test_the_longest_packet_is_read(wired):
    longest = packets.packet(0x30, b"\0\1t" + wired.none + bytes(20_000 - 3 - len(wired.none)))
    for k in range(0, len(longest), 1000):
        wired.broker.sendall(longest[k : k + 1000])
        assert wired.client.loop(1.0)
    until(lambda: wired.client.loop(0.1) and wired.heard)
    assert [len(payload) for _, payload in wired.heard] == [20_000 - 3 - len(wired.none)]


def test_a_message_that_the_broker_does_not_take_at_once_goes_out_whole_and_once(wired):
    wired.client._gate._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sent = [bytes([k]) * 400_000 for k in range(8)]
    for payload in sent:
        assert wired.client.publish("t", payload) is not None
    reader, found = Reader(500_000), []
    for _ in range(20):  # the broker does not read, and speaks
        wired.broker.sendall(message("t", b"x", 1, 1, wired.none))
        assert wired.client.loop(0.0)
    wired.broker.setblocking(False)
    while len(found) < len(sent) + 20:
        assert wired.client.loop(0.1)
        with suppress(BlockingIOError):
            found += reader.feed(wired.broker.recv(65_536))
    assert len(wired.heard) == 20
    told = [packets.read_publish(*one, wired.version).payload for one in found if one[0] & 0xF0 == packets.PUBLISH]
    assert told == sent


def test_a_broker_that_sends_and_takes_no_acknowledgement_is_left(wired, monkeypatch):
    """paho keeps each acknowledgement until it is taken; the broker's ids bound how many a broker may wait for."""
    assert MAX_OWED <= 0xFFFF
    monkeypatch.setattr("hardcase_edge.link.gate.MAX_OWED", 15_000)
    wired.client._gate._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    wired.broker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wired.broker.setblocking(False)
    flood = message("t", b"x", 1, 1, wired.none) * 5_000
    sent, is_up = 0, True
    while is_up and sent < 400_000 * len(flood) // 5_000:
        with suppress(BlockingIOError):
            sent += wired.broker.send(flood[sent % len(flood) :])
        is_up = wired.client.loop(0.0)
    assert (is_up, wired.client.end) == (False, "the broker sends, and takes no acknowledgement")
    assert len(wired.heard) + 10_000 > 15_000


def test_one_that_takes_them_may_send_for_ever(wired, monkeypatch):
    monkeypatch.setattr("hardcase_edge.link.gate.MAX_OWED", 1_000)
    wired.broker.settimeout(0.05)
    reader, taken = Reader(1000), 0
    for k in range(1, 21):
        wired.broker.sendall(message("t", b"x", 1, 1, wired.none) * 500)
        while taken < 500 * k:
            assert wired.client.loop(0.01)
            with suppress(TimeoutError):
                taken += len(reader.feed(wired.broker.recv(65_536)))
    assert len(wired.heard) == 10_000


def test_no_more_messages_than_the_window_are_sent_and_none_waits_behind_it(wired):
    taken = [wired.client.publish("t", b"%d" % k) for k in range(20)]
    n = wired.client._config.max_in_flight
    assert [sent is not None for sent in taken] == [True] * n + [False] * (20 - n)
    reader, found = Reader(1000), []
    while len(found) < n:
        assert wired.client.loop(0.1)
        wired.broker.settimeout(0.2)
        with suppress(TimeoutError):
            found += reader.feed(wired.broker.recv(65_536))
    wired.broker.sendall(packets.puback(packets.read_publish(*found[0], wired.version).packet_id))
    assert wired.client.loop(1.0)
    assert is_acknowledged(taken[0], 1.0)
    assert wired.client.publish("t", b"next") is not None
    assert wired.client.publish("t", b"and none behind") is None


def test_another_thread_that_publishes_wakes_the_loop(wired):
    """Each is on its way before the loop's second is over, whatever the loop is at; and nothing is sent twice."""

    def loop():
        while wired.client.loop(60.0):
            pass

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    reader, found = Reader(1000), []
    for k in range(2_000):
        sent = wired.client.publish("t", b"%d" % k)
        assert sent is not None
        while len(found) <= k:
            found += reader.feed(wired.broker.recv(4096))  # at most 5 s
        mid = packets.read_publish(*found[-1], wired.version).packet_id
        wired.broker.sendall(packets.puback(mid))
        assert k % 8 < 7 or is_acknowledged(sent, 5)  # no more than 16 may await it
    wired.client.disconnect()
    thread.join(5)
    assert not thread.is_alive()
    assert [packets.read_publish(*one, wired.version).payload for one in found] == [b"%d" % k for k in range(2_000)]


def is_ended(client: Client) -> bool:
    """Whether the connection ends; a connection's thread then begins a new one."""
    try:
        return not (client.loop(1.0) and client.loop(1.0))
    except Exception:  # paho's own parser has no common error
        return True
