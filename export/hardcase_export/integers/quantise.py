# SPDX-License-Identifier: Apache-2.0
"""Quantisation of a draft: floats become integers, at the largest scale per scorer that the verifier allows.

A scale is the number of integer steps in one unit of a scorer's score. It is a power of two if the numbers are then
exact, or if the score is a value, otherwise the largest scale that fits. Outputs that answer values have scales of
their own, and a shift brings each Answer to the one scale of the program's values. A threshold takes the scale of the
scores that it is compared with, and is rounded so that integer scores compare as exact scores would: ``score > t`` with
floor, ``margin >= t`` with ceiling. A model of the user's own gives integers already: a draft's Answer of its value has
a shift, which is the scale's.
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
    Tree,
    Trees,
    offsets_of,
)
from hardcase_edge.program.kinds import answers_number
from hardcase_edge.program.limits import SAFE
from hardcase_edge.verifier.require import I32
from hardcase_edge.verifier.verify import verify

MAX_SCALE = 2.0**200  # far above practical scales, far below the largest float
MAX_OPAQUE_SHIFT = 126  # in a draft, to either side: 2 to this power is a float32, as the model's numbers are
FINER = 40  # powers of two by which a scorer's values may be finer than the program's

Round = Callable[[float], int]
Scales = tuple[float, ...]  # by output


@dataclass(frozen=True, slots=True)
class Quantised:
    """A program of integers, and its scales: integer steps in one unit of a score, by scorer and output.

    ``steps``: a result of a program of values is the value times 2^steps; None for classes.
    """

    program: Program
    scales: tuple[Scales, ...]
    steps: int | None = None


def quantise(draft: Program, *, weight_bits: int | None = None, steps: int | None = None) -> Quantised:
    """Quantise a draft.

    Parameters
    ----------
    draft : Program
        Floats in scorers, thresholds and margins.
    weight_bits : 8, 16 or None
        Bits of the weights of all polynomials; None for the bits that each polynomial states.
    steps : int or None
        Of a program of values: a result is the value times 2^steps. None: the scale of the coarsest Answer.

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
    _check_shifts(draft)
    finest = MAX_SCALE if steps is None else 2.0 ** (steps + FINER)
    scales: list[Scales] = []
    integers: list[Scorer] = []
    for k in range(len(draft.scorers)):
        try:
            integer_scorer, scale = _quantise_scorer(draft, k, integers, scales, finest)
        except _NotFiniteError as error:
            raise ProgramError(f"scorer {k} of the draft holds {error}; train it again on finite data") from error
        integers.append(integer_scorer)
        scales.append(scale)
    if not draft.n_classes and steps is None:
        coarsest = min(_exponent(node, scales) for node in draft.nodes if isinstance(node, Answer))
        return quantise(draft, steps=coarsest)
    nodes = [_quantise_node(k, node, scales, steps) for k, node in enumerate(draft.nodes)]
    program = replace(draft, scorers=tuple(integers), nodes=tuple(nodes))
    verify(program)
    return Quantised(program, tuple(scales), None if draft.n_classes else steps)


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
        return replace(node, margins=tuple(range(len(node.margins))), shift=0)
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


def _scale(
    limits: Sequence[tuple[float, float]], values: Sequence[Number], finest: float | None, below: float = 1.0
) -> float:
    """The largest scale with ``magnitude * scale <= limit`` for each of ``limits``; a power of two if that is exact.

    ``finest``: as in ``_Group``; unless it is None, the scale times ``below`` is a power of two and at most this.
    """
    largest = 1.0 if finest is None else finest / below
    top = min([limit / magnitude for magnitude, limit in limits if magnitude > limit / MAX_SCALE], default=largest)
    if top <= 0:
        raise ProgramError("a scorer's sums leave no room for its weights; use fewer terms or a lower degree")
    if finest is not None:
        return 2.0 ** math.floor(math.log2(min(top * below, finest))) / below
    power = 2.0 ** math.floor(math.log2(top))
    return power if all((v * power).is_integer() for v in map(float, values)) else top


