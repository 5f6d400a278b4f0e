# SPDX-License-Identifier: Apache-2.0
"""A part of a program as an ONNX graph that gives exactly the program's integer scores.

Inputs are raw readings, one tensor (n, k) per declared type, named ``f32``, ``f64`` and ``i32``. NaN marks a missing
reading, and -2147483648 does in an i32 input. The output ``scores`` is (n, width) int64. Every step is exact: readings
are compared in a type that holds them, affine columns and sums of products are int64, and trees either add leaves that
a float adds without rounding, or give the number of the leaf that they reach. If the verifier proves that a reading is
never missing, the scores of a row without it mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import (
    AVERAGE,
    CODE_MAX,
    CONV,
    DEPTHWISE,
    Affine,
    Layer,
    Network,
    Opaque,
    Polynomial,
    Program,
    Rank,
    Stack,
    Trees,
)
from hardcase_edge.program.readings import DTYPES
from hardcase_edge.program.reads import layer_inputs

from ..scorers.comparisons import Splits, splits_of, stacked_splits
from ..scorers.parts import ScorerPart
from .graph import OnnxGraph

I32_LOW, I32_HIGH = -(2.0**31), 2.0**31 - 1
EXACT_F32 = 2**24  # float32 holds every integer up to this one
Matrix = tuple[str, dict[int, int]]  # a value (n, k), and the column of each feature or program column in it


def onnx_of(program: Program, part: ScorerPart, manifest: Manifest) -> bytes:
    """The ONNX file of one part, which has passed the ONNX checker.

    Raises
    ------
    InputError
        The part is a user's TFLite model.
    """
    scorer = program.scorers[part.scores.scorer]
    if isinstance(scorer, Opaque):
        raise InputError(f"{part.name} is a user's TFLite model, which ONNX cannot hold; use --tflite")
    builder = _PartGraph(program, part)
    if isinstance(scorer, Polynomial):
        scores = builder.polynomial(scorer)
    elif isinstance(scorer, Network):
        scores = builder.network(scorer)
    elif isinstance(scorer, Trees):
        scores = builder.trees(scorer)
    else:
        scores = builder.stack(scorer)
    builder.g.op("Identity", scores, output="scores")
    inputs = {dtype: len(features) for dtype, features in part.inputs.items()}
    notes = {f"hardcase.{d}": json.dumps([manifest.features[f] for f in fs]) for d, fs in part.inputs.items()}
    return builder.g.model(part.name, inputs, "scores", part.width, notes)


class _PartGraph:
    """Builder of one part's graph; ``part`` names the inputs and outputs."""

    def __init__(self, program: Program, part: ScorerPart) -> None:
        self.program, self.part, self.g = program, part, OnnxGraph()
        self.outputs = slice(part.scores.start, part.scores.stop)

    # ------------------------------------------------------------ readings and columns

    def readings(self, dtype: str) -> Matrix:
        """All readings as floats of this type, NaN if missing or not finite, with the column of each feature."""
        g, values, places = self.g, [], dict[int, int]()
        for name, features in self.part.inputs.items():
            value = name if name == dtype else g.cast(name, dtype)
            absent = DTYPES[name].missing
            is_missing = g.op("Equal", name, g.const(absent, "i4")) if name == "i32" else g.op("IsInf", value)
            values.append(g.op("Where", is_missing, g.const(np.nan, DTYPES[dtype].numpy), value))
            places |= {f: len(places) + k for k, f in enumerate(features)}
        return (values[0] if len(values) == 1 else g.op("Concat", *values, axis=1)), places

    def affine(self, columns: Sequence[int], readings: Matrix) -> str:
        """(n, k) int64 codes of affine columns from float64 readings; the code of a missing reading is arbitrary."""
        g, (value, places) = self.g, readings
        chosen = [self.program.columns[c] for c in columns]
        rules = [c.rule for c in chosen if isinstance(c.rule, Affine)]
        x = g.op("Gather", value, g.const([places[c.feature] for c in chosen], "i8"), axis=1)
        x = g.op("Where", g.op("IsNaN", x), g.const(0, "f8"), x)
        q = g.op("Floor", g.op("Mul", x, g.const([2.0**r.frac for r in rules], "f8")))
        q = g.op(
            "Where", g.op("Less", x, g.const(0, "f8")), g.op("Min", q, g.const(-1, "f8")), q
        )  # a negative reading is never scaled to 0
        q = g.op("Max", g.op("Min", q, g.const(I32_HIGH, "f8")), g.const(I32_LOW, "f8"))
        v = g.op("Mul", g.cast(q, "i64"), g.const([r.mul for r in rules], "i8"))
        v = g.op("Add", v, g.const([r.add for r in rules], "i8"))
        code = g.floored(v, g.const([1 << r.shift for r in rules], "i8"))
        return g.clamp(code, [r.low for r in rules], [r.high for r in rules])

    def rank(self, column: int, readings: Matrix) -> str:
        """(n, 1) int64 codes of a rank column from float64 readings."""
        g, (value, places) = self.g, readings
        chosen = self.program.columns[column]
        assert isinstance(chosen.rule, Rank)
        x = g.op("Gather", value, g.const([places[chosen.feature]], "i8"), axis=1)
        above = g.op("Greater", x, g.const([chosen.rule.thresholds], "f8"))
        count = g.op("ReduceSum", g.cast(above, "i64"), g.const([1], "i8"), keepdims=1)
        return g.op("Sub", count, g.const(CODE_MAX, "i8"))

    def codes(self, columns: Sequence[int]) -> tuple[str, str]:
        """(n, k) int64 codes of these columns, and (n, k) bool: which readings are missing."""
        g, readings = self.g, self.readings("f64")
        rules = {c: self.program.columns[c].rule for c in columns}
        affine = [c for c in columns if isinstance(rules[c], Affine)]
        ranks = [c for c in columns if isinstance(rules[c], Rank)]
        groups = ([self.affine(affine, readings)] if affine else []) + [self.rank(c, readings) for c in ranks]
        order = [*affine, *ranks]
        joined = groups[0] if len(groups) == 1 else g.op("Concat", *groups, axis=1)
        if order != list(columns):
            joined = g.op("Gather", joined, g.const([order.index(c) for c in columns], "i8"), axis=1)
        features = [readings[1][self.program.columns[c].feature] for c in columns]
        raw = g.op("Gather", readings[0], g.const(features, "i8"), axis=1)
        return joined, g.op("IsNaN", raw)

    def filled(self, s: Polynomial | Network) -> str:
        """(n, k) int64 codes of a scorer's columns, its substitutes where readings are missing."""
        codes, missing = self.codes(s.columns)
        return self.g.op("Where", missing, self.g.const([v or 0 for v in s.substitutes], "i8"), codes)

    # ------------------------------------------------------------ sums of products

    def network(self, s: Network) -> str:
        """(n, width) int64 scores of a network."""
        scores = network_scores(self.g, s, self.filled(s))
        return self._take(scores, range(self.outputs.start, self.outputs.stop))

    def rows(self, values: Any) -> str:
        """The int64 values (k,) repeated for each row, (n, k)."""
        g = self.g
        n = g.op("Shape", next(iter(self.part.inputs)), start=0, end=1)
        return g.op("Expand", g.const([values], "i8"), g.op("Concat", n, g.const([1], "i8"), axis=0))

    def polynomial(self, s: Polynomial) -> str:
        """(n, width) int64 scores of a polynomial; every step is in int64."""
        if not s.terms:
            return self.rows(s.bias[self.outputs])
        g, x = self.g, self.rows([s.constant])
        if s.columns:
            x = g.op("Concat", self.filled(s), x, axis=1)
        products = ""
        for places in zip(*s.terms, strict=True):  # first factors, then second, then third
            factor = x if list(places) == list(range(len(s.columns) + 1)) else self._take(x, places)
            products = g.op("Mul", products, factor) if products else factor
        return self._linear(products, s.weights[self.outputs], s.bias[self.outputs])

    def _take(self, x: str, places: Sequence[int]) -> str:
        return self.g.op("Gather", x, self.g.const(places, "i8"), axis=1)

    def _linear(self, x: str, weights: Any, bias: Any) -> str:
        g = self.g
        return g.op("Add", g.op("MatMul", x, g.const(np.array(weights).T, "i8")), g.const(bias, "i8"))

    # ------------------------------------------------------------ trees

    def trees(self, s: Trees) -> str:
        """(n, width) int64 scores. Floats add leaves if that is exact; otherwise trees give numbers of leaves."""
        g, base = self.g, s.base[self.outputs]
        trees = splits_of(self.program, self.part.scores)
        if not trees:
            return self.rows(base)
        value, kind = self._values(trees)
        largest = sum(max(abs(v) for leaf in t.leaves for v in leaf) for t in trees)
        if all(t.width == 1 for t in trees) and (kind == "f64" or largest < EXACT_F32):
            weights = [leaf[0] for t in trees for leaf in t.leaves]
            sums = self._ensemble(value, kind, trees, weights, [t.output for t in trees], self.part.width)
            return g.op("Add", g.cast(sums, "i64"), g.const(base, "i8"))
        table = np.zeros((sum(len(t.leaves) for t in trees), self.part.width), np.int16)
        rows = iter(table)
        for t in trees:
            for leaf in t.leaves:
                next(rows)[t.output : t.output + t.width] = leaf
        reached = self._ensemble(value, kind, trees, range(len(table)), range(len(trees)), len(trees))
        leaves = g.cast(g.op("Gather", g.const(table, "i2"), g.cast(reached, "i64"), axis=0), "i64")
        sums = g.op("ReduceSum", leaves, g.const([1], "i8"), keepdims=0)
        return g.op("Add", sums, g.const(base, "i8"))

    def stack(self, s: Stack) -> str:
        """(n, width) int64 scores of a stack; the ensemble gives each tree's leaf value as an output of its own."""
        trees = stacked_splits(self.program, s)
        if not trees:
            return self.rows(s.bias[self.outputs])
        value, kind = self._values(trees)
        weights = [leaf[0] for t in trees for leaf in t.leaves]
        z = self._ensemble(value, kind, trees, weights, range(len(trees)), len(trees))
        return self._linear(self.g.cast(z, "i64"), s.weights[self.outputs], s.bias[self.outputs])

    def _values(self, trees: Sequence[Splits]) -> tuple[Matrix, str]:
        """Values that nodes compare, by column of the program; float32 if it holds all exactly, otherwise float64."""
        columns = sorted({c for t in trees for c in t.columns})
        chosen = {c: self.program.columns[c] for c in columns}
        ranks = [c for c in columns if isinstance(chosen[c].rule, Rank)]
        kind = "f32" if all(self.program.features[chosen[c].feature].dtype == "f32" for c in ranks) else "f64"
        value, features = self.readings(kind)
        places = {c: features[chosen[c].feature] for c in ranks}
        affine = [c for c in columns if c not in places]
        if affine:
            codes, missing = self.codes(affine)
            none = self.g.const(np.nan, DTYPES[kind].numpy)
            codes = self.g.op("Where", missing, none, self.g.cast(codes, kind))
            value = self.g.op("Concat", value, codes, axis=1)
            places |= {c: len(features) + k for k, c in enumerate(affine)}
        return (value, places), kind

    def _ensemble(
        self, values: Matrix, kind: str, trees: Sequence[Splits], weights: Sequence[int], targets: Any, n_targets: int
    ) -> str:
        """A TreeEnsemble of ai.onnx.ml 5: (n, n_targets) sums of leaf ``weights``, listed tree after tree."""
        g, (value, places) = self.g, values
        dtype = np.dtype(DTYPES[kind].numpy)
        nodes = [node for t in _offset(trees) for node in t]
        columns, bounds, left_if_missing, left, right = zip(*nodes, strict=True)
        leaf_targets = [target for t, target in zip(trees, targets, strict=True) for _ in t.leaves]
        roots = np.cumsum([0, *(max(1, len(t.children)) for t in trees)])[:-1]
        return g.op(
            "TreeEnsemble",
            value,
            domain="ai.onnx.ml",
            aggregate_function=1,  # sum
            n_targets=n_targets,
            post_transform=0,
            tree_roots=roots.tolist(),
            nodes_featureids=[places.get(c, 0) for c in columns],
            nodes_modes=g.tensor(np.zeros(len(nodes), np.uint8)),  # 0: left if at most
            nodes_splits=g.tensor(np.minimum(np.array(bounds, "f8"), np.finfo(dtype).max).astype(dtype)),
            nodes_missing_value_tracks_true=[int(m) for m in left_if_missing],
            nodes_truenodeids=[at for _, at in left],
            nodes_trueleafs=[int(is_leaf) for is_leaf, _ in left],
            nodes_falsenodeids=[at for _, at in right],
            nodes_falseleafs=[int(is_leaf) for is_leaf, _ in right],
            leaf_targetids=leaf_targets,
            leaf_weights=g.tensor(np.array(weights, dtype)),
        )


