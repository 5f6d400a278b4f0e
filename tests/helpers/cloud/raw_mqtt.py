# SPDX-License-Identifier: Apache-2.0
"""MQTT 3.1.1 by hand: clients that may send what no library would, and faster than one; they read as the cloud does."""

from __future__ import annotations

import socket
import ssl
import struct
from collections import deque
from collections.abc import Iterator

from hardcase_cloud.mqtt import packets
from hardcase_edge.framing.packets import Reader

PINGRESP = 0xD0
MAX_PACKET_BYTES = 1 << 28  # of MQTT


def text(value: str) -> bytes:
    """MQTT's string: two bytes of length, then UTF-8."""
    data = value.encode()
    return struct.pack(">H", len(data)) + data


def connect(
    client_id: str, user: str = "", password: str = "", *, clean: bool = True, will: tuple[str, bytes] | None = None
) -> bytes:
    """A CONNECT without a keep-alive; a will, if any, is retained."""
    return packets.connect(client_id, packets.V311, keepalive_s=0, clean=clean, user=user, password=password, will=will)


def publish(topic: str, payload: bytes, *, qos: int = 0, retain: bool = False, packet_id: int = 1) -> bytes:
    """A PUBLISH."""
    return packets.publish(topic, payload, packet_id if qos else 0, packets.V311, retain=retain)


def subscribe(*topics: str, qos: int = 0) -> bytes:
    """A SUBSCRIBE; at QoS 0 nothing has to be acknowledged."""
    return packets.packet(0x82, b"\0\1" + b"".join(text(topic) + bytes((qos,)) for topic in topics))


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
        self._reader, self._unread = Reader(MAX_PACKET_BYTES), deque[tuple[int, bytes]]()
        self._line = socket.create_connection(("127.0.0.1", port), timeout=10)
        try:
            if tls is not None:
                self._line = tls.wrap_socket(self._line, server_hostname="127.0.0.1")
            self._line.sendall(hello)
            answer = self._next()
        except ssl.SSLError:
            self._line.close()
            raise
        self.is_connected = answer is not None and answer[0] == packets.CONNACK and answer[1][1] == 0

    def send(self, *parts: bytes) -> None:
        """Send packets in one write."""
        self._line.sendall(b"".join(parts))

    def settle(self) -> bool:
        """Wait until the broker has taken all that was sent; False if it has closed the connection."""
        try:
            self.send(packets.PINGREQ)
        except OSError:
            return False
        return any(first == PINGRESP for first, _ in self._packets())

    def wait_for(self, payload: bytes, count: int = 1) -> None:
        """Read until so many messages with this payload have been heard."""
        more = self._packets()
        while sum(p == payload for _, p in self.heard) < count:
            assert next(more, None) is not None, "the broker has closed the connection"

    def close(self) -> None:
        """Hang up without a DISCONNECT, so that a will is sent."""
        self._line.close()

    def _packets(self) -> Iterator[tuple[int, bytes]]:
        while (one := self._next()) is not None:
            if one[0] & 0xF0 == packets.PUBLISH:
                message = packets.read_publish(*one, packets.V311)
                self.heard.append((message.topic, message.payload))
            yield one

    def _next(self) -> tuple[int, bytes] | None:
        """First byte and body of the next packet; None at the connection's end."""
        try:
            while not self._unread:
                more = self._line.recv(65_536)
                if not more:
                    return None
                self._unread.extend(self._reader.feed(more))
        except ConnectionError:
            return None
        return self._unread.popleft()
