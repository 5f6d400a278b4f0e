# SPDX-License-Identifier: Apache-2.0
"""Readings as their declared types hold them, and their int16 codes, computed in integer arithmetic only.

``normalise`` takes a number or None and returns exactly the value that the declared type holds, or None. Minus zero
becomes zero, and a value that is not finite counts as missing. A column's rule then computes the code; the code of
None is MISSING. docs/SPEC-program-v1.md section 3 defines both steps.
"""

from __future__ import annotations

import math
import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import index

from ..base.record import record
from .definition import CODE_MAX, Affine, Column, Number, Rank

MAX_REQUEST_BYTES = 65_536
MAX_DEADLINE_MS = 3_600_000  # that a request may say
_REQUEST = struct.Struct("<BBHI16s32s")

Coder = Callable[[Number], int]
Reading = Number | None

I32_MIN, I32_MAX = -(2**31), 2**31 - 1


@record(frozen=True, slots=True)
class Dtype:
    """How a declared type holds a reading: on the wire, in memory and in C."""

    number: int  # in bundles and images
    size: int  # bytes
    code: str  # for ``struct`` and ``array``
    key: str  # code of the integer of the same size, which holds a reading's order-preserving key
    numpy: str
    c: str
    missing: Number  # stands for a missing reading in requests, C structs and models of other runtimes


DTYPES = {
    "i32": Dtype(0, 4, "i", "i", "i4", "int32_t", I32_MIN),
    "f32": Dtype(1, 4, "f", "i", "f4", "float", math.nan),
    "f64": Dtype(2, 8, "d", "q", "f8", "double", math.nan),
}


def normalise(values: Sequence[Reading], dtypes: Sequence[str]) -> list[Reading]:
    """Readings as their declared types hold them; None for a reading that is missing, not finite or out of range.

    Raises
    ------
    TypeError, ValueError
        A reading is not a number (text is not), or the number of readings is wrong; the caller treats the sensor as
        failed.
    """
    out: list[Reading] = []
    for value, dtype in zip(values, dtypes, strict=True):
        if value is None:
            out.append(None)
            continue
        if dtype == "i32" and value.__class__ is int:
            out.append(value if I32_MIN < value <= I32_MAX else None)
            continue
        number = value if value.__class__ is float else _number(value, dtype)
        if not math.isfinite(number):
            out.append(None)
        elif dtype == "i32":
            whole = int(value)
            # INT32_MIN marks a missing reading on the wire
            out.append(whole if whole == value and I32_MIN < whole <= I32_MAX else None)
        elif dtype == "f32":
            number = array("f", (number,))[0] + 0.0
            out.append(number if math.isfinite(number) else None)
        else:
            out.append(number + 0.0)
    return out


def _number(value: object, dtype: str) -> float:
    """A number that is not a float, as a double that the declared type rounds no further."""
    if hasattr(value, "__index__"):
        whole = index(value)
        return _nearest(whole, 24) if dtype == "f32" else _nearest(whole, 53)
    if not hasattr(value, "__float__"):
        raise TypeError(f"a reading is a {type(value).__name__}, not a number")  # float() would read text
    try:
        return float(value)
    except OverflowError:
        return math.inf  # a number larger than every float is out of range


def _nearest(whole: int, bits: int) -> float:
    """The nearest number with so many significant bits, ties to even: an integer is rounded once."""
    excess = whole.bit_length() - bits
    if excess > 0:
        half = 1 << excess - 1
        kept, rest = whole >> excess, whole & 2 * half - 1
        whole = kept + (rest > half or (rest == half and kept & 1)) << excess
    try:
        return float(whole)
    except OverflowError:
        return math.inf


def fixed(x: Number, frac: int) -> int:
    """``floor(x * 2**frac)``, computed exactly and clipped to 32 bits."""
    n, d = x.as_integer_ratio()
    value = (n << frac) // d if frac >= 0 else n // (d << -frac)
    return I32_MIN if value < I32_MIN else min(value, I32_MAX)


def make_coder(column: Column) -> Coder:
    """The function from a present reading to this column's code."""
    rule = column.rule
    if isinstance(rule, Rank):
        thresholds = list(rule.thresholds)
        return lambda x: bisect_left(thresholds, x) - CODE_MAX
    return _affine(rule)


def rank_or_coder(column: Column) -> tuple[list[Number], Coder]:
    """A rank column's thresholds, in which the session searches itself, and the function for all other columns."""
    return list(column.rule.thresholds) if isinstance(column.rule, Rank) else [], make_coder(column)


def _affine(rule: Affine) -> Coder:
    frac, mul, add, shift, low, high = rule.frac, rule.mul, rule.add, rule.shift, rule.low, rule.high

    def code(x: Number) -> int:
        is_plain = not frac and x.__class__ is int and I32_MIN <= x <= I32_MAX  # then fixed() is x: most of the time
        value = ((x if is_plain else fixed(x, frac)) * mul + add) >> shift  # type: ignore[operator]
        return low if value < low else high if value > high else value

    return code


def request_bytes(dtypes: Sequence[str]) -> int:
    """The length, in bytes, of a request that carries readings of these types."""
    return _REQUEST.size + sum([DTYPES[d].size for d in dtypes])
