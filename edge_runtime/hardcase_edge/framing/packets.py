# SPDX-License-Identifier: Apache-2.0
"""MQTT's packets in a stream of bytes: cut out, and refused before they are here if they are longer than allowed."""

from __future__ import annotations

from ..errors import WireError

MAX_LENGTH_BYTES = 4  # of a packet's length, section 1.5.5 of MQTT 5.0


class Reader:
    """Cuts a stream of bytes into packets.

    Parameters
    ----------
    max_packet_bytes : a longer packet raises an error before it is read
    """

    __slots__ = ("_max", "_rest")

    def __init__(self, max_packet_bytes: int) -> None:
        self._max = max_packet_bytes
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """First byte and body of each packet that is whole now.

        Raises
        ------
        WireError
            A packet is longer than allowed, or its length is not MQTT's.
        """
        if self._rest:
            data = self._rest + data
        packets, at, end = [], 0, len(data)
        while end - at >= 2:
            length, start = data[at + 1], at + 2
            if length & 0x80:
                long = self._long(data, at, end)
                if long is None:
                    break
                length, start = long
            if length > self._max:
                raise WireError("oversized", f"a packet of {length} bytes, at most {self._max} are read")
            if start + length > end:
                break
            packets.append((data[at], data[start : start + length]))
            at = start + length
        self._rest = data[at:]
        return packets

    def _long(self, data: bytes, at: int, end: int) -> tuple[int, int] | None:
        """The length of more than 127 bytes, and where the body starts; None if not all of it is here."""
        length = 0
        for k in range(MAX_LENGTH_BYTES):
            if at + 1 + k >= end:
                return None
            byte = data[at + 1 + k]
            length |= (byte & 0x7F) << 7 * k
            if not byte & 0x80:
                return length, at + 2 + k
        raise WireError("malformed", "the length of a packet has more than four bytes")


def length(n: int) -> bytes:
    """A length below 2**28 as MQTT writes it, in one to four bytes."""
    if n < 128:
        return bytes((n,))
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out) + bytes((n,))


def packet(first: int, body: bytes) -> bytes:
    """A packet with this first byte and body."""
    return bytes((first,)) + length(len(body)) + body
