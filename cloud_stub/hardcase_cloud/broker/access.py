"""The embedded broker's door: reads whole packets of bounded length and lets in only what a client of ours sends.

amqtt reads a packet of any length, waits for ever for a first one, lets a client take over another's session before
it has shown a password, and forwards a will unasked. So nothing reaches it that has not passed here: who may come in
(``Door.admits``), then every PUBLISH and SUBSCRIBE (``Door.check``). Whatever breaks a rule closes its connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from amqtt.adapters import ReaderAdapter

from hardcase_edge.errors import WireError
from hardcase_edge.link.wire import device_of_topic, reply_topic, request_topic, status_topic
from hardcase_edge.program.readings import MAX_REQUEST_BYTES

from .packets import (
    BAD_VERSION,
    CONNECT,
    NOT_AUTHORISED,
    OTHERS,
    PUBLISH,
    SUBSCRIBE,
    Connect,
    PacketError,
    read_connect,
    read_publish,
    read_subscribe,
)
from .users import WORKER, Users, is_password

__all__ = ["MAX_PACKET_BYTES", "Door", "DoorReader", "RefusedError"]

log = logging.getLogger(__name__)

MAX_PACKET_BYTES = MAX_REQUEST_BYTES + 1024  # the largest request, its topic and header
CONNECT_TIMEOUT_S = 10.0  # a connection that says nothing is closed
BUSY_POLL_S = 0.01


class RefusedError(Exception):
    """A client that may not come in. ``code``: what its CONNACK says."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True)
class Door:
    """The rules. Without ``users`` anybody may be any device or the worker: for loopback only.

    With users, a user's name is its device id: it may publish that device's requests and status, and read its
    replies; the user ``worker`` may read all requests and statuses and write all replies.
    """

    users: Users | None = None
    max_packet_bytes: int = MAX_PACKET_BYTES

    async def admits(self, connect: Connect) -> str | None:
        """The user's name, None where no names are needed.

        Raises
        ------
        RefusedError
            Another protocol version, a wrong name or password, or a will on another's topic.
        """
        if connect.level != 4:
            raise RefusedError(BAD_VERSION, f"protocol level {connect.level}, this broker speaks MQTT 3.1.1 (4)")
        user = None
        if self.users is not None:
            if not await asyncio.to_thread(is_password, self.users, connect.user, connect.password):
                raise RefusedError(NOT_AUTHORISED, "a wrong name or password")
            user = connect.user
        if connect.will_topic is not None and (
            connect.will_qos == 2 or not self.may_publish(user, connect.will_topic, is_retained=True)
        ):
            raise RefusedError(NOT_AUTHORISED, f"a will on {connect.will_topic[:80]!r}")
        return user

    def check(self, user: str | None, first: int, body: bytes) -> None:
        """Look at a packet after the first: its first byte and its body.

        Raises
        ------
        PacketError
            It must not go through.
        """
        if first >> 4 == PUBLISH:
            publish = read_publish(first & 15, body)
            if publish.qos == 2 or not self.may_publish(user, publish.topic, is_retained=publish.is_retained):
                raise PacketError(f"a publish to {publish.topic[:80]!r} with QoS {publish.qos}")
        elif first not in OTHERS:
            raise PacketError(f"a packet that begins with {first:#04x}")
        elif first == SUBSCRIBE:
            for wanted in read_subscribe(body):
                if not self.may_subscribe(user, wanted):
                    raise PacketError(f"a subscription to {wanted[:80]!r}")

    def may_publish(self, user: str | None, topic: str, *, is_retained: bool) -> bool:
        """Whether this user may publish there; only a status may be retained."""
        device = _device(topic)
        if device is None:
            return False
        to = {request_topic(device): user != WORKER, reply_topic(device): user in (None, WORKER)}
        own = user in (None, device)
        if topic == status_topic(device):
            return own
        return not is_retained and to[topic] and (own or user == WORKER)

    def may_subscribe(self, user: str | None, wanted: str) -> bool:
        """Whether this user may read these topics. No ``$share``: amqtt would grant it and deliver nothing."""
        if wanted in (request_topic("+"), status_topic("+")):
            return user in (None, WORKER)
        device = _device(wanted)
        return device is not None and user in (None, WORKER, device)


def _device(topic: str) -> str | None:
    """The device in one of our topics, None in any other."""
    head, _, last = topic.rpartition("/")
    if last not in ("request", "reply", "status"):
        return None
    try:
        return device_of_topic(f"{head}/request")
    except WireError:
        return None


class DoorReader(ReaderAdapter):  # type: ignore[misc]  # amqtt ships no types
    """One client's bytes as amqtt reads them, after the door has looked at each packet."""

    def __init__(self, reader: asyncio.StreamReader, door: Door, is_busy: Callable[[], bool] = lambda: False) -> None:
        self._reader = reader
        self._door = door
        self._is_busy = is_busy
        self._is_closed = False
        self._user: str | None = None
        self._head = bytearray()  # kept when amqtt's keep-alive timer cancels a read
        self._packet = memoryview(b"")

    async def connect(self) -> None:
        """Read the first packet and decide whether its sender may come in.

        Raises
        ------
        RefusedError, PacketError, TimeoutError, EOFError, OSError
            It may not, or there is none.
        """
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            self._head += await self._reader.readexactly(1)
            if self._head[0] != CONNECT:
                raise PacketError(f"the first packet begins with {self._head[0]:#04x}, not with a CONNECT's")
            _, body, whole = await self._next_packet()
        self._user = await self._door.admits(read_connect(body))
        self._packet = memoryview(whole)

    async def read(self, n: int = -1) -> bytes:
        """Up to ``n`` bytes of the packet at hand; ``IncompleteReadError`` at its end or the connection's."""
        if not self._packet:
            await self._admit_packet(n)
        if n > len(self._packet):  # a length inside the packet reaches beyond it
            self._packet = memoryview(b"")
            raise asyncio.IncompleteReadError(b"", n)
        part = bytes(self._packet[:n] if n >= 0 else self._packet)
        self._packet = self._packet[len(part) :]
        return part

    def feed_eof(self) -> None:
        """Read no more."""
        self._is_closed = True

    async def _admit_packet(self, n: int) -> None:
        if self._is_closed:
            raise asyncio.IncompleteReadError(b"", n)
        try:
            first, body, whole = await self._next_packet()
            self._door.check(self._user, first, body)
        except PacketError as error:
            log.debug("a connection is closed: %s", error)
            self._is_closed = True
            raise asyncio.IncompleteReadError(b"", n) from error
        self._packet = memoryview(whole)
        while first >> 4 == PUBLISH and self._is_busy():
            await asyncio.sleep(BUSY_POLL_S)

    async def _next_packet(self) -> tuple[int, bytes, bytes]:
        """First byte, body and all bytes of the next packet."""
        head = self._head
        while len(head) < 2 or head[-1] & 0x80:
            head += await self._reader.readexactly(1)
            if len(head) == 5 and head[-1] & 0x80:
                raise PacketError("a length of more than four bytes")
        length = sum((byte & 0x7F) << (7 * k) for k, byte in enumerate(head[1:]))
        if length > self._door.max_packet_bytes:
            raise PacketError(f"a packet of {length} bytes, {self._door.max_packet_bytes} are allowed")
        body = await self._reader.readexactly(length)
        whole = bytes(head) + body
        head.clear()
        return whole[0], body, whole
