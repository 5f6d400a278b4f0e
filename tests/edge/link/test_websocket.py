# SPDX-License-Identifier: Apache-2.0
"""MQTT over WebSockets: a broker's listener serves a device as any other, and a hostile server cannot fill a device."""

from __future__ import annotations

import base64
import hashlib
import random
import re
import socket
import struct
import threading
from contextlib import suppress
from time import monotonic

import pytest

from hardcase_cloud.mqtt.client import Client, ClientConfig
from hardcase_edge.errors import InputError, LinkError
from hardcase_edge.framing.websocket import FRAMES, Frames
from hardcase_edge.link.address import parse_address
from tests.edge.link.test_link import PROTOCOLS, READINGS, linked
from tests.helpers.cloud.brokers import free_port, is_listening, running_mosquitto, until
from tests.helpers.cloud.certificates import Authority
from tests.helpers.edge.device import Cloud
from tests.helpers.server import Server


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A mosquitto with a second and a third listener, for ws:// and wss://."""
    folder = tmp_path_factory.mktemp("websocket")
    authority = Authority(folder / "ca")
    cert = authority.issue("server")
    plain, encrypted = free_port(), free_port()
    options = {
        f"listener {plain} 127.0.0.1\nprotocol": "websockets",
        f"listener {encrypted} 127.0.0.1\nprotocol": "websockets",
        "certfile": str(cert),
        "keyfile": str(cert.with_suffix(".key")),
    }
    with running_mosquitto(folder, **options) as running:
        running.ws, running.wss, running.ca = f"ws://127.0.0.1:{plain}", f"wss://127.0.0.1:{encrypted}", authority.ca
        until(lambda: is_listening(plain) and is_listening(encrypted))
        yield running


@PROTOCOLS
def test_a_question_over_a_websocket_is_answered(broker, protocol):
    with Cloud(broker.url), linked(broker.ws, protocol=protocol) as link:
        reply = link.ask(READINGS, 30.0)
        assert reply is not None
        assert reply.result == 1


def test_over_wss_the_broker_is_checked(broker, tmp_path):
    with Cloud(broker.url), linked(broker.wss, ca=broker.ca) as link:
        assert link.ask(READINGS, 30.0) is not None
    with linked(broker.wss, ca=Authority(tmp_path, "another").ca) as link:
        assert not link.is_connected
        assert "certificate verify failed" in link.trouble


@pytest.mark.parametrize("listener", ["ws", "wss"])
def test_a_client_of_the_cloud_goes_over_a_websocket_too(broker, listener):
    url, ca = getattr(broker, listener), broker.ca if listener == "wss" else None
    client = Client(ClientConfig(address=parse_address(url, ca=ca), topics=["t"]))
    client.open(30.0)
    sizes = (0, 1, 125, 126, 5_000, 70_000)  # of which mosquitto reads 4 KB in a tenth of a second
    sent = [random.Random(n).randbytes(n) for n in sizes]
    for payload in sent:
        assert client.publish("t", payload, qos=1)
    heard: list[bytes] = []

    def has_heard_all():
        for token, message in client.receive(0.2):
            heard.append(message.payload)
            client.acknowledge(token)
        return len(heard) == len(sent)

    until(has_heard_all)
    client.close()
    assert heard == sent


def test_a_client_of_the_cloud_does_not_wait_for_a_handshake_without_an_end():
    server = Hostile(answers=False, flood=b"X-Header: 1\r\n" * 1000)
    config = ClientConfig(address=parse_address(server.url), topics=["t"], connect_timeout_s=30.0)
    with pytest.raises(LinkError, match="the answer to the WebSocket handshake has no end"):
        Client(config).open(60.0)


@pytest.mark.parametrize(
    "accept", [b"", b"Sec-WebSocket-Accept: " + base64.b64encode(bytes(20))], ids=["none", "wrong"]
)
@pytest.mark.parametrize("first", [b"HTTP/1.1 101 x", b"HTTP/1.1 400 x"])
def test_an_answer_that_is_not_for_this_handshake_is_refused(accept, first):
    lines = [first, b"Connection: Upgrade", b"Upgrade: websocket", accept]
    server = Hostile(answers=False, flood=b"\r\n".join([line for line in lines if line]) + b"\r\n\r\n")
    with linked(server.url) as link:
        assert not link.is_connected
        assert f"WebSocket handshake error: the server answers {first!r}" in link.trouble


