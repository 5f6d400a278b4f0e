"""Sections of an image: runs of numbers, each aligned to its width, each known by its offset in bytes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from .errors import ImageError
from .program import Number

__all__ = ["Sections", "whole"]


def whole(values: Iterable[Number]) -> list[int]:
    """The numbers of a scorer or node, which are integers unless the program is a draft.

    Raises
    ------
    ImageError
        It is one.
    """
    out: list[Any] = list(values)
    if not {int}.issuperset(map(type, out)):
        for value in out:
            if not isinstance(value, int):
                raise ImageError(f"a scorer or node holds {value!r}: this is a draft, which runs in Python only")
    return out


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

    def i8(self, values: Sequence[int]) -> int:
        """The offset of these numbers."""
        return self.raw(array("b", values).tobytes(), 1)

    def i16(self, values: Sequence[int]) -> int:
        """The offset of these numbers; from 32768 on they are unsigned ones."""
        return self.raw(_packed("h", values), 2)

    def i32(self, values: Sequence[int]) -> int:
        """The offset of these numbers; from 2^31 on they are unsigned ones."""
        return self.raw(_packed("i", values), 4)

    def i64(self, values: Sequence[int]) -> int:
        """The offset of these numbers."""
        return self.raw(array("q", values).tobytes(), 8)

    def close(self) -> int:
        """The number of all bytes, made a multiple of 8."""
        self._data += bytes(-len(self._data) % 8)
        return len(self._data)

    def pack(self, header: bytes) -> bytes:
        """All bytes behind their header."""
        self._data[: len(header)] = header
        return bytes(self._data)


def _packed(code: str, values: Sequence[int]) -> bytes:
    """Signed numbers of this type; where one is too large for it, all as unsigned ones."""
    try:
        return array(code, values).tobytes()
    except OverflowError:
        mask = 256 ** array(code).itemsize - 1
        return array(code.upper(), [v & mask for v in values]).tobytes()
