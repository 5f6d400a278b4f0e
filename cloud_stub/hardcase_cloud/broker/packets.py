"""The few MQTT 3.1.1 packets that the embedded broker's door must understand. Bytes in, values out, no I/O.

Section numbers are those of the OASIS standard. Every length is checked against the packet's own before it is used.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = [
    "CONNECT",
    "OTHERS",
    "PUBLISH",
    "SUBSCRIBE",
    "Connect",
    "PacketError",
    "Publish",
    "read_connect",
    "read_publish",
    "read_subscribe",
    "refusal",
]

PUBLISH = 3  # the upper four bits of its first byte; the lower are flags
CONNECT, PUBACK, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT = 0x10, 0x40, 0x82, 0xA2, 0xC0, 0xE0  # first bytes
OTHERS = frozenset((PUBACK, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT))  # that a client of ours sends
BAD_VERSION, NOT_AUTHORISED = 1, 5  # what a CONNACK says, 3.2.2.3


class PacketError(Exception):
    """The bytes are not a packet that a client of ours would send; close the connection."""


@dataclass(frozen=True, slots=True)
class Connect:
    """3.1: who wants in. ``will_topic`` is None without a will."""

    level: int
    client: str
    user: str | None
    password: bytes | None
    will_topic: str | None
    will_qos: int


@dataclass(frozen=True, slots=True)
class Publish:
    """3.3: what is published; the payload stays where it is."""

    topic: str
    qos: int
    is_retained: bool


class _Reader:
    """Fields of one packet's body, each checked to lie inside it."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._body) - self._at

    def take(self, n: int) -> bytes:
        if n > self.left:
            raise PacketError(f"{n} bytes are announced, {self.left} are left")
        self._at += n
        return self._body[self._at - n : self._at]

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int(struct.unpack("!H", self.take(2))[0])

    def data(self) -> bytes:
        return self.take(self.u16())

    def text(self) -> str:
        try:
            text = self.data().decode()
        except UnicodeDecodeError as error:
            raise PacketError("a string is not UTF-8") from error
        if "\0" in text:
            raise PacketError("a string holds a null character")
        return text


def read_connect(body: bytes) -> Connect:
    """The CONNECT in this body (without its fixed header).

    Raises
    ------
    PacketError
        It is not one, or its fields do not fill it exactly.
    """
    r = _Reader(body)
    if r.text() != "MQTT":
        raise PacketError("the protocol is not MQTT")
    level, flags = r.u8(), r.u8()
    if level != 4:  # later fields of another version lie elsewhere
        return Connect(level, "", None, None, None, 0)
    r.u16()  # keep alive
    has_will, will_qos = bool(flags & 0x04), (flags >> 3) & 3
    has_user, has_password = bool(flags & 0x80), bool(flags & 0x40)
    if flags & 0x01 or will_qos == 3 or (has_password and not has_user) or (not has_will and flags & 0x38):
        raise PacketError(f"connect flags {flags:#04x} contradict each other")
    client = r.text()
    will_topic = r.text() if has_will else None
    if has_will:
        r.data()
    user = r.text() if has_user else None
    password = r.data() if has_password else None
    if r.left:
        raise PacketError(f"a CONNECT has {r.left} bytes too many")
    return Connect(level, client, user, password, will_topic, will_qos)


def read_publish(flags: int, body: bytes) -> Publish:
    """What this PUBLISH says; ``flags`` are the low four bits of its first byte.

    Raises
    ------
    PacketError
        A cut topic or packet id, a topic that is empty or has wildcards, QoS 3.
    """
    r = _Reader(body)
    topic, qos = r.text(), (flags >> 1) & 3
    if not topic or "+" in topic or "#" in topic or qos == 3:
        raise PacketError(f"a publish to {topic[:80]!r} with QoS {qos}")
    if qos and not r.u16():
        raise PacketError("a publish with packet id 0")
    return Publish(topic, qos, bool(flags & 1))


def read_subscribe(body: bytes) -> list[str]:
    """The topic filters of a SUBSCRIBE.

    Raises
    ------
    PacketError
        There is none, one is cut or empty, or a QoS is none.
    """
    r = _Reader(body)
    if not r.u16():
        raise PacketError("a subscribe with packet id 0")
    filters = []
    while r.left:
        filters.append(r.text())
        if not filters[-1] or r.u8() > 2:
            raise PacketError(f"a subscription to {filters[-1][:80]!r} with another QoS than 0, 1 or 2")
    if not filters:
        raise PacketError("a subscribe without a topic")
    return filters


def refusal(code: int) -> bytes:
    """A CONNACK that refuses, 3.2."""
    return bytes((0x20, 2, 0, code))
