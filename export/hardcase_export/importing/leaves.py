# SPDX-License-Identifier: Apache-2.0
"""Quantisation of leaves: exact integers if the leaves share a small denominator, else 16 or 31 bits.

A leaf is stored as ``round((leaf - centre) * scale)``; each tree's centre moves into the base. Three forms, the
cheapest first:

- *exact*: all leaves are whole multiples of 1/scale, so sums are exact and ties remain ties;
- *16 bits*: one integer per leaf; a sum is off by at most ``Summed.off`` steps;
- *31 bits*: two trees of one shape per output hold the high and the low half; a stack adds them with weights 32767
  and 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.program.definition import CODE_MAX, Scorer, Stack, Tree, Trees
from hardcase_edge.program.limits import SAFE
from hardcase_edge.verifier.require import I32

from ..sources.source import MEAN, Source
from .trees import Shape

BITS = ("exact", "16", "31")
MANY = {"16": 27_720, "31": 232_792_560}  # divisible by every number up to 12 and up to 22: such shares stay exact
FINEST = {True: 2.0**60, False: 2.0**200}  # scale of classes, whose margins have 64 bits, and of values
HIGH = CODE_MAX  # weight of a step of the high half
DENOMINATORS = {
    "f32": (1_000, 2.0**-23),
    "f64": (CODE_MAX, 2.0**-45),
}  # largest denominator tried; relative rounding error allowed


@dataclass(frozen=True, slots=True)
class Summed:
    """Scorers that sum a source's leaves; ``scale`` integer steps make one unit of the source's score.

    For values ``scale`` is a power of two.

    ``off``: (n_outputs,) bound on the difference, in steps, between a score and the exact sum of the source's leaves.
    ``bits``: one of ``BITS``, or "linear".
    """

    scorers: tuple[Scorer, ...]
    scale: float
    off: NDArray[np.float64]
    bits: str


def sum_exactly(source: Source, shapes: Sequence[Shape]) -> Summed | None:
    """Leaves as integers in the exact ratios of the source's; None if 16 bits do not hold such integers."""
    denominator = 1
    numbers = [np.array(source.base), *(t.leaves for t in source.trees)]
    size = max(float(np.abs(values).max()) for values in numbers)
    for values in numbers:
        for v in np.unique(values).tolist():
            denominator = math.lcm(denominator, _denominator(v, size, *DENOMINATORS[source.sums]))
            if denominator * max(1.0, abs(v)) > CODE_MAX:
                return None
    if not source.kind.has_classes and denominator & (denominator - 1):
        return None
    exact = [t.leaves for t in source.trees]
    leaves = [np.rint(v * denominator).astype(np.int64) for v in exact]
    if any(int(np.abs(v).max()) > CODE_MAX for v in leaves):
        return None
    ensemble = _trees(source, shapes, leaves, [round(b * denominator) + source.ties_up for b in source.base])
    off = _off(source, exact, leaves, denominator)
    return Summed((ensemble,), float(denominator), off, "exact") if ensemble is not None and off.max() < 0.25 else None


def _denominator(v: float, size: float, largest: int, slack: float) -> int:
    """Denominator of the fraction that v is, up to rounding; above CODE_MAX if there is none up to ``largest``.

    ``size``: the largest number beside v; where all are far below 1, so is their rounding.
    """
    near = Fraction(v).limit_denominator(largest)
    return near.denominator if abs(float(near) - v) <= slack * max(min(1.0, size), abs(v)) else CODE_MAX + 1


def sum_in_16(source: Source, shapes: Sequence[Shape]) -> Summed:
    """Leaves as one 16-bit integer each, with the largest scale whose sums fit 32 bits."""
    centred, centres, largest, reach = _extents(source)
    scale = min(CODE_MAX / largest if largest else math.inf, (I32 - 2 - len(centred)) / reach if reach else math.inf)
    scale = _fitting(source, scale, MANY["16"])
    leaves = [np.rint(v * scale).astype(np.int64) for v in centred]
    base = [round(c * scale) for c in centres]
    ensemble = _trees(source, shapes, leaves, [b + source.ties_up for b in base])
    assert ensemble is not None
    off = _off(source, centred, leaves, scale) + np.abs(np.array(base) - np.array(centres) * scale)
    return Summed((ensemble,), scale, off, "16")