def _offset(trees: Sequence[Splits]) -> Any:
    """Nodes of each tree; a child is (whether it is a leaf, number over all trees). A lone leaf gets a node."""
    first_node = first_leaf = 0
    for t in trees:
        if not t.children:
            yield [(-1, 0.0, True, (True, first_leaf), (True, first_leaf))]
            first_node += 1
        else:
            pairs = [
                [(False, first_node + c) if c >= 0 else (True, first_leaf - 1 - c) for c in pair] for pair in t.children
            ]
            yield [
                (column, bound, missing, *pair)
                for column, bound, missing, pair in zip(t.columns, t.bounds, t.missing_left, pairs, strict=True)
            ]
            first_node += len(t.children)
        first_leaf += len(t.leaves)


# A network of int8 layers as ONNX nodes with exactly the program's integers.
#
# Windows are gathered, and all sums are int64 MatMul or ReduceSum: onnxruntime's own integer convolutions add pairs of
# products in 16 bits on some processors, and multiply by floats to scale.


LEAST = -(2**31)


def network_scores(g: OnnxGraph, s: Network, x: str) -> str:
    """All outputs of the network, (n, outputs) int64, for its codes, (n, k) int64."""
    for layer, shape, zero_point in layer_inputs(s):
        places = _places(layer, shape)
        if layer.kind in (CONV, DEPTHWISE):
            windows = _windows(g, g.op("Sub", x, g.const(zero_point, "i8")), places, shape, 0)
            x = _scaled(g, layer, _sums(g, layer, windows, shape[2]))
        elif layer.kind == AVERAGE:
            x = _average(g, _windows(g, x, places, shape, 0), (places >= 0).sum(axis=1)[:, None])
        else:
            x = g.op("ReduceMax", _windows(g, x, places, shape, LEAST), g.const([2], "i8"), keepdims=0)
        x = g.clamp(x, layer.low, layer.high)
    outputs = g.op("Reshape", x, g.const([-1, prod(s.layers[-1].shape)], "i8"))
    return g.op("Sub", outputs, g.const(s.layers[-1].zero_point, "i8"))


