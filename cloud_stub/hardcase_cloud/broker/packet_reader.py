# SPDX-License-Identifier: Apache-2.0
"""Reads one client's MQTT packets for amqtt: whole, of bounded length, the first a CONNECT that comes in time.

amqtt itself reads packets of any length, waits for ever for the first one, and misreads an MQTT 5 CONNECT. It still
parses all other packets: on loopback every process may act as any device or as the worker, and a malformed packet
closes only the connection that sent it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from amqtt.adapters import ReaderAdapter

from hardcase_edge.program.readings import MAX_REQUEST_BYTES

log = logging.getLogger(__name__)

MAX_PACKET_BYTES = MAX_REQUEST_BYTES + 1024  # the largest request, its topic and header
CONNECT_TIMEOUT_S = 10.0  # a connection that sends nothing is closed
BUSY_POLL_S = 0.01
FAREWELL_S = 0.01  # amqtt waits for ever if a client ends before amqtt begins to wait for its end
CONNECT, PUBLISH = 0x10, 0x30  # first bytes; a PUBLISH has flags in its lower four bits
SUBSCRIBE, UNSUBSCRIBE = 0x82, 0xA2
MAX_SUBSCRIBES = 16  # packets of either kind in a connection; hardcase's clients send one of each
CLEAN = 2  # a flag of CONNECT
PROTOCOL = b"\0\4MQTT"  # in a CONNECT, between its length, which ends within 5 bytes, and the level


class PacketError(Exception):
    """No hardcase client sends these bytes; close the connection."""


class PacketReader(ReaderAdapter):  # type: ignore[misc]  # amqtt ships no types
    """The packets of one client.

    Parameters
    ----------
    reader : the connection's bytes
    is_busy : whether so many messages are in flight that this client, whose ``session`` it is given, has to wait

    Attributes
    ----------
    client_id, is_clean : str and bool
        The client's name, which may be empty, and whether it wants no session kept; after ``connect``.
    session : amqtt's session of this client, once it has one
    """

    def __init__(self, reader: asyncio.StreamReader, is_busy: Callable[[Any], bool] = lambda session: False) -> None:
        self._reader = reader
        self._is_busy = is_busy
        self._is_closed = False
        self._head = bytearray()  # stays when amqtt's keep-alive timer cancels a read
        self._packet = memoryview(b"")
        self._n_subscribes = 0
        self.client_id, self.is_clean, self.session = "", False, None

    async def connect(self) -> int:
        """Read the first packet and return its protocol level: 4 is MQTT 3.1.1, 5 is MQTT 5.

        Raises
        ------
        PacketError, TimeoutError, EOFError, OSError
            The packet is too long or not a CONNECT, or none comes in time.
        """
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            self._head += await self._reader.readexactly(1)
            if self._head[0] != CONNECT:
                raise PacketError(f"the first packet begins with {self._head[0]:#04x}, not with a CONNECT's")
            packet = await self._next_packet()
        if PROTOCOL not in packet[:11]:
            raise PacketError("the first packet does not name MQTT as its protocol")
        body = packet[packet.index(PROTOCOL) + len(PROTOCOL) :]  # level, flags, keep-alive, id
        if len(body) < 6:
            raise PacketError("the first packet ends before the client's id")
        self.is_clean = bool(body[1] & CLEAN)
        self.client_id = body[6 : 6 + int.from_bytes(body[4:6], "big")].decode(errors="replace")
        self._packet = memoryview(packet)
        return body[0]

    async def read(self, n: int = -1) -> bytes:
        """Up to ``n`` bytes of the current packet; ``IncompleteReadError`` at its end or the connection's."""
        if not self._packet:
            await self._admit_packet(n)
        if n > len(self._packet):  # a length field in the packet reaches beyond its end
            self._packet = memoryview(b"")
            raise asyncio.IncompleteReadError(b"", n)
        part = bytes(self._packet[:n] if n >= 0 else self._packet)
        self._packet = self._packet[len(part) :]
        return part

    def feed_eof(self) -> None:
        """Read no more."""
        self._is_closed = True

    async def _admit_packet(self, n: int) -> None:
        try:
            if self._is_closed:
                raise PacketError("the connection is closed already")
            self._packet = memoryview(await self._next_packet())
        except (PacketError, EOFError) as error:
            log.debug("a connection ends: %s", error)
            self._is_closed = True
            await asyncio.sleep(FAREWELL_S)
            raise asyncio.IncompleteReadError(b"", n) from error
        if self._packet[0] & 0xF0 == PUBLISH:
            await asyncio.sleep(0)  # amqtt handles the message before this one, which is then counted
            while self._is_busy(self.session):
                await asyncio.sleep(BUSY_POLL_S)

    async def _next_packet(self) -> bytes:
        """All bytes of the next packet."""
        head = self._head
        while len(head) < 2 or head[-1] & 0x80:
            head += await self._reader.readexactly(1)
            if len(head) == 5 and head[-1] & 0x80:
                raise PacketError("the packet's length takes more than four bytes")
        length = sum((byte & 0x7F) << (7 * k) for k, byte in enumerate(head[1:]))
        if length > MAX_PACKET_BYTES:
            raise PacketError(f"a packet has {length} bytes, at most {MAX_PACKET_BYTES} are allowed")
        packet = bytes(head) + await self._reader.readexactly(length)
        head.clear()
        self._n_subscribes += packet[0] in (SUBSCRIBE, UNSUBSCRIBE)
        if self._n_subscribes > MAX_SUBSCRIBES:
            raise PacketError(f"the connection has sent more than {MAX_SUBSCRIBES} subscriptions")
        return packet
