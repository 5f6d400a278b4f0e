# SPDX-License-Identifier: Apache-2.0
"""MQTT over WebSockets (RFC 6455), for networks that let nothing but HTTP through: a client's handshake and frames.

The answer to the handshake is bounded in bytes and time. ``Frames`` has no socket; it passes on what a frame carries as
it comes, answers a ping, and refuses a frame that is longer than allowed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic
from typing import Any

MAX_ANSWER_BYTES = 16_384  # of the HTTP answer that ends the handshake
MAX_CONTROL_BYTES = 125
FRAMES = 4  # a frame may hold so many of the largest packets
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION, BINARY, CLOSE, PING, PONG = 0x0, 0x2, 0x8, 0x9, 0xA
LAST, MASKED = 0x80, 0x80  # bits of a frame's first and second byte
SIZES = {126: 2, 127: 8}  # bytes of a length that does not fit into the second byte


class Frames:
    """What a WebSocket carries, both ways.

    Parameters
    ----------
    max_packet_bytes : of MQTT; a frame may hold a few
    """

    def __init__(self, max_packet_bytes: int) -> None:
        self._max = FRAMES * max_packet_bytes
        self._rest = b""  # a head or an answerable frame that is cut
        self._left = 0  # bytes that are to come of the present frame

    def wrap(self, data: bytes, opcode: int = BINARY) -> bytes:
        """A frame around these bytes, masked as a client's are."""
        n, key = len(data), os.urandom(4)
        size = bytes((min(n, 127) | MASKED,))
        if n > MAX_CONTROL_BYTES:
            size = b"\xfe" + n.to_bytes(2) if n < 1 << 16 else b"\xff" + n.to_bytes(8)  # 126 and 127 say it, masked
        mask = (key * (n // 4 + 1))[:n]
        return bytes((opcode | LAST,)) + size + key + (int.from_bytes(data) ^ int.from_bytes(mask)).to_bytes(n)

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """What has come in frames, and what to send back: the answer to the last ping, or to a goodbye.

        Raises
        ------
        ConnectionError
            A frame is longer than allowed, or is none that a server may send.
        """
        data, at = self._rest + data, 0
        carried, answer = [], b""
        while True:
            carried.append(data[at : at + self._left])
            at += len(carried[-1])
            self._left -= len(carried[-1])
            if self._left or len(data) - at < 2:
                break
            first, n = data[at], data[at + 1]
            start = at + 2 + SIZES.get(n, 0)
            if len(data) < start:
                break
            if n in SIZES:
                n = int.from_bytes(data[at + 2 : start])
            opcode = first & ~LAST
            is_data = opcode in (CONTINUATION, BINARY)
            is_control = opcode in (CLOSE, PING, PONG) and first & LAST and n <= MAX_CONTROL_BYTES
            if n > self._max or data[at + 1] & MASKED or not (is_data or is_control):
                raise ConnectionAbortedError(f"a WebSocket frame of kind {first:#x} and {n} bytes")
            if is_data:
                at, self._left = start, n
            elif len(data) < start + n:
                break
            else:
                if opcode != PONG:
                    answer = self.wrap(data[start : start + n], PONG if opcode == PING else CLOSE)
                at = start + n
        self._rest = data[at:]
        return b"".join(carried), answer


def open_websocket(sock: Any, url: str, timeout_s: float, max_packet_bytes: int) -> Frames:
    """The frames of a WebSocket, after its handshake over a socket that is connected to the server of ``url``.

    Raises
    ------
    OSError
        The server does not speak WebSocket there, or its answer has no end.
    """
    from base64 import b64encode
    from hashlib import sha1

    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    host = host.removesuffix(":443" if scheme == "wss" else ":80")
    key = b64encode(os.urandom(16))
    hello = (
        f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Origin: {scheme.replace('ws', 'http')}://{host}\r\nSec-WebSocket-Key: {key.decode()}\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    until, answer = monotonic() + timeout_s, b""
    sock.settimeout(timeout_s)
    sock.sendall(hello.encode())
    while not answer.endswith(b"\r\n\r\n"):
        left_s = until - monotonic()
        if len(answer) == MAX_ANSWER_BYTES or left_s <= 0:
            raise ConnectionError("the answer to the WebSocket handshake has no end")
        sock.settimeout(left_s)
        byte = b""
        with suppress(ConnectionResetError):
            byte = sock.recv(1)  # and none of the frames behind it
        if not byte:
            break
        answer += byte
    lines = [line.partition(b":") for line in answer.split(b"\r\n")]
    headers = {name.strip().lower(): value.strip() for name, _, value in lines}
    accept = b64encode(sha1(key + GUID, usedforsecurity=False).digest())
    is_upgraded = b"upgrade" in headers.get(b"connection", b"").lower() and lines[0][0].split()[1:2] == [b"101"]
    if not is_upgraded or headers.get(b"sec-websocket-accept") != accept:
        raise ConnectionError(f"WebSocket handshake error: the server answers {lines[0][0][:80]!r}")
    return Frames(max_packet_bytes)
