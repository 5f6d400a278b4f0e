# SPDX-License-Identifier: Apache-2.0
"""Writes a program as tensors for a bundle; ``decode`` is the inverse.

docs/SPEC-program-v1.md section 6 defines every word.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import chain
from typing import assert_never

from ..errors import ProgramError
from .definition import (
    LAYERS,
    MISSING,
    Acquire,
    Affine,
    Answer,
    Branch,
    Column,
    Forward,
    Layer,
    Network,
    Node,
    Number,
    Opaque,
    Polynomial,
    Program,
    Scorer,
    Select,
    Slice,
    Stack,
    Tree,
    Trees,
)
from .format import (
    HEADER,
    LEAST_COSTS,
    NODE,
    PACKED,
    PACKED_COLUMNS,
    POOLS,
    PROGRAM_VERSION,
    RULES,
    SCORER,
    are_held,
    to_keys,
)
from .kinds import ANSWERS
from .readings import DTYPES


class _Writer:
    """The pools of numbers, filled run by run."""

    def __init__(self, is_draft: bool) -> None:
        self.is_draft = is_draft
        self.pools: dict[str, array] = {name: array(code) for name, code in POOLS.items()}  # type: ignore[type-arg]
        self._offsets: dict[tuple[str, bytes], int] = {}

    def put(self, pool: str, values: Iterable[Number]) -> int:
        """The offset of these values in a pool; equal runs are stored once."""
        try:
            run = array(POOLS[pool], values)
        except (OverflowError, TypeError) as error:
            raise ProgramError(f"a number does not fit the {pool} pool: {error}; quantise it first") from error
        key = (pool, run.tobytes())
        if key not in self._offsets:
            self._offsets[key] = len(self.pools[pool])
            self.pools[pool].extend(run)
        return self._offsets[key]

    def numbers(self, pool: str, values: Iterable[Number]) -> int:
        """The offset of numbers of a scorer or node, which are floats in a draft."""
        return self.put("f64", map(float, values)) if self.is_draft else self.put(pool, values)


def encode(program: Program, *, is_draft: bool = False) -> dict[str, array]:  # type: ignore[type-arg]
    """The tensors of a program: ``program`` (32-bit words) and the pools that are not empty.

    Parameters
    ----------
    program : Program
    is_draft : whether its scorers hold floats

    Raises
    ------
    ProgramError
        A number does not fit its field.
    """
    w = _Writer(is_draft)
    up, costs = program.uplink, list(program.costs.terms.values())
    while len(costs) > LEAST_COSTS and not costs[-1]:
        costs.pop()
    words: list[int] = [
        PROGRAM_VERSION,
        int(is_draft),
        len(program.features),
        len(program.sensors),
        len(program.columns),
        len(program.scorers),
        len(program.nodes),
        program.n_classes,
        program.max_item_size,
        w.put("i64", costs),
        up.request_bytes,
        w.put("i32", up.features),
        len(up.features),
        len(costs) - LEAST_COSTS,
    ]
    words += [0] * (HEADER - len(words))
    for f in program.features:
        words += [DTYPES[f.dtype].number, int(f.nullable)]
    for s in program.sensors:
        words += [w.put("i32", s.features), len(s.features), w.put("i64", s.cost), len(s.cost)]
    for c in program.columns:
        words += _column(w, c, program.features[c.feature].dtype)
    for scorer in program.scorers:
        words += _padded(_scorer(w, scorer), SCORER)
    for node in program.nodes:
        words += _padded(_node(w, node), NODE)
    try:
        tensors = {"program": array("i", words)}
    except (OverflowError, TypeError) as error:
        raise ProgramError(f"a program word is not a 32-bit integer: {error}; use a smaller program") from error
    return {**{k: p for k, p in w.pools.items() if p}, **tensors}


def _padded(words: list[int], size: int) -> list[int]:
    return words + [0] * (size - len(words))


def _column(w: _Writer, column: Column, dtype: str) -> list[int]:
    rule = column.rule
    if isinstance(rule, Affine):
        fields = (rule.frac, rule.mul, rule.add, rule.shift, rule.low, rule.high)
        return [column.feature, 0, w.put("i64", fields), len(fields)]
    if not are_held(rule.thresholds, dtype):
        inexact = next(t for t in rule.thresholds if not are_held([t], dtype))
        raise ProgramError(f"the threshold {inexact!r} is not exactly an {dtype}; round it down to one first")
    keys = to_keys(rule.thresholds, dtype)
    return [column.feature, 1, w.put("i64" if dtype == "f64" else "i32", keys), len(keys)]


def _scorer(w: _Writer, s: Scorer) -> list[int]:
    if isinstance(s, Polynomial):
        substitutes = [MISSING if x is None else x for x in s.substitutes]
        is_packed, terms, weights = _terms(w, s)
        return [
            0,
            len(s.columns),
            w.put("i32", s.columns),
            w.put("i16", substitutes),
            len(s.terms),
            len(s.terms[0]) if s.terms else 1,
            terms,
            len(s.bias),
            s.weight_bits + PACKED * is_packed,
            weights,
            w.numbers("i64", s.bias),
            s.constant,
        ]
    if isinstance(s, Trees):
        records = [x for tree in s.trees for x in _tree(w, tree)]
        return [
            1,
            len(s.columns),
            w.put("i32", s.columns),
            len(s.base),
            w.numbers("i64", s.base),
            len(s.trees),
            w.put("i32", records),
        ]
    if isinstance(s, Stack):
        return [
            2,
            s.trees,
            len(s.members),
            w.put("i32", s.members),
            len(s.bias),
            w.numbers("i16", [x for row in s.weights for x in row]),
            w.numbers("i64", s.bias),
        ]
    if isinstance(s, Network):
        records = [x for layer in s.layers for x in _layer(w, layer)]
        substitutes = [MISSING if x is None else x for x in s.substitutes]
        columns = [len(s.columns), w.put("i32", s.columns), w.put("i16", substitutes)]
        return [4, *columns, *s.shape, s.zero_point, len(s.layers), w.put("i32", records)]
    if isinstance(s, Opaque):
        blob = array("b", s.blob)
        features, bounds = w.put("i32", s.features), (s.low, s.high)
        at_blob = w.put("i8", blob)
        return [3, len(s.features), features, at_blob, len(blob), len(s.low), *(w.put("i64", b) for b in bounds)]
    assert_never(s)


def _terms(w: _Writer, s: Polynomial) -> tuple[bool, int, int]:
    """Whether a polynomial's terms and weights are packed, and the offsets of both. They are if that is smaller."""
    positions = [x for term in s.terms for x in term]
    weights = [x for row in s.weights for x in row]
    nonzero = [x for x in weights if x]
    saved_bytes = len(positions) - len(weights) / 8 + (len(weights) - len(nonzero)) * s.weight_bits / 8
    if w.is_draft or len(s.columns) > PACKED_COLUMNS or saved_bytes <= 0:
        return False, w.put("i16", positions), w.numbers(f"i{s.weight_bits}", weights)
    bits = [int(x != 0) for x in weights] + [0] * (-len(weights) % 8)
    mask = array("b", bytes(sum(bits[at + k] << k for k in range(8)) for at in range(0, len(bits), 8)))
    return True, w.put("i8", [*positions, *mask]), w.put(f"i{s.weight_bits}", nonzero)


