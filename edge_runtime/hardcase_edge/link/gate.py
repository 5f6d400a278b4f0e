# SPDX-License-Identifier: Apache-2.0
"""The socket of one attempt to connect, between a network that is not trusted and an MQTT client that trusts it.

    client.tls_set_context(gate)    it then wraps the client's socket: TLS, a WebSocket, neither or both
    gate.may_read = True            once in each turn, so that writing has its own
    client.loop(1.0)                takes whole packets, through ``recv``

A packet that is too long ends the connection before it is read, as does one of QoS 2, which nobody subscribes to, and
a broker that does not take the acknowledgements of more messages than MQTT has ids: paho-mqtt reads up to 256 MB if a
packet claims that length, and keeps what is of QoS 2 or is not taken.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import WireError
from ..framing.packets import Reader, packet

if TYPE_CHECKING:
    from ..framing.websocket import Frames
    from .address import Address

READ_AHEAD = 65_536  # bytes read at once
PUBLISH, PUBACK, QOS_1, QOS_2 = 0x30, 0x40, 0b010, 0b100  # in the first byte of a packet
MAX_OWED = 65_535  # messages that await our acknowledgement; there are no more ids


class Gate:
    """A socket in the eyes of its client, and the context that makes it; what is not here is as the socket below.

    Parameters
    ----------
    tls : the settings of an address with TLS
    timeout_s : for each handshake
    max_packet_bytes : a longer packet ends the connection

    Attributes
    ----------
    may_read : bool
        Whether ``recv`` may read from the socket, once.
    trouble : str
        What the network sent that ends the connection, in one line; empty if something else ends it.
    """

    check_hostname = True  # by ``tls``, so that its client need not

    def __init__(self, address: Address, tls: ssl.SSLContext | None, timeout_s: float, max_packet_bytes: int) -> None:
        self._sock: Any = None
        self._address, self._tls, self._timeout_s, self._max_bytes = address, tls, timeout_s, max_packet_bytes
        self._reader = Reader(max_packet_bytes)
        self._frames: Frames | None = None
        self._whole, self._next = b"", 0  # packets that are handed over, and the place of the next byte in them
        self._unsent, self._is_sending = bytearray(), False  # whether a ``send`` waits until all of it is gone
        self._is_over = self.may_read = False
        self._owed = 0  # acknowledgements that the broker has not taken
        self.trouble = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def wrap_socket(self, sock: socket.socket, **_: Any) -> Gate:
        """The gate itself, around this socket, which is connected."""
        self._sock = sock
        return self

    def do_handshake(self) -> None:
        """Those of TLS and of a WebSocket, where the address says so; the socket is closed if one fails."""
        try:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a request waits 44 ms for an ACK
            if self._tls is not None:
                self._sock = self._tls.wrap_socket(self._sock, server_hostname=self._address.host)
            if self._address.path:
                from ..framing.websocket import open_websocket

                self._frames = open_websocket(self._sock, self._address.url, self._timeout_s, self._max_bytes)
        except BaseException:
            self._sock.close()
            raise

    @property
    def has_more(self) -> bool:
        """Whether ``recv`` has something to say without a look at the socket."""
        return self._next < len(self._whole) or self._is_over

    def pending(self) -> int:
        """As of a socket with TLS: whether there is something to read that the socket below does not show."""
        return self.has_more or (self._tls is not None and self._sock.pending())

    def recv(self, size: int) -> bytes:
        """As a socket's, of what is handed over."""
        if self.may_read and not self.has_more:
            self.may_read = False
            self._read()
        part = self._whole[self._next : self._next + size]
        self._next += len(part)
        if not part and not self._is_over:
            raise BlockingIOError
        return part

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_AHEAD)
            self._is_over = not data
            if self._frames is not None:
                data, answer = self._frames.feed(data)
                self._unsent += b"" if self._unsent else answer  # one ping more or less, where the broker does not read
                self._flush()
            packets = self._reader.feed(data)
            messages = [first for first, _ in packets if first & 0xF0 == PUBLISH]
            if any(first & QOS_2 for first in messages):
                raise WireError("malformed", "a message of QoS 2, which nobody subscribes to")
            self._owed += sum(first & QOS_1 > 0 for first in messages)
            if self._owed > MAX_OWED:
                raise WireError("oversized", "the broker sends, and takes no acknowledgement")
            self._whole, self._next = b"".join([packet(*one) for one in packets]), 0
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except (OSError, WireError) as error:
            self._is_over = True
            if isinstance(error, (ConnectionAbortedError, WireError)):
                self.trouble = str(error)

    def send(self, data: bytes) -> int:
        """As a socket's; all of it or, until all is sent, nothing, and then the same data are to be sent again."""
        if not self._is_sending:
            self._unsent += data if self._frames is None else self._frames.wrap(data)
            self._is_sending = True
        self._flush()
        if self._unsent:
            raise BlockingIOError
        self._is_sending = False
        self._owed -= data[0] & 0xF0 == PUBACK
        return len(data)

    def _flush(self) -> None:
        """Send what the broker takes now; that a connection is lost the next read tells."""
        with suppress(OSError):
            while self._unsent:
                del self._unsent[: self._sock.send(self._unsent)]
