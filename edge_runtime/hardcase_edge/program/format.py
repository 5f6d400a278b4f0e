# SPDX-License-Identifier: Apache-2.0
"""The word format that ``encode`` writes and ``decode`` reads; docs/SPEC-program-v1.md section 6 defines it.

One tensor of fixed-size records (``program``, 32-bit words) refers to a few pooled tensors by offset, so readers can
use the file in place. The numbers of a draft's scorers are floats and lie in the ``f64`` pool. Thresholds of rank
columns are stored as order-preserving integer keys of the reading's bits.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from .definition import ARGMAX, MARGIN, THRESHOLD, TOURNAMENT, Number
from .readings import DTYPES, I32_MIN

PROGRAM_VERSION = 1
RULES = (THRESHOLD, MARGIN, ARGMAX, TOURNAMENT)
POOLS = {"f64": "d", "i64": "q", "i32": "i", "i16": "h", "i8": "b"}  # widest first, so that all are aligned in the file
HEADER, FEATURE, SENSOR, COLUMN, SCORER, NODE, TREE, CANDIDATE, LAYER = (
    16,
    2,
    4,
    4,
    12,
    10,
    8,
    4,
    17,
)  # words of a record

LEAST_COSTS = 3  # beside those of sensors that every program has: per request, per byte, of the cloud
PACKED = 256  # added to a polynomial's weight bits if its positions are bytes and only nonzero weights are stored
PACKED_COLUMNS = 127  # at most, so that a position fits a byte

Tensor = array | memoryview  # type: ignore[type-arg]
Pools = dict[str, Tensor]  # read only; ``encode`` builds arrays

_FLIP = {4: 0x7FFF_FFFF, 8: 0x7FFF_FFFF_FFFF_FFFF}  # all bits except the sign, by the size of a float in bytes


def to_key(value: Number, dtype: str) -> int:
    """A signed integer that orders as the reading does; minus zero has zero's key."""
    return to_keys([value], dtype)[0]


def to_keys(values: Sequence[Number], dtype: str) -> list[int]:
    """The keys of numbers that this type holds."""
    if dtype == "i32":
        return [int(x) for x in values]
    type_ = DTYPES[dtype]
    flip = _FLIP[type_.size]
    bits = array(type_.key, array(type_.code, [x + 0.0 for x in values]).tobytes())
    return [b if b >= 0 else b ^ flip for b in bits]


def from_keys(keys: Sequence[int], dtype: str) -> tuple[Number, ...]:
    """The readings with these keys."""
    if dtype == "i32":
        return tuple(keys)
    type_ = DTYPES[dtype]
    flip = _FLIP[type_.size]
    bits = array(type_.key, [key if key >= 0 else key ^ flip for key in keys])
    return tuple(array(type_.code, bits.tobytes()))


def are_held(values: Sequence[Number], dtype: str) -> bool:
    """Whether this type holds each of these numbers exactly; INT32_MIN, the mark for missing, is not an i32."""
    numbers = list(values)
    try:
        stored = array(DTYPES[dtype].code, map(int, numbers) if dtype == "i32" else numbers).tolist()
    except (OverflowError, ValueError):
        return False
    return stored == numbers and (dtype != "i32" or I32_MIN not in stored)


assert sys.byteorder == "little", "hardcase-edge runs on little-endian machines only"