def _room(width: float, rounded: float) -> float:
    """Bound on a sum before rounding, if ``rounded`` bounds what rounding adds to it."""
    return width - 1 - rounded


# ---------------------------------------------------------------- scorers


@dataclass(frozen=True, slots=True)
class _Group:
    """Outputs of a scorer that share a scale. ``finest``: the largest scale of a value; None where none is answered."""

    outputs: tuple[int, ...]
    finest: float | None


def _groups(draft: Program, k: int, n_outputs: int, finest: float) -> list[_Group]:
    """The outputs of a scorer by scale: all together, or by the nodes that read them if some answer values."""
    readers = [node for node in draft.nodes if isinstance(node, Branch | Answer) and node.scores.scorer == k]
    values = {node.scores.start for node in readers if isinstance(node, Answer) and answers_number(node.kind)}
    if not values or any(isinstance(s, Stack) and s.trees == k for s in draft.scorers):
        return [_Group(tuple(range(n_outputs)), finest if values else None)]
    first = list(range(n_outputs))  # the first output that shares its scale
    for start, stop in sorted({(node.scores.start, node.scores.stop) for node in readers}):
        first[start:stop] = [first[start]] * (stop - start)
    groups = [tuple(o for o in range(n_outputs) if first[o] == f) for f in sorted(set(first))]
    return [_Group(group, None if values.isdisjoint(group) else finest) for group in groups]


def _quantise_scorer(
    draft: Program, k: int, below: Sequence[Scorer], scales: Sequence[Scales], finest: float
) -> tuple[Scorer, Scales]:
    s = draft.scorers[k]
    if isinstance(s, Opaque):
        return s, (_opaque_scale(draft, k),) * len(s.low)
    groups = _groups(draft, k, len(offsets_of(s)), finest)
    if isinstance(s, Trees):
        return _trees(s, groups)
    if isinstance(s, Polynomial):
        return _polynomial(s, groups, _code_bounds(draft, s))
    if not isinstance(s, Stack):
        raise ProgramError(f"scorer {k} of the draft is of kind {type(s).__name__}, which cannot be quantised yet")
    trees = below[s.trees]
    assert isinstance(trees, Trees)  # check_shape has verified it
    return _stack(s, groups, trees, scales[s.trees][0])


def _opaque_scale(draft: Program, k: int) -> float:
    """A draft's Answer shifts the integers of an opaque scorer to values; classes and gates have no unit."""
    shifts = {node.shift for node in draft.nodes if isinstance(node, Answer) and node.scores.scorer == k}
    if len(shifts) > 1:
        raise ProgramError(f"the answers of scorer {k} of the draft are shifted by {sorted(shifts)}; train it again")
    return 2.0 ** -next(iter(shifts), 0)


def _check_shifts(draft: Program) -> None:
    for k, node in enumerate(draft.nodes):
        if isinstance(node, Answer) and node.shift:
            is_opaque = isinstance(draft.scorers[node.scores.scorer], Opaque)
            if not is_opaque or not answers_number(node.kind) or abs(node.shift) > MAX_OPAQUE_SHIFT:
                raise ProgramError(f"node {k} of the draft shifts its answer by {node.shift}; train it again")


def _trees(s: Trees, groups: Sequence[_Group]) -> tuple[Trees, Scales]:
    _largest(s.base)
    scales = [1.0] * len(s.base)
    for group in groups:
        own = set(group.outputs)
        members = [
            (j, tree.leaves[j - tree.output :: tree.width])
            for tree in s.trees
            for j in own.intersection(range(tree.output, tree.output + tree.width))
        ]
        sums = {j: abs(s.base[j]) for j in group.outputs}
        for j, leaves in members:
            sums[j] += _largest(leaves)
        values = [v for _, leaves in members for v in leaves]
        room = _room(I32, (len(s.trees) + 1) / 2)
        limits = [(_largest(values), float(CODE_MAX)), (max(sums.values()), room)]
        scale = _scale(limits, [*values, *(s.base[j] for j in group.outputs)], group.finest)
        for j in group.outputs:
            scales[j] = scale
    trees = tuple(replace(t, leaves=_leaves(t, scales)) for t in s.trees)
    return replace(
        s, base=tuple(round(b * scale) for b, scale in zip(s.base, scales, strict=True)), trees=trees
    ), tuple(scales)


