# SPDX-License-Identifier: Apache-2.0
"""Quantisation of a draft: floats become integers, at the largest scale per scorer that the verifier allows.

A scale is the number of integer steps in one unit of a scorer's score. It is a power of two if the numbers are then
exact, otherwise the largest scale that fits. A threshold takes the scale of the scores that it is compared with, and is
rounded so that integer scores compare as exact scores would: ``score > t`` with floor, ``margin >= t`` with ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from hardcase_edge.errors import ProgramError
from hardcase_edge.program.definition import (
    CODE_MAX,
    MARGIN,
    THRESHOLD,
    Affine,
    Answer,
    Branch,
    Node,
    Number,
    Opaque,
    Polynomial,
    Program,
    Scorer,
    Stack,
    Trees,
)
from hardcase_edge.verifier.require import I32, SAFE
from hardcase_edge.verifier.verify import verify

__all__ = ["Quantised", "check_shape", "quantise"]

MAX_SCALE = 2.0**200  # far above practical scales, far below the largest float

Round = Callable[[float], int]


@dataclass(frozen=True, slots=True)
class Quantised:
    """A program of integers, and for each scorer the number of integer steps in one unit of its score."""

    program: Program
    scales: tuple[float, ...]


def quantise(draft: Program, *, weight_bits: int | None = None) -> Quantised:
    """Quantise a draft.

    Parameters
    ----------
    draft : Program
        Floats in scorers, thresholds and margins.
    weight_bits : 8, 16 or None
        Bits of the weights of all polynomials; None for the bits that each polynomial states.

    Returns
    -------
    Quantised
        Its program has passed ``hardcase_edge.verifier.verify.verify``.

    Raises
    ------
    ProgramError
        The draft is malformed, holds a number that is not finite, or does not fit the integers.
    """
    if weight_bits is not None:
        scorers = [replace(s, weight_bits=weight_bits) if isinstance(s, Polynomial) else s for s in draft.scorers]
        draft = replace(draft, scorers=tuple(scorers))
    check_shape(draft)
    scales: list[float] = []
    integers: list[Scorer] = []
    for k, scorer in enumerate(draft.scorers):
        try:
            integer_scorer, scale = _quantise_scorer(draft, scorer, integers, scales)
        except _NotFiniteError as error:
            raise ProgramError(f"scorer {k} of the draft holds {error}; train it again on finite data") from error
        integers.append(integer_scorer)
        scales.append(scale)
    nodes = [_quantise_node(k, node, scales) for k, node in enumerate(draft.nodes)]
    program = replace(draft, scorers=tuple(integers), nodes=tuple(nodes))
    verify(program)
    return Quantised(program, tuple(scales))


def check_shape(draft: Program) -> None:
    """Verify everything in a draft that does not depend on its floats, with zeros in their place.

    After this, every index of the draft may be used.

    Raises
    ------
    ProgramError
        As ``verify``.
    """
    verify(replace(draft, scorers=tuple(map(_blank, draft.scorers)), nodes=tuple(map(_blank_node, draft.nodes))))


def _blank(s: Scorer) -> Scorer:
    if isinstance(s, Polynomial):
        return replace(s, weights=tuple((0,) * len(row) for row in s.weights), bias=(0,) * len(s.bias))
    if isinstance(s, Trees):
        trees = tuple(replace(t, leaves=(0,) * len(t.leaves)) for t in s.trees)
        return replace(s, base=(0,) * len(s.base), trees=trees)
    if isinstance(s, Stack):
        return replace(s, weights=tuple((0,) * len(row) for row in s.weights), bias=(0,) * len(s.bias))
    return s


def _blank_node(node: Node) -> Node:
    if isinstance(node, Branch):
        return replace(node, threshold=0)
    if isinstance(node, Answer):
        return replace(node, margins=tuple(range(len(node.margins))))
    return node


# ---------------------------------------------------------------- numbers


class _NotFiniteError(ValueError):
    pass


def _integers(values: Iterable[Number], scale: float) -> tuple[int, ...]:
    """Scaled values, rounded to the nearest integers."""
    return tuple(round(v * scale) for v in values)


def _largest(values: Iterable[Number]) -> float:
    """Largest magnitude, 0 for no values. It checks every number of a scorer before the number is scaled."""
    largest = 0.0
    for v in values:
        if not math.isfinite(v):
            raise _NotFiniteError(v)
        largest = max(largest, abs(v))
    return largest


def _scale(limits: Sequence[tuple[float, float]], values: Sequence[Number]) -> float:
    """The largest scale with ``magnitude * scale <= limit`` for each of ``limits``; a power of two if that is exact."""
    top = min([limit / magnitude for magnitude, limit in limits if magnitude > limit / MAX_SCALE], default=1.0)
    if top <= 0:
        raise ProgramError("a scorer's sums leave no room for its weights; use fewer terms or a lower degree")
    power = 2.0 ** math.floor(math.log2(top))
    return power if all((v * power).is_integer() for v in map(float, values)) else top


def _room(width: float, rounded: float) -> float:
    """Bound on a sum before rounding, if ``rounded`` bounds what rounding adds to it."""
    return width - 1 - rounded


# ---------------------------------------------------------------- scorers


def _quantise_scorer(
    draft: Program, s: Scorer, below: Sequence[Scorer], scales: Sequence[float]
) -> tuple[Scorer, float]:
    if isinstance(s, Trees):
        return _trees(s)
    if isinstance(s, Polynomial):
        return _polynomial(s, _code_bounds(draft, s))
    if isinstance(s, Stack):
        trees = below[s.trees]
        assert isinstance(trees, Trees)  # check_shape has verified it
        return _stack(s, trees, scales[s.trees])
    assert isinstance(s, Opaque)
    return s, 1.0


def _trees(s: Trees) -> tuple[Trees, float]:
    leaves = [v for t in s.trees for v in t.leaves]
    sums = [abs(b) for b in s.base]
    _largest(s.base)
    for t in s.trees:
        for j in range(t.width):
            sums[t.output + j] += _largest(t.leaves[j :: t.width])
    limits = [(_largest(leaves), CODE_MAX), (max(sums), _room(I32, (len(s.trees) + 1) / 2))]
    scale = _scale(limits, [*leaves, *s.base])
    trees = tuple(replace(t, leaves=_integers(t.leaves, scale)) for t in s.trees)
    return replace(s, base=_integers(s.base, scale), trees=trees), scale


def _code_bounds(draft: Program, s: Polynomial) -> list[int]:
    """Largest magnitude of each term, which is a product of codes."""
    rules = [draft.columns[c].rule for c in s.columns]
    codes = [max(abs(r.low), abs(r.high)) if isinstance(r, Affine) else CODE_MAX for r in rules]
    codes = [max(c, abs(sub or 0)) for c, sub in zip(codes, s.substitutes, strict=True)]
    codes.append(abs(s.constant))
    return [math.prod(codes[j] for j in term) for term in s.terms]


def _polynomial(s: Polynomial, products: list[int]) -> tuple[Polynomial, float]:
    weights, bias, scale = _linear(s.weights, s.bias, products, 2 ** (s.weight_bits - 1) - 1, 1.0)
    return replace(s, weights=weights, bias=bias), scale


def _stack(s: Stack, trees: Trees, below: float) -> tuple[Stack, float]:
    sizes = [max(abs(int(v)) for v in trees.trees[m].leaves) for m in s.members]
    weights, bias, scale = _linear(s.weights, s.bias, sizes, CODE_MAX, below)
    return replace(s, weights=weights, bias=bias), scale * below


def _linear(
    weights: Sequence[Sequence[Number]],
    bias: Sequence[Number],
    inputs: Sequence[int],
    largest_weight: int,
    below: float,
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...], float]:
    """Integer weights and biases of sums of ``weight * input``, and the scale of the weights.

    ``inputs``: largest magnitudes of the integer inputs; ``below``: scale of the inputs themselves.
    """
    largest = max((_largest(row) for row in weights), default=0.0)
    _largest(bias)
    sums = [
        abs(b) * below + sum(abs(w) * q for w, q in zip(row, inputs, strict=True))
        for row, b in zip(weights, bias, strict=True)
    ]
    limits = [(largest, float(largest_weight)), (max(sums), _room(SAFE * (1 - 1e-9), (1 + sum(inputs)) / 2))]
    scale = _scale(limits, [*(w for row in weights for w in row), *bias])
    return tuple(_integers(row, scale) for row in weights), _integers(bias, scale * below), scale


# ---------------------------------------------------------------- nodes


def _quantise_node(k: int, node: Node, scales: Sequence[float]) -> Node:
    if isinstance(node, Branch):
        rounding: Round = {THRESHOLD: math.floor, MARGIN: math.ceil}.get(node.rule, round)
        return replace(node, threshold=_bound(k, node.threshold, scales[node.scores.scorer], rounding))
    if isinstance(node, Answer):
        margins, confidences = _merge(
            [_bound(k, m, scales[node.scores.scorer], math.ceil) for m in node.margins], node.confidences
        )
        return replace(node, margins=margins, confidences=confidences)
    return node


def _bound(k: int, value: Number, scale: float, rounding: Round) -> int:
    """A threshold in integer steps; an infinite threshold ("never") becomes one that no score reaches."""
    if math.isnan(value):
        raise ProgramError(f"node {k} of the draft compares with NaN; train it again on finite data")
    steps = value * scale
    return int(math.copysign(SAFE, steps)) if abs(steps) >= SAFE else rounding(steps)


def _merge(margins: Sequence[int], confidences: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Merge margins that rounding made equal; of their confidences the highest margin's remains."""
    table = dict(zip(margins, confidences[1:], strict=True))  # the last one wins
    return tuple(table), (confidences[0], *table.values())
