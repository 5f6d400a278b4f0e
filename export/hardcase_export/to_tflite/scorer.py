# SPDX-License-Identifier: Apache-2.0
"""A part of a program as a TFLite file that gives exactly the program's integer scores, one row at a time.

Inputs are raw readings, (1, k) per declared type, named ``f32``, ``f64`` and ``i32``, as in ONNX; the output ``scores``
is (1, width) int64. Trees compare float32 if all features that they read are f32, otherwise int64 keys and codes. Sums
of leaves are int32, as in the program; products are int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Affine, Number, Opaque, Polynomial, Program, Stack, Trees
from hardcase_edge.program.format import to_key

from ..scorers.comparisons import Splits, splits_of, stacked_splits
from ..scorers.parts import ScorerPart
from .columns import HIGH, LOW, Columns
from .graph import Tensor, TfliteGraph

F32_MAX = float(np.finfo(np.float32).max)
MAX_COMPLETE = 10  # levels
Slot = Callable[[int, bool], int]  # from a column, and whether a missing reading goes left, to the number of a slot
Bound = Callable[[int, Number], Number]  # from a column and a threshold to a number of the slots' type
Walked = tuple[Tensor, list[list[int]]]


def tflite_of(program: Program, part: ScorerPart) -> bytes:
    """The TFLite file of one part; if the part is a user's own model, the bytes of that model.

    Raises
    ------
    InputError
        flatbuffers or ai-edge-litert is not installed.
    """
    scorer = program.scorers[part.scores.scorer]
    if isinstance(scorer, Opaque):
        return scorer.blob
    builder = _PartGraph(program, part)
    if isinstance(scorer, Polynomial):
        scores = builder.polynomial(scorer)
    elif isinstance(scorer, Trees):
        scores = builder.trees(scorer)
    elif isinstance(scorer, Stack):
        scores = builder.stack(scorer)
    else:
        raise InputError(f"{part.name} is of kind {type(scorer).__name__}, which TFLite cannot hold yet")
    return builder.g.model(part.name, {"scores": builder.g.reshape(scores, 1, part.width)})


class _PartGraph(Columns):
    """Builder of one part's graph."""

    def __init__(self, program: Program, part: ScorerPart) -> None:
        super().__init__(program, part)
        self.outputs = slice(part.scores.start, part.scores.stop)

    def polynomial(self, s: Polynomial) -> Tensor:
        """(width,) int64 scores of a polynomial."""
        g = self.g
        if not s.terms:
            return self._constant(s.bias[self.outputs])
        x = g.const([[s.constant]], "i8")
        if s.columns:
            codes, present = self.codes(s.columns)
            x = g.concat([g.select(present, codes, g.const([[v or 0 for v in s.substitutes]], "i8")), x], 1)
        products: Tensor | None = None
        for places in zip(*s.terms, strict=True):  # first factors, then second, then third
            factor = g.gather(x, places, 1)
            products = factor if products is None else g.op("MUL", products, factor)
        assert products is not None
        return self._linear(products, s.weights[self.outputs], s.bias[self.outputs])

    def _linear(self, x: Tensor, weights: Any, bias: Any) -> Tensor:
        g = self.g
        sums = g.sum(g.op("MUL", x, g.const(weights, "i8")), 1)
        return g.op("ADD", sums, g.const(bias, "i8"))

    def _constant(self, values: Sequence[Number]) -> Tensor:
        """(k,) int64 constants, through an operator, as an output must come from one."""
        return self.g.op("ADD", self.g.const(values, "i8"), self.g.const([0], "i8"))

    # ------------------------------------------------------------ trees

    def trees(self, s: Trees) -> Tensor:
        """(width,) int64 scores of an ensemble, from int32 sums."""
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
        """Scores of trees with one output each: row i holds the i-th tree of every output, or an empty tree."""
        groups: list[list[Splits]] = [[t for t in trees if t.output == o] for o in range(self.part.width)]
        empty_tree = Splits(0, (), (), (), (), ((0,),))
        n_rows = max(map(len, groups))
        filled = [group + [empty_tree] * (n_rows - len(group)) for group in groups]
        leaves = self._leaves([t for row in zip(*filled, strict=True) for t in row], 1)
        rows = self.g.reshape(leaves, n_rows, self.part.width)
        return self.g.cast(self.g.op("ADD", self.g.sum(rows, 0), self.g.const(base, "i4")), "i8")

    def stack(self, s: Stack) -> Tensor:
        """(width,) int64 scores of a stack."""
        trees = stacked_splits(self.program, s)
        if not trees:
            return self._constant(s.bias[self.outputs])
        z = self.g.cast(self.g.reshape(self._leaves(trees, 1), 1, len(trees)), "i8")
        return self._linear(z, s.weights[self.outputs], s.bias[self.outputs])

    def _leaves(self, trees: Sequence[Splits], width: int) -> Tensor:
        """(n_trees, width) int32: the leaf that each tree reaches; zeros for outputs to which the tree does not add."""
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
        """All values that nodes compare, (k,), first with missing as the least number, then as the greatest.

        Returns
        -------
        slots : (k,) float32 or int64
        place : from a column, and whether missing goes left, to the position of its slot
        bound : from a column and a threshold to a number of the slots' type
        """
        columns = sorted({c for t in trees for c in t.columns})
        affine = [c for c in columns if isinstance(self.program.columns[c].rule, Affine)]
        types = {c: self.program.features[self.program.columns[c].feature].dtype for c in columns if c not in affine}
        dtype = "f4" if set(types.values()) <= {"f32"} else "i8"
        least, greatest = (-np.inf, np.inf) if dtype == "f4" else (LOW, HIGH)
        g, places = self.g, dict[int, int]()
        parts: list[tuple[Tensor, Tensor]] = []
        for kind in sorted(set(types.values())):
            of_type = [c for c in columns if types.get(c) == kind]
            value = self.raw[kind] if dtype == "f4" else self.keys(kind)[0]
            parts.append((value, self.present(kind)))
            offset = sum(v.shape[1] for v, _ in parts[:-1])
            places |= {c: offset + self.reading(c)[1] for c in of_type}
        if affine:
            offset = sum(v.shape[1] for v, _ in parts)
            codes, present = self.codes(affine)
            parts.append((g.cast(codes, dtype), present))
            places |= {c: offset + k for k, c in enumerate(affine)}
        directions = sorted({m for t in trees for m in t.missing_left}, reverse=True)
        n = sum(v.shape[1] for v, _ in parts)
        filled = [
            g.select(present, value, g.const([[least if goes_left else greatest]], dtype))
            for goes_left in directions
            for value, present in parts
        ]
        slots = (
            g.reshape(g.concat(filled, 1), n * len(directions)) if filled else g.const([0], dtype)
        )  # trees that are lone leaves

        def place(column: int, missing_left: bool) -> int:
            return places[column] + n * directions.index(missing_left)

        def bound(column: int, value: Number) -> Number:
            if value == np.inf:
                return F32_MAX if dtype == "f4" else HIGH - 1
            return value if dtype == "f4" or column in affine else to_key(value, types[column])

        return slots, place, bound


