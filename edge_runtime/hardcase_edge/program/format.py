"""The numbers that ``encoder`` and ``decoder`` share: docs/SPEC-program-v1.md section 6 defines every word.

One tensor of fixed-size records (``program``, 32-bit words) refers to a few pooled tensors by offset, so that a
kernel can run from the file as it lies in memory. In a draft, numbers of scorers are floats and live in the ``f64``
pool. Thresholds of rank columns are stored as order-preserving integer keys of the reading's bits.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence

from .definition import ARGMAX, MARGIN, THRESHOLD, TOURNAMENT, Number
from .readings import DTYPES, I32_MIN

__all__ = [
    "KINDS",
    "PACKED",
    "PACKED_COLUMNS",
    "POOLS",
    "PROGRAM_VERSION",
    "RULES",
    "Pools",
    "Tensor",
    "are_held",
    "from_keys",
    "to_key",
]

PROGRAM_VERSION = 1
RULES = (THRESHOLD, MARGIN, ARGMAX, TOURNAMENT)
KINDS = ("class", "value")
POOLS = {"f64": "d", "i64": "q", "i32": "i", "i16": "h", "i8": "b"}  # widest first: all aligned in the file
HEADER, FEATURE, SENSOR, COLUMN, SCORER, NODE, TREE, CANDIDATE = 16, 2, 4, 4, 12, 10, 8, 4  # words of a record

PACKED = 256  # added to the weight bits of a polynomial whose positions are bytes and whose weights are not 0
PACKED_COLUMNS = 127  # at most: a position fits a byte

Tensor = array | memoryview  # type: ignore[type-arg]
Pools = dict[str, Tensor]  # read only; who writes has arrays

_FLIP = {4: 0x7FFF_FFFF, 8: 0x7FFF_FFFF_FFFF_FFFF}  # all bits but the sign, by a float's bytes


def to_key(value: Number, dtype: str) -> int:
    """A signed integer that orders as the reading does; minus zero has zero's key."""
    if dtype == "i32":
        return int(value)
    held = DTYPES[dtype]
    (bits,) = struct.unpack(f"<{held.key}", struct.pack(f"<{held.code}", value + 0.0))
    return int(bits) if bits >= 0 else bits ^ _FLIP[held.size]


def from_keys(keys: Sequence[int], dtype: str) -> tuple[Number, ...]:
    """The readings with these keys."""
    if dtype == "i32":
        return tuple(keys)
    held = DTYPES[dtype]
    flip = _FLIP[held.size]
    bits = array(held.key, [key if key >= 0 else key ^ flip for key in keys])
    return tuple(array(held.code, bits.tobytes()))


def are_held(values: Sequence[Number], dtype: str) -> bool:
    """Whether this type holds exactly each of these numbers; no i32 is INT32_MIN, the mark for missing."""
    wanted = list(values)
    try:
        held = array(DTYPES[dtype].code, map(int, wanted) if dtype == "i32" else wanted).tolist()
    except (OverflowError, ValueError):
        return False
    return held == wanted and (dtype != "i32" or I32_MIN not in held)


assert sys.byteorder == "little", "hardcase-edge runs on little-endian machines only"
