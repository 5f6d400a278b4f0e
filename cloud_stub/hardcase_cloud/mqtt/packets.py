# SPDX-License-Identifier: Apache-2.0
"""MQTT 5 and 3.1.1 packets of a client as bytes: those that hardcase sends, and bounded reading of a broker's.

Nothing here has a socket or a clock. ``Reader`` is the device's, too; the ``read_`` functions take a packet's body
apart. Section numbers are those of MQTT 5.0 (OASIS).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hardcase_edge.errors import WireError
from hardcase_edge.framing.packets import MAX_LENGTH_BYTES, length, packet

V311, V5 = 4, 5  # protocol levels
CONNACK, PUBLISH, PUBACK, SUBACK, UNSUBACK, DISCONNECT = 0x20, 0x30, 0x40, 0x90, 0xB0, 0xE0  # upper half of byte 1
PINGREQ = b"\xc0\x00"
QOS_1, RETAIN = 0x02, 0x01
QOS_BITS = 0x06
NO_RETAINED, RETAINED = 0x20, 0x00  # of a subscription on MQTT 5: whether retained messages are wanted
MAX_PACKET_ID = 65_535

EXPIRY, RESPONSE_TOPIC, CORRELATION, SESSION_EXPIRY = 0x02, 0x08, 0x09, 0x11
RECEIVE_MAXIMUM, TOPIC_ALIAS, USER_PROPERTY, MAXIMUM_PACKET = 0x21, 0x23, 0x26, 0x27
SIZES = {  # of a property's value by its number, section 2.2.2.2; -1: a string or bytes; -2: two strings; 0: an integer
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
    **dict.fromkeys((0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F), -1),
    0x0B: 0,
    0x26: -2,
}
Properties = Mapping[int, Any]
_U16 = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Published:
    """A message from the broker; the last three are those of MQTT 5, None where absent."""

    topic: str
    payload: bytes
    packet_id: int  # 0 at QoS 0
    retain: bool = False
    correlation: bytes | None = None
    response_topic: str | None = None
    expiry_s: int | None = None  # seconds that are left of what its sender gave


# ---------------------------------------------------------------- writing


def connect(
    client_id: str,
    version: int = V5,
    *,
    keepalive_s: int = 30,
    clean: bool = True,
    user: str = "",
    password: str = "",
    will: tuple[str, bytes] | None = None,
    session_expiry_s: int = 0,
    receive_maximum: int = 0,
    max_packet_bytes: int = 0,
) -> bytes:
    """A CONNECT; the will is retained, at QoS 1. The last three are left out at 0, and on MQTT 3.1.1."""
    flags = 0x02 * clean | (0x24 if will else 0) | (0x80 if user else 0) | (0x40 if password else 0)
    head = _text("MQTT") + struct.pack(">BBH", version, flags, keepalive_s)
    parts = [head]
    if version == V5:
        limits = {SESSION_EXPIRY: session_expiry_s, RECEIVE_MAXIMUM: receive_maximum, MAXIMUM_PACKET: max_packet_bytes}
        parts.append(_properties({key: value for key, value in limits.items() if value}))
    parts.append(_text(client_id))
    if will is not None:
        parts += [b"\0"] if version == V5 else []
        parts += [_text(will[0]), _bytes(will[1])]
    parts += [_text(word) for word in (user, password) if word]
    return packet(0x10, b"".join(parts))


def subscribe(packet_id: int, topics: Sequence[str], version: int = V5, *, retained: bool = False) -> bytes:
    """A SUBSCRIBE at QoS 1; ``retained`` only counts on MQTT 5, where it says whether retained messages are wanted."""
    option = bytes((1 | (RETAINED if retained else NO_RETAINED) if version == V5 else 1,))
    body = _U16.pack(packet_id) + (b"\0" if version == V5 else b"")
    return packet(0x82, body + b"".join([_text(topic) + option for topic in topics]))


def unsubscribe(packet_id: int, topics: Sequence[str], version: int = V5) -> bytes:
    """An UNSUBSCRIBE."""
    body = _U16.pack(packet_id) + (b"\0" if version == V5 else b"")
    return packet(0xA2, body + b"".join([_text(topic) for topic in topics]))


def publish(
    topic: str,
    payload: bytes,
    packet_id: int = 0,
    version: int = V5,
    *,
    retain: bool = False,
    correlation: bytes | None = None,
    response_topic: str | None = None,
    expiry_s: int | None = None,
) -> bytes:
    """A PUBLISH, at QoS 1 if it has a packet id, otherwise at QoS 0; the last three are dropped on MQTT 3.1.1."""
    name = topic.encode()
    head = _U16.pack(len(name)) + name
    if packet_id:
        head += _U16.pack(packet_id)
    if version == V5:
        some = b""
        if expiry_s is not None:
            some = b"\x02" + expiry_s.to_bytes(4, "big")
        if response_topic is not None:
            some += b"\x08" + _text(response_topic)
        if correlation is not None:
            some += b"\x09" + _bytes(correlation)
        head += length(len(some)) + some
    return packet(PUBLISH | (QOS_1 if packet_id else 0) | retain, head + payload)


def puback(packet_id: int) -> bytes:
    """The acknowledgement of a message."""
    return b"\x40\x02" + _U16.pack(packet_id)


def disconnect(version: int = V5, *, with_will: bool = False) -> bytes:
    """A DISCONNECT; on MQTT 5 the broker may be told to publish the will."""
    return b"\xe0\x01\x04" if version == V5 and with_will else b"\xe0\x00"


# ---------------------------------------------------------------- reading


def read_publish(first: int, body: bytes, version: int = V5) -> Published:
    """The message in a PUBLISH.

    Raises
    ------
    WireError
        It is not one, or it uses a topic alias, which was not offered.
    """
    n = len(body)
    at = 2 + (body[0] << 8 | body[1]) if n >= 2 else 3
    has_id = first & QOS_BITS
    if at + (2 if has_id else 0) > n:
        raise WireError("malformed", "a message that is cut")
    try:
        topic = body[2:at].decode()
    except UnicodeDecodeError as error:
        raise WireError("malformed", "a topic that is not UTF-8") from error
    packet_id = 0
    if has_id:
        packet_id = body[at] << 8 | body[at + 1]
        at += 2
    if version != V5:
        return Published(topic, body[at:], packet_id, bool(first & RETAIN))
    if at < n and not body[at]:
        return Published(topic, body[at + 1 :], packet_id, bool(first & RETAIN))
    properties, at = read_properties(body, at)
    if TOPIC_ALIAS in properties or not topic:
        raise WireError("malformed", "a message with a topic alias, or without a topic")
    response = properties.get(RESPONSE_TOPIC)
    return Published(
        topic,
        body[at:],
        packet_id,
        bool(first & RETAIN),
        properties.get(CORRELATION),
        None if response is None else response.decode(errors="replace"),
        properties.get(EXPIRY),
    )


def read_connack(body: bytes, version: int = V5) -> tuple[bool, int, Properties]:
    """Whether the broker has a session, its reason code (0: connected), and its properties.

    Raises
    ------
    WireError
        It is not a CONNACK.
    """
    if len(body) < 2:
        raise WireError("malformed", "a CONNACK that is cut")
    properties: Properties = {}
    if version == V5 and len(body) > 2:
        properties, _ = read_properties(body, 2)
    return bool(body[0] & 1), body[1], properties


def read_acknowledgement(body: bytes) -> tuple[int, int]:
    """Packet id and reason code of a PUBACK or UNSUBACK; WireError if it is none."""
    if len(body) < 2:
        raise WireError("malformed", "an acknowledgement that is cut")
    return body[0] << 8 | body[1], body[2] if len(body) > 2 else 0


def read_suback(body: bytes, version: int = V5) -> tuple[int, bytes]:
    """Packet id, and the reason code of each subscription, of which 0 to 2 grant it; WireError if it is none."""
    packet_id, _ = read_acknowledgement(body)
    at = read_properties(body, 2)[1] if version == V5 else 2
    return packet_id, body[at:]


def read_properties(body: bytes, at: int) -> tuple[dict[int, Any], int]:
    """The properties that begin at a byte, and the byte behind them.

    Raises
    ------
    WireError
        They are cut, or one of them is not a property of MQTT 5.
    """
    length, at = _read_length(body, at)
    end = at + length
    if end > len(body):
        raise WireError("malformed", "properties that are cut")
    properties: dict[int, Any] = {}
    while at < end:
        key = body[at]
        size = SIZES.get(key)
        if size is None:
            raise WireError("malformed", f"property {key} is not one of MQTT 5")
        at += 1
        if size > 0:
            properties[key] = int.from_bytes(body[at : at + size], "big")
            at += size
        elif size == 0:
            properties[key], at = _read_length(body, at)
        else:
            for _ in range(-size):
                n = 2 + int.from_bytes(body[at : at + 2], "big")
                properties[key] = body[at + 2 : at + n]
                at += n
        if at > end:
            raise WireError("malformed", "a property that is cut")
    return properties, end


# ---------------------------------------------------------------- parts


def _read_length(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for k in range(MAX_LENGTH_BYTES):
        if at >= len(body):
            break
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << 7 * k
        if not byte & 0x80:
            return value, at
    raise WireError("malformed", "a length that is cut, or has more than four bytes")


def _bytes(data: bytes) -> bytes:
    return _U16.pack(len(data)) + data


def _text(text: str) -> bytes:
    return _bytes(text.encode())


def _properties(values: Mapping[int, int]) -> bytes:
    some = b"".join([bytes((key,)) + value.to_bytes(SIZES[key], "big") for key, value in values.items()])
    return length(len(some)) + some
