# SPDX-License-Identifier: Apache-2.0
"""MQTT over WebSockets, for networks that let nothing but HTTP through: paho's wrapper of a socket, with bounds.

paho alone reads the answer to the handshake without an end, and keeps a frame in memory until it is whole.
"""

from __future__ import annotations

import socket
from time import monotonic
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho

from .address import Address

if TYPE_CHECKING:
    import ssl

__all__ = ["open_websocket"]

MAX_ANSWER_BYTES = 16_384  # of the HTTP answer that ends the handshake
FRAMES = 4  # a frame may hold so many of the largest packets


def open_websocket(
    sock: socket.socket | ssl.SSLSocket, address: Address, timeout_s: float, max_packet_bytes: int
) -> Any:
    """The socket of a WebSocket, after its handshake.

    Raises
    ------
    ConnectionError
        The server does not speak WebSocket there, or its answer has no end.
    """
    try:
        return _Websocket(sock, address, timeout_s, FRAMES * max_packet_bytes)
    except BaseException:
        sock.close()
        raise


class _Websocket(paho._WebsocketWrapper):
    def __init__(self, sock: Any, address: Address, timeout_s: float, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        answer = _Answer(sock, timeout_s)
        host = f"[{address.host}]" if ":" in address.host else address.host
        super().__init__(answer, host, address.port, address.is_tls, address.path, None)  # type: ignore[arg-type]
        self._socket = sock

    def _buffered_read(self, length: int) -> bytearray:
        if self._readbuffer_head + length > self._max_frame_bytes:
            raise ConnectionAbortedError
        return super()._buffered_read(length)

    def setsockopt(self, *option: Any) -> None:
        """As a socket's."""
        self._socket.setsockopt(*option)


class _Answer:
    """A socket during the handshake: it gives so many bytes within so much time."""

    def __init__(self, sock: Any, timeout_s: float) -> None:
        self._sock, self._until, self._n_left = sock, monotonic() + timeout_s, MAX_ANSWER_BYTES

    def send(self, data: bytes) -> int:
        self._sock.settimeout(max(0.01, self._until - monotonic()))
        self._sock.sendall(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        self._n_left -= size
        left_s = self._until - monotonic()
        if self._n_left < 0 or left_s <= 0:
            raise ConnectionError("the answer to the WebSocket handshake has no end")
        self._sock.settimeout(left_s)
        data: bytes = self._sock.recv(size)
        return data