@pytest.mark.parametrize("scheme", ["mqtts", "wss", "ws", "ws, byte by byte"])
def test_a_handshake_ends_in_time_and_its_socket_is_closed(scheme):
    is_closed = threading.Event()

    def talk(peer: socket.socket) -> None:
        peer.settimeout(0.05)
        data = b"more"
        with suppress(OSError):
            while data:
                with suppress(TimeoutError):
                    data = peer.recv(4096)
                peer.sendall(b"x" * scheme.endswith("byte"))
        is_closed.set()

    with Server(talk) as server:
        began = monotonic()
        url = f"{scheme.split(',')[0]}://localhost:{server.port}"
        with linked(url, connect_timeout_s=0.5, retry_first_s=60.0) as link:
            assert is_closed.wait(30.0)
            assert 0.4 < monotonic() - began < 30.0
            until(lambda: "cannot be reached" in link.trouble)


def test_a_server_that_speaks_no_websocket_is_told(broker):
    with linked(broker.url.replace("mqtt://", "ws://")) as link:
        assert not link.is_connected
        assert "WebSocket handshake error" in link.trouble


class Hostile:
    """A server that sends a device bytes without an end, after the answer to its handshake or in its place."""

    def __init__(self, *, answers: bool, flood: bytes) -> None:
        self.sent = 0
        self._answers, self._flood = answers, flood
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"ws://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        peer, _ = self._server.accept()
        with self._server, peer, suppress(OSError):  # the device hangs up
            self._talk(peer)

    def _talk(self, peer: socket.socket) -> None:
        head = peer.recv(65_536)
        if self._answers:
            key = re.search(rb"Sec-WebSocket-Key: (\S+)", head)[1]
            accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
            lines = [b"HTTP/1.1 101 x", b"Connection: Upgrade", b"Sec-WebSocket-Accept: " + accept, b"", b""]
            peer.sendall(b"\r\n".join(lines) + b"\x82\x7f" + (1 << 40).to_bytes(8, "big"))
        while self.sent < 1 << 25:
            self.sent += peer.send(self._flood)


@pytest.mark.parametrize(
    ("answers", "flood"),
    [(False, b"X-Header: 1\r\n" * 1000), (False, b"x" * 16_384), (True, b"\xd0\x00" * 8_192)],
    ids=["headers", "a header", "a frame of 1 TB that holds answers to pings"],
)
def test_what_has_no_end_is_not_kept(answers, flood):
    server = Hostile(answers=answers, flood=flood)
    with linked(server.url, wait_s=3.0, connect_timeout_s=120.0, max_packet_bytes=8_192):
        until(lambda: server.sent and server._server.fileno() == -1)  # before it gives up for want of an answer
    assert server.sent < 1 << 24, "the device hangs up after at most a few buffers"


def frame(first: int, payload: bytes, mask: int = 0) -> bytes:
    """A server's frame, unmasked as they are."""
    n = len(payload)
    short, form = (n, "B") if n < 126 else (126, "BH") if n < 1 << 16 else (127, "BQ")
    return struct.pack(f">B{form}", first, short | mask, *[n] * (short > 125)) + payload


def unmasked(data: bytes) -> tuple[int, bytes]:
    """Opcode and payload of a client's only frame."""
    size = {0xFE: 2, 0xFF: 8}.get(data[1], 0)
    n = int.from_bytes(data[2 : 2 + size]) if size else data[1] & 0x7F
    key, payload = data[2 + size : 6 + size], data[6 + size :]
    assert (data[0] & 0xF0, data[1] & 0x80, len(payload)) == (0x80, 0x80, n)
    return data[0] & 0xF, bytes(byte ^ key[k % 4] for k, byte in enumerate(payload))


@pytest.mark.parametrize("n", [0, 1, 3, 4, 125, 126, 127, 65_535, 65_536, 70_001])
def test_what_is_sent_is_a_masked_frame(n):
    data = random.Random(n).randbytes(n)
    assert unmasked(Frames(65_536).wrap(data)) == (0x2, data)
    assert Frames(65_536).wrap(bytes(8)) != Frames(65_536).wrap(bytes(8)), "its mask is drawn"


