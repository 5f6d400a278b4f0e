# SPDX-License-Identifier: Apache-2.0
"""Columns of a program in TFLite: operators that turn raw readings into exactly the program's codes, in int64.

The bits of a float become a key that orders as the float does. An affine column is a fixed-point number times a factor,
shifted right. The shift takes the remainder away and scales by a power of two, which float32 does without rounding
because codes have 16 bits. TFLite has no arithmetic on float64, so the mantissa and the exponent are separated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hardcase_edge.program.definition import CODE_MAX, Affine, Number, Program, Rank
from hardcase_edge.program.format import to_key
from hardcase_edge.program.readings import DTYPES

from ..scorers.parts import ScorerPart
from .graph import Tensor, TfliteGraph

LOW, HIGH = -(2**63), 2**63 - 1
F32_MAX = float(np.finfo(np.float32).max)


class Columns:
    """A graph with the inputs of a part; ``raw``: the input (1, k) of each declared type."""

    def __init__(self, program: Program, part: ScorerPart) -> None:
        self.program, self.part, self.g = program, part, TfliteGraph()
        self.raw = {d: self.g.input(d, DTYPES[d].numpy, (1, len(fs))) for d, fs in part.inputs.items()}
        self._keys: dict[str, tuple[Tensor, Tensor]] = {}

    def reading(self, column: int) -> tuple[str, int]:
        """The declared type of a column's feature, and its position in the input of that type."""
        feature = self.program.columns[column].feature
        dtype = self.program.features[feature].dtype
        return dtype, self.part.inputs[dtype].index(feature)

    def present(self, dtype: str) -> Tensor:
        """(1, k) bool: which readings of this type are present."""
        g, raw = self.g, self.raw[dtype]
        if dtype == "f32":
            return g.compare("LESS_EQUAL", g.op("ABS", raw), g.const([F32_MAX], "f4"))
        return self.keys(dtype)[1]

    def keys(self, dtype: str) -> tuple[Tensor, Tensor]:
        """(1, k) int64 keys of the readings of this type, and (1, k) bool: which are present."""
        if dtype in self._keys:
            return self._keys[dtype]
        g, raw = self.g, self.raw[dtype]
        if dtype == "i32":
            key = g.cast(raw, "i8")
            self._keys[dtype] = key, g.compare("GREATER", key, g.const([DTYPES["i32"].missing], "i8"))
            return self._keys[dtype]
        bits = self._bits(dtype)
        lowest = LOW if dtype == "f64" else -(2**31)
        flipped = g.op("SUB", g.const([lowest], "i8"), g.op("MINIMUM", bits, g.const([-1], "i8")))
        flipped = g.op("SUB", flipped, g.const([1], "i8"))
        key = g.select(g.compare("LESS", bits, g.const([0], "i8")), flipped, bits)
        largest = float(np.finfo(np.float64 if dtype == "f64" else np.float32).max)
        above = g.compare("GREATER_EQUAL", key, g.const([to_key(-largest, dtype)], "i8"))
        below = g.compare("LESS_EQUAL", key, g.const([to_key(largest, dtype)], "i8"))
        self._keys[dtype] = key, g.op("LOGICAL_AND", above, below)
        return self._keys[dtype]

    def _bits(self, dtype: str) -> Tensor:
        """(1, k) int64: the bits of the floats of this type."""
        return self.g.cast(self.g.op("BITCAST", self.raw[dtype], dtype="i8" if dtype == "f64" else "i4"), "i8")

    # ------------------------------------------------------------ codes

    def codes(self, columns: Sequence[int]) -> tuple[Tensor, Tensor]:
        """(1, k) int64 codes, arbitrary if a reading is missing, and (1, k) bool: which readings are present."""
        g, order, groups, presences = self.g, list[int](), list[Tensor](), list[Tensor]()
        for dtype in self.raw:
            of_type = [c for c in columns if self.reading(c)[0] == dtype]
            affine = [c for c in of_type if isinstance(self.program.columns[c].rule, Affine)]
            ranks = [c for c in of_type if c not in affine]
            if affine:
                groups.append(g.cast(self._affine(dtype, affine), "i8"))
            groups += [self._rank(dtype, c) for c in ranks]
            if of_type:
                present = g.cast(self.present(dtype), "f4")  # not every runtime gathers bool
                presences.append(g.gather(present, [self.reading(c)[1] for c in affine + ranks], 1))
            order += affine + ranks
        codes, present = g.concat(groups, 1), g.concat(presences, 1)
        if order != list(columns):
            places = [order.index(c) for c in columns]
            codes, present = g.gather(codes, places, 1), g.gather(present, places, 1)
        return codes, g.compare("GREATER", present, g.const([0.0], "f4"))

    def _rank(self, dtype: str, column: int) -> Tensor:
        """(1, 1) int64 codes of a rank column."""
        g, chosen = self.g, self.program.columns[column]
        assert isinstance(chosen.rule, Rank)
        if not chosen.rule.thresholds:
            return g.const([[-CODE_MAX]], "i8")
        key = g.gather(self.keys(dtype)[0], [self.reading(column)[1]], 1)
        limits = g.const([[to_key(t, dtype) for t in chosen.rule.thresholds]], "i8")
        count = g.sum(g.cast(g.compare("GREATER", key, limits), "i8"), 1)
        return g.reshape(g.op("SUB", count, g.const([CODE_MAX], "i8")), 1, 1)

    def _affine(self, dtype: str, columns: Sequence[int]) -> Tensor:
        """(1, k) float32 codes of affine columns of one type."""
        g = self.g
        rules = [c.rule for c in (self.program.columns[c] for c in columns) if isinstance(c.rule, Affine)]
        scaled = {"f32": self._fixed_f32, "f64": self._fixed_f64, "i32": self._fixed_i32}[dtype]
        raw = self._bits(dtype) if dtype == "f64" else self.raw[dtype]
        q = scaled(g.gather(raw, [self.reading(c)[1] for c in columns], 1), [r.frac for r in rules])
        v = g.op("MUL", q, g.const([[r.mul for r in rules]], "i8"))
        v = g.op("ADD", v, g.const([[r.add for r in rules]], "i8"))
        v = self._clamp(
            v,
            [_within_64_bits(r.low << r.shift) for r in rules],
            [_within_64_bits(((r.high + 1) << r.shift) - 1) for r in rules],
        )
        v = g.op("SUB", v, g.op("FLOOR_MOD", v, g.const([[1 << r.shift for r in rules]], "i8")))
        code = g.op("MUL", g.cast(v, "f4"), g.const([[2.0**-r.shift for r in rules]], "f4"))
        return self._clamp(code, [r.low for r in rules], [r.high for r in rules])  # the bounds of v saturate at 64 bits

    def _clamp(self, x: Tensor, low: Sequence[Number], high: Sequence[Number]) -> Tensor:
        g = self.g
        return g.op("MAXIMUM", g.op("MINIMUM", x, g.const([high], x.dtype)), g.const([low], x.dtype))

    def _fixed_f32(self, x: Tensor, frac: list[int]) -> Tensor:
        """floor(x 2^frac), clipped to 32 bits, int64."""
        g = self.g
        is_finite = g.compare("LESS_EQUAL", g.op("ABS", x), g.const([F32_MAX], "f4"))
        x = g.select(is_finite, x, g.const([[0.0]], "f4"))
        q = g.op("FLOOR", g.op("MUL", x, g.const([[2.0**n for n in frac]], "f4")))
        vanished = g.op("MINIMUM", q, g.const([-1.0], "f4"))  # a negative number is never scaled to 0
        q = g.select(g.compare("LESS", x, g.const([0.0], "f4")), vanished, q)
        q = g.cast(self._clamp(q, [-(2.0**31)], [2.0**31]), "i8")
        return g.op("MINIMUM", q, g.const([2**31 - 1], "i8"))

    def _fixed_f64(self, bits: Tensor, frac: list[int]) -> Tensor:
        """As ``_fixed_f32``, from the bits: a signed 53-bit mantissa divided by 2^k, in an upper and a lower half."""
        g = self.g
        is_negative = g.compare("LESS", bits, g.const([0], "i8"))
        size = g.op("SUB", g.op("MINIMUM", bits, g.const([-1], "i8")), g.const([LOW], "i8"))
        size = g.select(is_negative, size, bits)
        fraction = g.op("FLOOR_MOD", size, g.const([1 << 52], "i8"))
        exponent = g.op("MUL", g.cast(g.op("SUB", size, fraction), "f4"), g.const([2.0**-52], "f4"))
        is_normal = g.compare("GREATER", exponent, g.const([0.0], "f4"))
        mantissa = g.op("ADD", fraction, g.select(is_normal, g.const([[1 << 52]], "i8"), g.const([[0]], "i8")))
        mantissa = g.select(is_negative, g.op("SUB", g.const([0], "i8"), mantissa), mantissa)
        k = g.op("SUB", g.const([[1075.0 - n for n in frac]], "f4"), g.op("MAXIMUM", exponent, g.const([1.0], "f4")))
        powers = range(20, 55)  # below 20 the result exceeds 32 bits; above 54 it is 0 or -1
        k = g.cast(g.op("SUB", self._clamp(k, [powers[0]], [powers[-1]]), g.const([powers[0]], "f4")), "i4")
        tops = [min(p + 16, 62) for p in powers]

        def pick(values: Sequence[Number], dtype: str) -> Tensor:
            return g.gather(g.const(values, dtype), k)

        rest = g.op("FLOOR_MOD", mantissa, pick([1 << t for t in tops], "i8"))
        upper = g.op("MUL", g.cast(g.op("SUB", mantissa, rest), "f4"), pick([2.0**-t for t in tops], "f4"))
        lower = g.op("SUB", rest, g.op("FLOOR_MOD", rest, pick([1 << p for p in powers], "i8")))
        lower = g.op("MUL", g.cast(lower, "f4"), pick([2.0**-p for p in powers], "f4"))
        steps = pick([1 << (t - p) for t, p in zip(tops, powers, strict=True)], "i8")
        q = g.op("ADD", g.op("MUL", g.cast(upper, "i8"), steps), g.cast(lower, "i8"))
        return self._clamp(q, [-(2**31)], [2**31 - 1])

    def _fixed_i32(self, x: Tensor, frac: list[int]) -> Tensor:
        g = self.g
        while min(frac) < 0:
            steps = [min(max(-n, 0), 30) for n in frac]
            x = g.op("FLOOR_DIV", x, g.const([[1 << step for step in steps]], "i4"))
            frac = [n + step for n, step in zip(frac, steps, strict=True)]
        q = g.op("MUL", g.cast(x, "i8"), g.const([[1 << min(n, 31) for n in frac]], "i8"))
        return self._clamp(q, [-(2**31)], [2**31 - 1])


def _within_64_bits(bound: int) -> int:
    return min(max(LOW, bound), HIGH)
