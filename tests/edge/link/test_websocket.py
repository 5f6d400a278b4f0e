# SPDX-License-Identifier: Apache-2.0
"""MQTT over WebSockets: a broker's listener serves a device as any other, and a hostile server cannot fill a device."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import threading
from contextlib import suppress

import pytest

from hardcase_edge.errors import InputError
from hardcase_edge.link.address import parse_address
from tests.edge.link.test_link import PROTOCOLS, READINGS, linked
from tests.helpers.cloud.brokers import free_port, running_mosquitto, until
from tests.helpers.cloud.certificates import Authority
from tests.helpers.edge.device import Cloud


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
        yield running


@PROTOCOLS
def test_a_question_over_a_websocket_is_answered(broker, protocol):
    with Cloud(broker.url), linked(broker.ws, protocol=protocol) as link:
        reply = link.ask(READINGS, 5.0)
        assert reply is not None
        assert reply.result == 1


def test_over_wss_the_broker_is_checked(broker, tmp_path):
    with Cloud(broker.url), linked(broker.wss, ca=broker.ca) as link:
        assert link.ask(READINGS, 5.0) is not None
    with linked(broker.wss, ca=Authority(tmp_path, "another").ca) as link:
        assert not link.is_connected
        assert "certificate verify failed" in link.trouble


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
    with linked(server.url, wait_s=3.0, max_packet_bytes=8_192):
        until(lambda: server.sent and server._server.fileno() == -1, 5.0)  # before it gives up for want of an answer
    assert server.sent < 1 << 24, "the device hangs up after at most a few buffers"


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
