"""Sections of an image: runs of numbers, each aligned to its width, each known by its offset in bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from ..errors import ImageError
from ..program.definition import Number

__all__ = ["Sections", "packed"]


def packed(form: str, numbers: Iterable[Number]) -> bytes:
    """The numbers of a scorer or node in this form of ``struct``, little-endian.

    Raises
    ------
    ImageError
        One is no integer: the program is a draft.
    """
    values = tuple(numbers)
    try:
        return struct.pack(f"<{form}", *values)
    except struct.error:
        for value in values:
            if not isinstance(value, int):
                raise ImageError(
                    f"a scorer or node holds {value!r}: this is a draft, which runs in Python only"
                ) from None
        raise


class Sections:
    """Collects runs behind a header of ``header_bytes``; equal runs are kept once."""

    def __init__(self, header_bytes: int) -> None:
        self._data = bytearray(header_bytes)
        self._known: dict[tuple[int, bytes], int] = {}

    def raw(self, data: bytes, alignment: int) -> int:
        """The offset of these bytes."""
        key = (alignment, data)
        if key not in self._known:
            self._data += bytes(-len(self._data) % alignment)
            self._known[key] = len(self._data)
            self._data += data
        return self._known[key]

    def i8(self, values: Sequence[Number]) -> int:
        """The offset of these numbers."""
        return self.raw(packed(f"{len(values)}b", values), 1)

    def i16(self, values: Sequence[Number]) -> int:
        """The offset of these numbers; from 32768 on they are unsigned ones."""
        return self.raw(_either("h", values, 0xFFFF), 2)

    def i32(self, values: Sequence[Number]) -> int:
        """The offset of these numbers; from 2^31 on they are unsigned ones."""
        return self.raw(_either("i", values, 0xFFFF_FFFF), 4)

    def i64(self, values: Sequence[Number]) -> int:
        """The offset of these numbers."""
        return self.raw(packed(f"{len(values)}q", values), 8)

    def close(self) -> int:
        """The number of all bytes, made a multiple of 8."""
        self._data += bytes(-len(self._data) % 8)
        return len(self._data)

    def pack(self, header: bytes) -> bytes:
        """All bytes behind their header."""
        self._data[: len(header)] = header
        return bytes(self._data)


def _either(code: str, values: Sequence[Number], mask: int) -> bytes:
    """Signed numbers of this type; where one is too large for it, all as unsigned ones."""
    try:
        return packed(f"{len(values)}{code}", values)
    except struct.error:
        return packed(f"{len(values)}{code.upper()}", [int(v) & mask for v in values])
