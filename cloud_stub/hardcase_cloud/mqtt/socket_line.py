# SPDX-License-Identifier: Apache-2.0
"""One connection to a broker as a socket that never blocks: bytes in, bytes out, and a wait for either.

It is for one thread that has much to do with one broker. ``open_line`` connects, with TLS and over a WebSocket where
the address says so; from then on ``receive`` returns the bytes that are here, and ``send`` keeps what the broker does
not take at once, up to a limit.
"""

from __future__ import annotations

import select
import socket
import ssl
from typing import TYPE_CHECKING, Any

from hardcase_edge.link.address import Address, tls_context

if TYPE_CHECKING:
    from hardcase_edge.framing.websocket import Frames

READ_BYTES = 65_536  # larger ones would be mapped and unmapped for each read
READABLE = select.POLLIN | select.POLLHUP | select.POLLERR
MAX_UNSENT_BYTES = 4 * 1024 * 1024  # that the broker has not taken


class Line:
    """An open connection.

    Parameters
    ----------
    sock : connected, after every handshake; this object owns it
    frames : those of a WebSocket, if it is one
    """

    def __init__(self, sock: Any, frames: Frames | None = None) -> None:
        self._sock, self._frames = sock, frames
        self._sock.setblocking(False)
        self._unsent = bytearray()
        self._poll = select.poll()
        self._poll.register(sock, READABLE)

    @property
    def has_room(self) -> bool:
        """Whether ``send`` takes more; otherwise the broker does not read."""
        return len(self._unsent) < MAX_UNSENT_BYTES

    def send(self, data: bytes) -> None:
        """Send these bytes, now or as soon as the broker takes them."""
        self._unsent += data if self._frames is None else self._frames.wrap(data)

    def flush(self) -> bool:
        """Give the broker what it takes now; returns whether that was all.

        Raises
        ------
        OSError
            The connection is lost.
        """
        while self._unsent:
            try:
                n = self._sock.send(self._unsent)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return False
            del self._unsent[:n]
        return True

    def receive(self, wait_s: float) -> bytes:
        """The bytes that come within these seconds, as soon as there is one; none if none comes.

        Raises
        ------
        OSError
            The connection is lost.
        """
        self.flush()
        if not (self.is_ready or self.wait(wait_s)):
            self.flush()
            return b""
        try:
            data: bytes = self._sock.recv(READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""
        if not data:
            raise ConnectionError("the broker hung up")
        if self._frames is not None:
            data, answer = self._frames.feed(data)
            self._unsent += answer
        return data

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def wait(self, wait_s: float) -> bool:
        """Wait until the socket has something to read, or takes more of what is left; whether it has."""
        self._poll.modify(self._sock, READABLE | (select.POLLOUT if self._unsent else 0))
        events = self._poll.poll(max(0.0, wait_s) * 1000)
        return any(event & ~select.POLLOUT for _, event in events)

    @property
    def is_ready(self) -> bool:
        """Whether TLS has bytes that the socket has not."""
        pending = getattr(self._sock, "pending", None)
        return pending is not None and bool(pending())


def open_line(address: Address, timeout_s: float, max_packet_bytes: int, tls: ssl.SSLContext | None = None) -> Line:
    """Connect to an address; ``tls``: its settings, if they are there already.

    Raises
    ------
    OSError
        The broker cannot be reached, or is not the one that the certificate is for.
    InputError
        A certificate or key cannot be used.
    """
    tls = tls or tls_context(address)
    sock: Any = socket.create_connection((address.host, address.port), timeout_s)
    frames = None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # otherwise a reply waits 44 ms for an earlier ACK
        if tls is not None:
            sock = tls.wrap_socket(sock, server_hostname=address.host)
        if address.path:
            from hardcase_edge.framing.websocket import open_websocket

            frames = open_websocket(sock, address.url, timeout_s, max_packet_bytes)
    except BaseException:
        sock.close()
        raise
    return Line(sock, frames)