def sum_in_31(source: Source, shapes: Sequence[Shape]) -> Summed:
    """Leaves as two 16-bit integers each, in two trees per output that a stack adds."""
    centred, centres, largest, reach = _extents(source)
    scale = min(HIGH * (CODE_MAX - 1) / largest if largest else math.inf, SAFE / 4 / reach if reach else math.inf)
    scale = _fitting(source, scale, MANY["31"])
    base = [round(c * scale) for c in centres]
    trees: list[Tree] = []
    rows: list[tuple[int, int]] = []  # output and weight of each tree
    integers = [np.rint(v * scale).astype(np.int64) for v in centred]
    for tree, shape, leaf_integers in zip(source.trees, shapes, integers, strict=True):
        high = (leaf_integers + HIGH // 2) // HIGH
        for j in range(leaf_integers.shape[1]):
            for half, weight in ((high[:, j], HIGH), ((leaf_integers - high * HIGH)[:, j], 1)):
                trees.append(_tree(shape, half[:, None], 0))
                rows.append((tree.output + j, weight))
    weights = tuple(tuple(w if o == k else 0 for o, w in rows) for k in range(len(base)))
    columns = tuple(range(_n_columns(shapes)))
    stack = Stack(0, tuple(range(len(trees))), weights, tuple(b + source.ties_up for b in base))
    off = _off(source, centred, integers, scale) + np.abs(np.array(base) - np.array(centres) * scale)
    return Summed((Trees(columns, (0,), tuple(trees)), stack), scale, off, "31")


# ---------------------------------------------------------------- parts


def _fitting(source: Source, scale: float, by: int) -> float:
    """The largest scale up to this one: for values a power of two, for shares a multiple of ``by``.

    Most equal sums of shares then stay equal.
    """
    scale = min(scale, FINEST[source.kind.has_classes])
    if not source.kind.has_classes:
        return power_below(scale)
    return float(by * int(scale / by)) if source.link == MEAN and by <= scale < 2.0**53 else scale


def power_below(scale: float) -> float:
    """The largest power of two up to this scale."""
    return 2.0 ** math.floor(math.log2(scale))


def _extents(source: Source) -> tuple[list[NDArray[np.float64]], list[float], float, float]:
    """Centred leaves, their centres, the largest magnitude of a centred leaf, and a bound on that of any score."""
    centred, centres = _centred(source)
    largest = max((float(np.abs(v).max()) for v in centred), default=0.0)
    return centred, centres, largest, _reach(source, centred, centres)


def _centred(source: Source) -> tuple[list[NDArray[np.float64]], list[float]]:
    """Leaves of each tree, centred on 0, and the base per output that makes up for it; shares stay as they are."""
    if source.link == MEAN:
        return [tree.leaves for tree in source.trees], list(source.base)
    centres = [[b] for b in source.base]
    centred = []
    for tree in source.trees:
        middle = tree.leaves.min(axis=0) / 2 + tree.leaves.max(axis=0) / 2
        centred.append(tree.leaves - middle)
        for j, c in enumerate(middle.tolist(), tree.output):
            centres[j].append(c)
    return centred, [math.fsum(c) for c in centres]


def _reach(source: Source, centred: Sequence[NDArray[np.float64]], centres: Sequence[float]) -> float:
    """Bound on the magnitude of any output's score."""
    top = np.abs(np.array(centres))
    for tree, v in zip(source.trees, centred, strict=True):
        top[tree.output : tree.output + v.shape[1]] += np.abs(v).max(axis=0)
    return float(top.max())


def _off(
    source: Source, exact: Sequence[NDArray[np.float64]], rounded: Sequence[NDArray[np.int64]], scale: float
) -> NDArray[np.float64]:
    """Bound on the rounding error per output, in steps: the sum of each tree's largest error."""
    off = np.zeros(len(source.base))
    for tree, v, integers in zip(source.trees, exact, rounded, strict=True):
        off[tree.output : tree.output + v.shape[1]] += np.abs(integers - v * scale).max(axis=0)
    return off


def _trees(
    source: Source, shapes: Sequence[Shape], leaves: Sequence[NDArray[np.int64]], base: Sequence[int]
) -> Trees | None:
    """The ensemble; None if its sums could exceed 32 bits."""
    top = np.abs(np.array(base, dtype=np.int64))
    for tree, v in zip(source.trees, leaves, strict=True):
        top[tree.output : tree.output + v.shape[1]] += np.abs(v).max(axis=0)
    if int(top.max()) > I32:
        return None
    trees = tuple(_tree(s, v, t.output) for t, s, v in zip(source.trees, shapes, leaves, strict=True))
    return Trees(tuple(range(_n_columns(shapes))), tuple(int(b) for b in base), trees)


def _tree(shape: Shape, leaves: NDArray[np.int64], output: int) -> Tree:
    flat = tuple(leaves[shape.leaf_of].ravel().tolist())
    return Tree(output, leaves.shape[1], shape.splits, shape.thresholds, shape.missing_left, shape.children, flat)


def _n_columns(shapes: Sequence[Shape]) -> int:
    return 1 + max((max(s.splits) for s in shapes if s.splits), default=-1)