# Tree ensembles in TFLite, which has no tree operator: all trees are walked at once, level by level.
#
# A reading has two *slots*: in one a missing reading is the least number, in the other the greatest, so a step is one
# comparison whichever way a missing reading goes. Shallow trees are completed, and each level has its own tables:
# place p leads to 2p, or to 2p + 1 if its slot is above its bound. Otherwise nodes and leaves share one table in
# which the two children of a node are adjacent, and a leaf leads to itself. ``walk`` takes the form with fewer bytes.


def walk(g: TfliteGraph, slots: Tensor, trees: Sequence[Splits], slot: Slot, bound: Bound) -> Walked:
    """The place at which each tree ends, and the leaf that each place stands for.

    Parameters
    ----------
    slots : (k,) float32 or int64
    slot : the number of a column's slot
    bound : a column's threshold as a number of the slots' type

    Returns
    -------
    places : (n_trees,) int32, rows of a table
    rows : per tree, the leaf of each of its rows, in the table's order
    """
    depth = max(t.depth for t in trees)
    size = 4 + np.dtype(slots.dtype).itemsize
    n_nodes = sum(len(t.children) for t in trees)
    complete = len(trees) * (2**depth - 1) * size if depth <= MAX_COMPLETE else math.inf
    if complete + len(trees) * 2**depth * 2 <= (2 * n_nodes + len(trees)) * (size + 4 + 2):
        return _complete(g, slots, trees, depth, slot, bound)
    return _linked(g, slots, trees, depth, slot, bound)