def _places(layer: Layer, shape: tuple[int, int, int]) -> NDArray[np.int64]:
    """Which place of the input each place of each window is, (windows, places of one), -1 outside."""
    axes = []
    for k in (0, 1):
        at = np.arange(layer.shape[k])[:, None] * layer.stride[k] - layer.padding[k] + np.arange(layer.window[k])
        axes.append(np.where((at >= 0) & (at < shape[k]), at, -1))
    rows, columns = axes[0][:, None, :, None], axes[1][None, :, None, :]
    places = np.where((rows >= 0) & (columns >= 0), rows * shape[1] + columns, -1)
    return np.asarray(places.reshape(prod(layer.shape[:2]), -1))


def _windows(g: OnnxGraph, x: str, places: NDArray[np.int64], shape: tuple[int, int, int], outside: int) -> str:
    """(n, windows, places of one, channels)."""
    n_places, channels = prod(shape[:2]), shape[2]
    if np.array_equal(places.ravel(), np.arange(n_places)):  # a dense layer, or one place after another
        return g.op("Reshape", x, g.const([-1, *places.shape, channels], "i8"))
    x = g.op("Reshape", x, g.const([-1, n_places, channels], "i8"))
    x = g.op("Gather", x, g.const(np.maximum(places, 0), "i4"), axis=1)
    is_inside = places[..., None] >= 0
    return x if is_inside.all() else g.op("Where", g.const(is_inside, "?"), x, g.const(outside, "i8"))


