# SPDX-License-Identifier: Apache-2.0
"""The sections of an image: runs of numbers, each aligned to its width and addressed by its offset in bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from ..errors import ImageError
from ..program.definition import Number


def packed(form: str, numbers: Iterable[Number]) -> bytes:
    """The little-endian bytes of numbers of a scorer or node; ``form`` is a ``struct`` format without byte order.

    Raises
    ------
    ImageError
        A number is not an integer: the program is a draft.

    Examples
    --------
    >>> packed("2h", [1, -1])
    b'\\x01\\x00\\xff\\xff'
    """
    values = tuple(numbers)
    try:
        return struct.pack(f"<{form}", *values)
    except struct.error:
        for value in values:
            if not isinstance(value, int):
                raise ImageError(
                    f"a scorer or node holds {value!r}: this is a draft, which only Python runs; export it first"
                ) from None
        raise


class Sections:
    """Collects runs of numbers behind a header of ``header_bytes`` bytes; equal runs are stored once.

    >>> sections = Sections(header_bytes=8)
    >>> sections.i16([3, 4, 5]), sections.i64([7]), sections.i16([3, 4, 5])
    (8, 16, 8)
    >>> sections.close()
    24
    """

    def __init__(self, header_bytes: int) -> None:
        self._data = bytearray(header_bytes)
        self._offsets: dict[tuple[int, bytes], int] = {}

    def raw(self, data: bytes, alignment: int) -> int:
        """The offset of these bytes, which begin at a multiple of ``alignment``."""
        key = (alignment, data)
        if key not in self._offsets:
            self._data += bytes(-len(self._data) % alignment)
            self._offsets[key] = len(self._data)
            self._data += data
        return self._offsets[key]

    def i8(self, values: Sequence[Number]) -> int:
        """The offset of these numbers, stored signed."""
        return self.raw(packed(f"{len(values)}b", values), 1)

    def i16(self, values: Sequence[Number]) -> int:
        """The offset of these numbers; all are stored unsigned if one exceeds 32767."""
        return self.raw(_either("h", values, 0xFFFF), 2)

    def i32(self, values: Sequence[Number]) -> int:
        """The offset of these numbers; all are stored unsigned if one exceeds 2^31 - 1."""
        return self.raw(_either("i", values, 0xFFFF_FFFF), 4)

    def i64(self, values: Sequence[Number]) -> int:
        """The offset of these numbers, stored signed."""
        return self.raw(packed(f"{len(values)}q", values), 8)

    def own_i64(self, value: Number) -> int:
        """The offset of a number that may be changed later, so that no other run is stored there."""
        data = packed("q", [value])
        self._data += bytes(-len(self._data) % 8)
        self._data += data
        return len(self._data) - len(data)

    def close(self) -> int:
        """Pad with zeros to a multiple of 8 bytes, and return the number of all bytes."""
        self._data += bytes(-len(self._data) % 8)
        return len(self._data)

    def pack(self, header: bytes) -> bytes:
        """All bytes, with the header put in its place."""
        self._data[: len(header)] = header
        return bytes(self._data)


def _either(code: str, values: Sequence[Number], mask: int) -> bytes:
    """Numbers as signed ones of this type; if one is too large for it, all as unsigned ones."""
    try:
        return packed(f"{len(values)}{code}", values)
    except struct.error:
        return packed(f"{len(values)}{code.upper()}", [int(v) & mask for v in values])