def _leaves(tree: Tree, scales: Sequence[float]) -> tuple[int, ...]:
    own = scales[tree.output : tree.output + tree.width]
    return tuple(round(v * own[k % tree.width]) for k, v in enumerate(tree.leaves))


def _code_bounds(draft: Program, s: Polynomial) -> list[int]:
    """Largest magnitude of each term, which is a product of codes."""
    rules = [draft.columns[c].rule for c in s.columns]
    codes = [max(abs(r.low), abs(r.high)) if isinstance(r, Affine) else CODE_MAX for r in rules]
    codes = [max(c, abs(sub or 0)) for c, sub in zip(codes, s.substitutes, strict=True)]
    codes.append(abs(s.constant))
    return [math.prod(codes[j] for j in term) for term in s.terms]


def _polynomial(s: Polynomial, groups: Sequence[_Group], products: list[int]) -> tuple[Polynomial, Scales]:
    weights, bias, scales = _linear(s, groups, products, 2 ** (s.weight_bits - 1) - 1, 1.0)
    return replace(s, weights=weights, bias=bias), scales


def _stack(s: Stack, groups: Sequence[_Group], trees: Trees, below: float) -> tuple[Stack, Scales]:
    sizes = [max(abs(int(v)) for v in trees.trees[m].leaves) for m in s.members]
    weights, bias, scales = _linear(s, groups, sizes, CODE_MAX, below)
    return replace(s, weights=weights, bias=bias), tuple(scale * below for scale in scales)


def _linear(
    s: Polynomial | Stack, groups: Sequence[_Group], inputs: Sequence[int], largest_weight: int, below: float
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...], Scales]:
    """Integer weights and biases of sums of ``weight * input``, and the scale of each output's weights.

    ``inputs``: largest magnitudes of the integer inputs; ``below``: scale of the inputs themselves.
    """
    _largest(s.bias)
    n = len(s.bias)
    weights: list[tuple[int, ...]] = [()] * n
    bias, scales = [0] * n, [1.0] * n
    for group in groups:
        rows = [s.weights[o] for o in group.outputs]
        largest = max((_largest(row) for row in rows), default=0.0)
        sums = [
            abs(s.bias[o]) * below + sum(abs(w) * q for w, q in zip(s.weights[o], inputs, strict=True))
            for o in group.outputs
        ]
        limits = [(largest, float(largest_weight)), (max(sums), _room(SAFE * (1 - 1e-9), (1 + sum(inputs)) / 2))]
        values = [*(w for row in rows for w in row), *(s.bias[o] for o in group.outputs)]
        scale = _scale(limits, values, group.finest, below)
        for o in group.outputs:
            weights[o], bias[o], scales[o] = _integers(s.weights[o], scale), round(s.bias[o] * (scale * below)), scale
    return tuple(weights), tuple(bias), tuple(scales)


# ---------------------------------------------------------------- nodes


def _exponent(node: Answer, scales: Sequence[Scales]) -> int:
    """The scale of a value is 2 to this power; a stack's is a product, which rounding may leave just below it."""
    return round(math.log2(scales[node.scores.scorer][node.scores.start]))


def _quantise_node(k: int, node: Node, scales: Sequence[Scales], steps: int | None) -> Node:
    if isinstance(node, Branch):
        rounding: Round = {THRESHOLD: math.floor, MARGIN: math.ceil}.get(node.rule, round)
        return replace(node, threshold=_bound(k, node.threshold, _scale_of(node, scales), rounding))
    if isinstance(node, Answer):
        margins, confidences = _merge(
            [_bound(k, m, _scale_of(node, scales), math.ceil) for m in node.margins], node.confidences
        )
        shift = 0 if steps is None else steps - _exponent(node, scales)
        return replace(node, margins=margins, confidences=confidences, shift=shift)
    return node


def _scale_of(node: Branch | Answer, scales: Sequence[Scales]) -> float:
    return scales[node.scores.scorer][node.scores.start]


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