def _tree(w: _Writer, t: Tree) -> list[int]:
    slots = [2 * c + (not left) for c, left in zip(t.splits, t.missing_left, strict=True)]
    return [
        t.output,
        t.width,
        len(t.splits),
        int(bool(t.children)),
        w.put("i16", slots),
        w.put("i16", t.thresholds),
        w.put("i16", chain.from_iterable(t.children)),
        w.numbers("i16", t.leaves),
    ]


def _layer(w: _Writer, layer: Layer) -> list[int]:
    return [
        LAYERS.index(layer.kind),
        *layer.window,
        *layer.stride,
        *layer.padding,
        *layer.shape,
        layer.zero_point,
        layer.low,
        layer.high,
        w.put("i8", layer.weights),
        w.put("i32", layer.bias),
        w.put("i32", layer.multipliers),
        w.put("i8", layer.shifts),
    ]


def _node(w: _Writer, n: Node) -> list[int]:
    if isinstance(n, Acquire):
        return [0, w.put("i32", n.sensors), len(n.sensors), n.then, n.otherwise]
    if isinstance(n, Branch):
        return [
            1,
            *_slice_words(n.scores),
            RULES.index(n.rule),
            len(n.targets),
            w.put("i32", n.targets),
            w.numbers("i64", (n.threshold,)),
            len(n.bracket),
            w.put("i32", [x for pair in n.bracket for x in pair]),
        ]
    if isinstance(n, Select):
        records = [x for c in n.candidates for x in (c.max_size, w.put("i64", c.cost), len(c.cost), c.target)]
        return [2, len(n.candidates), w.put("i32", records), n.otherwise]
    if isinstance(n, Answer):
        return [
            3,
            *_slice_words(n.scores),
            ANSWERS.index(n.kind),
            len(n.margins),
            w.numbers("i64", n.margins),
            w.put("i16", n.confidences),
            n.shift,
        ]
    if isinstance(n, Forward):
        return [4, w.put("i32", n.sensors), len(n.sensors), n.fallback]
    assert_never(n)


def _slice_words(s: Slice) -> list[int]:
    return [s.scorer, s.start, s.stop]