@pytest.mark.parametrize("seed", range(20))
def test_frames_cut_anywhere_carry_every_byte_in_order_and_pings_are_answered(seed):
    chance = random.Random(seed)
    stream, sent, pings = b"", b"", []
    for _ in range(60):
        kind = chance.choice((0x82, 0x02, 0x80, 0x00, 0x89, 0x8A))
        payload = chance.randbytes(
            chance.choice((0, 1, 7, 125)) if kind & 8 else chance.choice((0, 5, 125, 126, 70_000))
        )
        stream += frame(kind, payload)
        sent += payload if not kind & 8 else b""
        pings += [payload] if kind == 0x89 else []
    frames, heard, answers = Frames(65_536), b"", []
    while stream:
        n = chance.choice((1, 2, 3, 50, 5_000, 200_000))
        carried, answer = frames.feed(stream[:n])
        heard += carried
        answers += [unmasked(answer)] if answer else []
        stream = stream[n:]
    assert heard == sent
    assert {kind for kind, _ in answers} <= {0xA}
    told = iter(pings)
    assert all(payload in told for _, payload in answers), "the last of those that came at once, in order"
    assert not pings or answers[-1][1] == pings[-1]


def test_a_goodbye_is_answered_by_one_and_what_came_before_it_is_heard():
    carried, answer = Frames(1_000).feed(frame(0x82, b"\xe0\x02\x8e\x00") + frame(0x88, b"\x03\xe8"))
    assert carried == b"\xe0\x02\x8e\x00"
    assert unmasked(answer) == (0x8, b"\x03\xe8")


@pytest.mark.parametrize(
    "data",
    [
        frame(0x82, bytes(FRAMES * 1_000 + 1)), b"\x82\x7f" + bytes([0xFF] * 8), frame(0x82, b"x", mask=0x80),
        frame(0x81, b"text"), frame(0xC2, b"x"), frame(0x83, b"x"), frame(0x8B, b""), frame(0x89, bytes(126)),
        frame(0x09, b"half a ping"),
    ],
    ids=["long", "longest", "masked", "text", "compressed", "kind 3", "kind 11", "a long ping", "half a ping"],
)  # fmt: skip
def test_a_frame_that_no_server_of_mqtt_sends_ends_the_connection(data):
    for n in (1, 7, len(data)):
        with pytest.raises(ConnectionAbortedError, match="a WebSocket frame of kind"):
            fed(Frames(1_000), data, n)


def fed(frames: Frames, data: bytes, n: int) -> bytes:
    return b"".join([frames.feed(data[k : k + n])[0] for k in range(0, len(data), n)])


def test_random_bytes_are_frames_or_an_error_and_keep_little():
    chance = random.Random(7)
    for _ in range(3_000):
        frames = Frames(1_000)
        with suppress(ConnectionAbortedError):
            for _ in range(20):
                data = chance.randbytes(chance.randrange(1, 60))
                carried, answer = frames.feed(data)
                assert (len(carried) <= len(data), len(answer) <= 131, len(frames._rest) <= 135) == (True,) * 3


def test_the_address_of_a_websocket_has_a_path():
    for url, told in [
        ("ws://h", "ws://h:80/mqtt"),
        ("wss://h/", "wss://h:443/mqtt"),
        ("wss://u:p@h:8443/a/b-1", "wss://h:8443/a/b-1"),
        ("ws://[::1]:7/ws", "ws://[::1]:7/ws"),
    ]:
        assert parse_address(url, environment={}).url == told
    assert parse_address("wss://h", environment={}).is_tls
    for url in ("ws://h/a?b", "ws://h/a#b", "ws://h/a b", "ws://h/\u00e9", "ws://h/" + "a" * 300, "wss://h:0"):
        with pytest.raises(InputError, match="use mqtt://host:port"):
            parse_address(url, environment={})
    with pytest.raises(InputError, match="is not encrypted; use mqtts:// or wss://"):
        parse_address("ws://h", ca="x.pem")