def _sums(g: OnnxGraph, layer: Layer, windows: str, channels: int) -> str:
    """(n, windows, channels of the output) before the bias."""
    size, weights = prod(layer.window), np.array(layer.weights)
    if layer.kind == DEPTHWISE:
        products = g.op("Mul", windows, g.cast(g.const(weights.reshape(size, channels), "i1"), "i64"))
        return g.op("ReduceSum", products, g.const([2], "i8"), keepdims=0)
    flat = g.op("Reshape", windows, g.const([-1, prod(layer.shape[:2]), size * channels], "i8"))
    return g.op("MatMul", flat, g.cast(g.const(weights.reshape(layer.shape[2], -1).T, "i1"), "i64"))


def _scaled(g: OnnxGraph, layer: Layer, sums: str) -> str:
    divisors = np.left_shift(np.int64(1), np.array(layer.shifts, np.int64))
    v = g.op("Mul", g.op("Add", sums, g.const(layer.bias, "i8")), g.const(layer.multipliers, "i8"))
    v = g.floored(g.op("Add", v, g.const(divisors // 2, "i8")), g.const(divisors, "i8"))
    return g.op("Add", v, g.const(layer.zero_point, "i8"))


def _average(g: OnnxGraph, windows: str, counts: NDArray[np.int64]) -> str:
    """Means over the places inside, halves away from 0; Div of int64 rounds towards 0."""
    total = g.op("ReduceSum", windows, g.const([2], "i8"), keepdims=0)
    is_low, half = g.op("Less", total, g.const(0, "i8")), counts // 2
    moved = g.op("Add", total, g.op("Where", is_low, g.const(-half, "i8"), g.const(half, "i8")))
    return g.op("Div", moved, g.const(counts, "i8"))
