# SPDX-License-Identifier: Apache-2.0
"""MQTT 3.1.1 by hand: clients that may send what no library would, and faster than one."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator

__all__ = ["Raw", "connect", "packet", "publish", "subscribe", "text"]

PING, CONNACK, PUBLISH, PINGRESP = b"\xc0\0", 0x20, 0x30, 0xD0


def text(value: str) -> bytes:
    """MQTT's string: two bytes of length, then UTF-8."""
    data = value.encode()
    return struct.pack(">H", len(data)) + data


def packet(first: int, body: bytes) -> bytes:
    """A packet, with the length of its body in one to four bytes."""
    length, head = len(body), bytearray([first])
    while True:
        length, low = divmod(length, 128)
        head.append(low | (0x80 if length else 0))
        if not length:
            return bytes(head) + body


def connect(
    client_id: str, user: str = "", password: str = "", *, clean: bool = True, will: tuple[str, bytes] | None = None
) -> bytes:
    """A CONNECT without a keep-alive; a will, if any, is retained."""
    flags = 2 * clean | (0xC0 if user else 0) | (0x24 if will else 0)
    last = b"" if will is None else text(will[0]) + struct.pack(">H", len(will[1])) + will[1]
    secret = text(user) + text(password) if user else b""
    return packet(0x10, text("MQTT") + struct.pack(">BBH", 4, flags, 0) + text(client_id) + last + secret)


def publish(topic: str, payload: bytes, *, qos: int = 0, retain: bool = False, packet_id: int = 1) -> bytes:
    """A PUBLISH."""
    head = text(topic) + (struct.pack(">H", packet_id) if qos else b"")
    return packet(0x30 | qos << 1 | retain, head + payload)


def subscribe(*topics: str, qos: int = 0) -> bytes:
    """A SUBSCRIBE; at QoS 0 nothing has to be acknowledged."""
    return packet(0x82, b"\0\1" + b"".join(text(topic) + bytes((qos,)) for topic in topics))


class Raw:
    """One connection, which acknowledges nothing; ``heard`` keeps topic and payload of every message.

    Parameters
    ----------
    port : of a broker on loopback
    hello : the first packet, as of ``connect``
    tls : the settings of a broker with TLS
    """

    def __init__(self, port: int, hello: bytes, tls: ssl.SSLContext | None = None) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self._unread = b""
        self._line = socket.create_connection(("127.0.0.1", port), timeout=10)
        try:
            if tls is not None:
                self._line = tls.wrap_socket(self._line, server_hostname="127.0.0.1")
            self._line.sendall(hello)
            answer = self._next()
        except ssl.SSLError:
            self._line.close()
            raise
        self.is_connected = answer is not None and answer[0] == CONNACK and answer[1][1] == 0

    def send(self, *packets: bytes) -> None:
        """Send packets in one write."""
        self._line.sendall(b"".join(packets))

    def settle(self) -> bool:
        """Wait until the broker has taken all that was sent; False if it has closed the connection."""
        try:
            self.send(PING)
        except OSError:
            return False
        return any(first == PINGRESP for first, _ in self._packets())

    def wait_for(self, payload: bytes, count: int = 1) -> None:
        """Read until so many messages with this payload have been heard."""
        packets = self._packets()
        while sum(p == payload for _, p in self.heard) < count:
            assert next(packets, None) is not None, "the broker has closed the connection"

    def close(self) -> None:
        """Hang up without a DISCONNECT, so that a will is sent."""
        self._line.close()

    def _packets(self) -> Iterator[tuple[int, bytes]]:
        while (one := self._next()) is not None:
            if one[0] & 0xF0 == PUBLISH:
                end = 2 + int.from_bytes(one[1][:2], "big")
                has_id = one[0] & 6 != 0
                self.heard.append((one[1][2:end].decode(), one[1][end + 2 * has_id :]))
            yield one

    def _next(self) -> tuple[int, bytes] | None:
        """First byte and body of the next packet; None at the connection's end."""
        try:
            while True:
                n_head, length = 2, 0
                for k, byte in enumerate(self._unread[1:5]):
                    length |= (byte & 0x7F) << 7 * k
                    n_head = 2 + k
                    if not byte & 0x80:
                        break
                if len(self._unread) > 1 and len(self._unread) >= n_head + length:
                    one = self._unread[0], self._unread[n_head : n_head + length]
                    self._unread = self._unread[n_head + length :]
                    return one
                more = self._line.recv(65_536)
                if not more:
                    return None
                self._unread += more
        except ConnectionError:
            return None