def _complete(g: TfliteGraph, slots: Tensor, trees: Sequence[Splits], depth: int, slot: Slot, bound: Bound) -> Walked:
    place: Tensor | None = None
    at = [[0 if t.children else -1] for t in trees]  # per tree and place, a node or -1 - leaf
    for _ in range(depth):
        slot_numbers, own_bounds, below = [], [], []
        for t, nodes in zip(trees, at, strict=True):
            below.append([c for i in nodes for c in (t.children[i] if i >= 0 else (i, i))])
            slot_numbers += [slot(t.columns[i], t.missing_left[i]) if i >= 0 else 0 for i in nodes]
            own_bounds += [bound(t.columns[i], t.bounds[i]) if i >= 0 else 0 for i in nodes]
        if place is None:  # all trees at their roots
            value, limit = g.gather(slots, slot_numbers), g.const(own_bounds, slots.dtype)
            place = g.const(2 * np.arange(len(trees)), "i4")
        else:
            value = g.gather(slots, g.gather(g.const(slot_numbers, "i4"), place))
            limit = g.gather(g.const(own_bounds, slots.dtype), place)
            place = g.op("ADD", place, place)
        place = g.op("ADD", place, g.cast(g.compare("GREATER", value, limit), "i4"))
        at = below
    if place is None:
        place = g.const(np.arange(len(trees)), "i4")
    return place, [[-1 - i for i in nodes] for nodes in at]


def _linked(g: TfliteGraph, slots: Tensor, trees: Sequence[Splits], depth: int, slot: Slot, bound: Bound) -> Walked:
    """As ``walk``, with one table; a leaf's bound is above every value, so the leaf leads to its own ``left``."""
    dtype = slots.dtype
    top: Number = math.inf if dtype == "f4" else 2**63 - 1
    slot_numbers: list[int] = []
    bounds: list[Number] = []
    left: list[int] = []
    roots, rows = [], []
    for t in trees:
        roots.append(len(slot_numbers))
        order = [0 if t.children else -1]
        for i in order:  # the loop appends to the list
            left.append(roots[-1] + len(order) if i >= 0 else len(left))
            slot_numbers.append(slot(t.columns[i], t.missing_left[i]) if i >= 0 else 0)
            bounds.append(bound(t.columns[i], t.bounds[i]) if i >= 0 else top)
            order += t.children[i] if i >= 0 else ()
        rows.append([-1 - i if i < 0 else 0 for i in order])
    tables: list[NDArray[np.int32]] = [np.array(slot_numbers, np.int32), np.array(left, np.int32)]
    slot_of, left_of = (g.const(table, "i4") for table in tables)
    bound_of, place = g.const(bounds, dtype), g.const(roots, "i4")
    for _ in range(depth):
        above = g.compare("GREATER", g.gather(slots, g.gather(slot_of, place)), g.gather(bound_of, place))
        place = g.op("ADD", g.gather(left_of, place), g.cast(above, "i4"))
    return place, rows
