"""A part of a program as a TFLite file that gives the very integers of the program, for one row at a time.

Inputs are raw readings, (1, k) per declared type, named ``f32``, ``f64`` and ``i32``, as in ONNX; the output
``scores`` is (1, width) int64. Trees compare float32 where all they read is f32, else int64 keys and codes; sums of
leaves are int32, as the program's, and products are int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hardcase_edge.program.definition import Affine, Number, Opaque, Polynomial, Program, Stack, Trees
from hardcase_edge.program.format import to_key

from ..scorers.comparisons import Splits, splits_of, stacked_splits
from ..scorers.parts import Part
from .columns import HIGH, LOW, Columns
from .graph import Tensor
from .trees import walk

__all__ = ["tflite_of"]

F32_MAX = float(np.finfo(np.float32).max)


def tflite_of(program: Program, part: Part) -> bytes:
    """The TFLite file of one part; of a user's own model, that model's bytes.

    Raises
    ------
    InputError
        What writes TFLite is not installed.
    """
    scorer = program.scorers[part.scores.scorer]
    if isinstance(scorer, Opaque):
        return scorer.blob
    maker = _Maker(program, part)
    if isinstance(scorer, Polynomial):
        scores = maker.polynomial(scorer)
    elif isinstance(scorer, Trees):
        scores = maker.trees(scorer)
    else:
        scores = maker.stack(scorer)
    return maker.g.model(part.name, {"scores": maker.g.reshape(scores, 1, part.width)})


class _Maker(Columns):
    """The graph of one part."""

    def __init__(self, program: Program, part: Part) -> None:
        super().__init__(program, part)
        self.outputs = slice(part.scores.start, part.scores.stop)

    def polynomial(self, s: Polynomial) -> Tensor:
        """(width,) int64."""
        g = self.g
        if not s.terms:
            return self._constant(s.bias[self.outputs])
        x = g.const([[s.constant]], "i8")
        if s.columns:
            codes, there = self.codes(s.columns)
            x = g.concat([g.select(there, codes, g.const([[v or 0 for v in s.substitutes]], "i8")), x], 1)
        products: Tensor | None = None
        for places in zip(*s.terms, strict=True):  # the first factors, the second, the third
            factor = g.gather(x, places, 1)
            products = factor if products is None else g.op("MUL", products, factor)
        assert products is not None
        return self._linear(products, s.weights[self.outputs], s.bias[self.outputs])

    def _linear(self, x: Tensor, weights: Any, bias: Any) -> Tensor:
        g = self.g
        sums = g.sum(g.op("MUL", x, g.const(weights, "i8")), 1)
        return g.op("ADD", sums, g.const(bias, "i8"))

    def _constant(self, values: Sequence[Number]) -> Tensor:
        """(k,) int64. What an output is must come out of an operator."""
        return self.g.op("ADD", self.g.const(values, "i8"), self.g.const([0], "i8"))

    # ------------------------------------------------------------ trees

    def trees(self, s: Trees) -> Tensor:
        """(width,) int64 from int32 sums."""
        g, base = self.g, s.base[self.outputs]
        trees = splits_of(self.program, self.part.scores)
        if not trees:
            return self._constant(base)
        if all(t.width == 1 for t in trees) and self.part.width > 1:
            return self._per_output(trees, base)
        width = self.part.width
        leaves = self._leaves(trees, width)
        return g.cast(g.op("ADD", g.sum(leaves, 0), g.const(base, "i4")), "i8")

    def _per_output(self, trees: Sequence[Splits], base: Sequence[Number]) -> Tensor:
        """Trees of one output each, as many for every output: the i-th of each makes a row."""
        groups: list[list[Splits]] = [[t for t in trees if t.output == o] for o in range(self.part.width)]
        nothing = Splits(0, (), (), (), (), ((0,),))
        most = max(map(len, groups))
        filled = [group + [nothing] * (most - len(group)) for group in groups]
        leaves = self._leaves([t for row in zip(*filled, strict=True) for t in row], 1)
        rows = self.g.reshape(leaves, most, self.part.width)
        return self.g.cast(self.g.op("ADD", self.g.sum(rows, 0), self.g.const(base, "i4")), "i8")

    def stack(self, s: Stack) -> Tensor:
        """(width,) int64."""
        trees = stacked_splits(self.program, s)
        if not trees:
            return self._constant(s.bias[self.outputs])
        z = self.g.cast(self.g.reshape(self._leaves(trees, 1), 1, len(trees)), "i8")
        return self._linear(z, s.weights[self.outputs], s.bias[self.outputs])

    def _leaves(self, trees: Sequence[Splits], width: int) -> Tensor:
        """(n_trees, width) int32: the leaf that each tree reaches, zeros where it says nothing."""
        g, (slots, place, bound) = self.g, self._slots(trees)
        reached, rows = walk(g, slots, trees, place, bound)
        table = np.zeros((sum(map(len, rows)), width), np.int16)
        k = 0
        for t, leaves in zip(trees, rows, strict=True):
            at = t.output if width > 1 else 0
            for leaf in leaves:
                table[k, at : at + t.width] = t.leaves[leaf]
                k += 1
        return g.cast(g.gather(g.const(table, "i2"), reached), "i4")

    def _slots(self, trees: Sequence[Splits]) -> tuple[Tensor, Any, Any]:
        """All values that nodes compare, (k,), first with missing as the least, then as the greatest."""
        columns = sorted({c for t in trees for c in t.columns})
        affine = [c for c in columns if isinstance(self.program.columns[c].rule, Affine)]
        types = {c: self.program.features[self.program.columns[c].feature].dtype for c in columns if c not in affine}
        dtype = "f4" if set(types.values()) <= {"f32"} else "i8"
        least, most = (-np.inf, np.inf) if dtype == "f4" else (LOW, HIGH)
        g, places = self.g, dict[int, int]()
        parts: list[tuple[Tensor, Tensor]] = []
        for kind in sorted(set(types.values())):
            mine = [c for c in columns if types.get(c) == kind]
            value = self.raw[kind] if dtype == "f4" else self.keys(kind)[0]
            parts.append((value, self.present(kind)))
            offset = sum(v.shape[1] for v, _ in parts[:-1])
            places |= {c: offset + self.reading(c)[1] for c in mine}
        if affine:
            offset = sum(v.shape[1] for v, _ in parts)
            codes, there = self.codes(affine)
            parts.append((g.cast(codes, dtype), there))
            places |= {c: offset + k for k, c in enumerate(affine)}
        ways = sorted({m for t in trees for m in t.missing_left}, reverse=True)
        n = sum(v.shape[1] for v, _ in parts)
        filled = [
            g.select(there, value, g.const([[least if way else most]], dtype)) for way in ways for value, there in parts
        ]
        slots = g.reshape(g.concat(filled, 1), n * len(ways)) if filled else g.const([0], dtype)  # lone leaves

        def place(column: int, missing_left: bool) -> int:
            return places[column] + n * ways.index(missing_left)

        def bound(column: int, value: Number) -> Number:
            if value == np.inf:
                return F32_MAX if dtype == "f4" else HIGH - 1
            return value if dtype == "f4" or column in affine else to_key(value, types[column])

        return slots, place, bound
