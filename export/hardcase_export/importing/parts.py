# SPDX-License-Identifier: Apache-2.0
"""Columns and scorers of a source model, with the narrowest leaves that keep its labels, and their comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, ProgramError
from hardcase_edge.more.batch.codes import codes_of
from hardcase_edge.more.batch.scores import score_codes, scores_of
from hardcase_edge.program.definition import CODE_MAX, Affine, Column, Polynomial, Program, Trees
from hardcase_edge.program.limits import SAFE
from hardcase_edge.program.readings import I32_MAX
from hardcase_edge.verifier.scorers import Proved, prove_scorer

from ..sources.int8 import Grid, scorer_of
from ..sources.source import Source
from .agreement import compare, float_bound, score_size
from .imported import EVERY, TESTED, TIES, Imported
from .leaves import Summed, power_below, sum_exactly, sum_in_16, sum_in_31
from .probe_rows import as_held, probe_rows
from .program import Parts, plain
from .reference import labels_of_scores, reference_scores
from .sensor_layout import Layout, make_layout
from .trees import Shape, rank_trees

LEAVES = ("auto", "16", "31")
FIRST_ROWS = 2_000  # a first comparison, which decides whether 16 bits are tried on all rows
MAX_EXPECTED = 0.1  # flipped labels in 100,000 that are tolerated before leaves become wider
MAX_VALUE_OFF = 1e-4  # share of the largest value: the tolerance for models of values
WIDER = 1 / 8  # share by which a range measured on rows is widened at either end
MAX_OFF = 0.005  # of the largest score within the ranges; a model with a larger error bound is refused
SAME = 256  # a range of one number has the steps of one that is wide by this share of it
LEAST_STEP = 2.0**-200  # far below what a column holds
MAX_GUARD = 12  # fractional bits of a reading below its step


def import_parts(
    source: Source,
    layout: Layout | None = None,
    *,
    rows: NDArray[np.float64] | None = None,
    leaves: str = "auto",
    n_check: int = 10_000,
    seed: int = 0,
) -> Imported:
    """Columns and scorers of a source model, compared with it.

    Parameters
    ----------
    layout : sensors and types of the readings; None for one sensor at no cost
    rows : (n, n_features) in the model's order, NaN = missing; a linear model takes its ranges from them
    leaves : "auto", "16" or "31": bits of a leaf
    n_check : number of rows to compare on: at thresholds, between them, and ``rows`` if given
    seed : seed of the choice of these rows

    Raises
    ------
    InputError
        A feature has too many thresholds, a linear model has no ranges or too large an error bound, or the model is a
        network, which ``to_tflite.network`` makes into parts.
    """
    if source.network is not None:
        raise InputError(f"the {source.name} is a network, which no scorer of integers expresses; use import_model")
    layout = make_layout(source) if layout is None else layout
    if source.int8 is not None:
        return import_int8(source, layout, rows=rows, n_check=n_check, seed=seed)
    if leaves not in LEAVES:
        raise InputError(f"leaves of {leaves!r} bits are asked for; give one of {', '.join(LEAVES)}")
    dtypes, nullable = [f.dtype for f in layout.features], [f.nullable and source.is_nullable for f in layout.features]
    user_rows = None if rows is None else as_held(rows, dtypes, nullable)
    if source.linear is not None:
        reach = _reach(source, layout, None if rows is None else as_held(rows, dtypes, [True] * len(dtypes)))
        columns, summed = sum_linear(source, reach, dtypes)
        X = probe_rows((), dtypes, nullable, n_check, seed, user_rows=user_rows, reach=reach)
        check = _Check.on(source, layout, columns, as_held(np.clip(X, reach[:, 0], reach[:, 1]), dtypes, nullable))
        return check.of(summed, TESTED)
    ranked = rank_trees(source, dtypes, nullable)
    check = _Check.on(
        source, layout, ranked.columns, probe_rows(ranked.columns, dtypes, nullable, n_check, seed, user_rows=user_rows)
    )
    exact = sum_exactly(source, ranked.shapes)
    if exact is not None and leaves != "31":
        return check.of(exact, _proof(source, exact))
    if leaves != "31":
        in_16 = sum_in_16(source, ranked.shapes)
        proof = EVERY if _keeps_all(source, ranked.shapes, in_16) else TESTED
        if leaves == "16" or proof == EVERY or check.first(FIRST_ROWS).is_fine(in_16):
            imported = check.of(in_16, proof)
            if leaves == "16" or imported.match.differ == 0:
                return imported
    return check.of(sum_in_31(source, ranked.shapes), TESTED)


@dataclass(frozen=True, slots=True)
class _Check:
    """A source, rows to compare on, and the source's answers and exact scores there."""

    source: Source
    layout: Layout
    columns: tuple[Column, ...]
    X: NDArray[np.float64]
    answers: NDArray[Any] | None
    exact: NDArray[np.float64]

    @classmethod
    def on(cls, source: Source, layout: Layout, columns: tuple[Column, ...], X: NDArray[np.float64]) -> _Check:
        answers = None if source.predict is None else source.predict(X)
        return cls(source, layout, columns, X, answers, reference_scores(source, X))

    def first(self, n: int) -> _Check:
        answers = None if self.answers is None else self.answers[:n]
        return replace(self, X=self.X[:n], answers=answers, exact=self.exact[:n])

    def of(self, summed: Summed, proof: str) -> Imported:
        parts = Parts.of(self.source, self.columns, summed)
        program = plain(self.layout.features, self.layout.sensors, parts, len(self.layout.classes), self.layout.costs)
        if not self.source.kind.has_classes:
            parts = replace(parts, answer=replace(parts.answer, shift=-_bits_beyond_32(program)))
        scores = scores_of(program, len(program.scorers) - 1, self.X)
        match = compare(self.source, summed, scores, self.X, self.answers, self.exact)
        return Imported(self.source, self.layout, parts, summed, match, proof, self.X)

    def is_fine(self, summed: Summed) -> bool:
        """Whether no label, and no value by more than ``MAX_VALUE_OFF``, is expected to change."""
        imported = self.of(summed, TESTED)
        if self.source.kind.has_classes:
            return imported.match.differ == 0 and imported.match.expected <= MAX_EXPECTED
        return imported.bound <= MAX_VALUE_OFF * score_size(self.source)


def _bits_beyond_32(program: Program) -> int:
    """How many bits the last scorer's largest result has above those of a 32-bit integer."""
    proofs: list[Proved] = []
    for k in range(len(program.scorers)):
        proofs.append(prove_scorer(program, k, proofs))
    return max(0, proofs[-1].outputs[0].bit_length() - 31)


def _proof(source: Source, exact: Summed) -> str:
    """Rows on which exact leaves agree. A denominator that is a power of two makes the source's own sums exact, too."""
    denominator = int(exact.scale)
    if float_bound(source, np.zeros((1, 1))) * denominator >= 0.5:
        return TESTED
    return EVERY if len(source.trees) == 1 or denominator & (denominator - 1) == 0 else TIES


def _keeps_all(source: Source, shapes: Sequence[Shape], summed: Summed) -> bool:
    """Whether each leaf of a single tree keeps its label, which then holds for every row."""
    if not source.kind.has_classes or len(shapes) != 1:
        return False
    tree, ensemble = source.trees[0], summed.scorers[0]
    assert isinstance(ensemble, Trees)
    n = len(shapes[0].leaf_of)
    integers = np.tile(np.array(ensemble.base, dtype=np.int64), (n, 1))
    exact = np.tile(np.array(source.base), (n, 1))
    part = slice(tree.output, tree.output + tree.leaves.shape[1])
    integers[:, part] += np.array(ensemble.trees[0].leaves, dtype=np.int64).reshape(n, -1)
    exact[:, part] += tree.leaves[shapes[0].leaf_of]
    return bool((labels_of_scores(integers) == labels_of_scores(exact, ties_up=source.ties_up)).all())


def _reach(source: Source, layout: Layout, rows: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Lowest and highest reading per feature, (n_features, 2): from the layout, or from rows, widened a little.

    ``rows``: (n, n_features), NaN = missing.
    """
    reach = layout.ranges.copy()
    is_unknown = np.isnan(reach[:, 0])
    if is_unknown.any():
        if rows is None:
            raise InputError(
                f"the {source.name} needs the range of its readings; give rows of readings, or [range] in the TOML"
            )
        absent = np.flatnonzero(is_unknown & np.isnan(rows).all(axis=0))
        if len(absent):
            raise InputError(
                f"no row has a reading of {layout.names[absent[0]]!r}, whose range is not known then; give rows that "
                "do, or its [range] in the TOML"
            )
        low, high = np.fmin.reduce(rows, axis=0), np.fmax.reduce(rows, axis=0)
        extra = (high - low) * WIDER
        measured = np.stack([low - extra, high + extra], axis=1)
        reach[is_unknown] = measured[is_unknown]
    fill = None if source.linear is None else source.linear.fill
    if fill is not None:
        reach = np.stack([np.fmin(reach[:, 0], fill), np.fmax(reach[:, 1], fill)], axis=1)
    return reach


# Quantisation of linear source models: 16-bit codes over each reading's range, 16-bit weights, an error bound.
#
# A reading becomes ``floor(x / step + 1/2)``, which is off by at most half a step. Steps are powers of two, so
# integers in a range narrower than 65,536 are exact. A reading outside its range counts as the nearer end of the
# range; a missing one counts as the source says, or else as the middle of the range.


def sum_linear(source: Source, reach: NDArray[np.float64], dtypes: Sequence[str]) -> tuple[tuple[Column, ...], Summed]:
    """Columns and a scorer of a checked linear source.

    Parameters
    ----------
    reach : (n_features, 2) lowest and highest reading of each feature, and of what its missing readings count as
    dtypes : "i32", "f32" or "f64" per feature

    Raises
    ------
    InputError
        A range does not fit the grid, or scores could be off by more than ``MAX_OFF`` of the largest score.
    """
    linear = source.linear
    assert linear is not None
    grid = [_grid(f, low, high) for f, (low, high) in enumerate(reach.tolist())]
    step = np.array([2.0**e for e, _, _ in grid])
    middle = np.array([m for _, m, _ in grid], dtype=np.float64) * step
    weights = linear.weights * step
    bias = linear.bias + linear.weights @ middle
    codes = np.array([rule.high for *_, rule in grid], dtype=np.float64)
    top = float((np.abs(bias) + np.abs(weights) @ codes).max())
    largest = float(np.abs(weights).max())
    scale = min(CODE_MAX / largest if largest else math.inf, SAFE / 4 / top if top else math.inf, 2.0**200)
    scale = power_below(scale) if not source.kind.has_classes else scale
    integers = np.rint(weights * scale)
    start = [round(b * scale) for b in bias.tolist()]
    fill = middle if linear.fill is None else linear.fill
    is_whole = np.array([d == "i32" for d in dtypes]) & (step <= 1)
    if linear.fill is not None:
        is_whole &= fill == np.rint(fill)
    off = (
        np.where(is_whole, 0.0, np.abs(weights) * scale / 2).sum(axis=1)
        + np.abs(integers - weights * scale) @ codes
        + 0.5
    )
    if source.sums == "f32":  # rounding errors of onnxruntime
        size = np.abs(linear.weights) @ np.abs(reach).max(axis=1) + np.abs(linear.bias)
        off += (len(step) + 2) * 2.0**-23 * size * scale
    half = float((np.abs(linear.weights) @ (reach[:, 1] - reach[:, 0])).max() / 2)
    if largest and not half:
        raise InputError(
            f"the readings that the {source.name} weighs are the same in every row; give rows that vary, or [range] "
            "in the TOML"
        )
    worst = float((off / scale).max() / half) if half else 0.0  # a model without weights is constant
    if worst > MAX_OFF:
        raise InputError(
            f"the {source.name} in integers may be off by {worst:.2%} of its largest score, but at most {MAX_OFF:.1%} "
            "is allowed; scale its features to similar ranges and train it again"
        )
    n = len(step)
    scorer = Polynomial(
        columns=tuple(range(n)),
        substitutes=tuple(np.rint((fill - middle) / step).astype(int).tolist()),
        constant=0,
        terms=tuple((k,) for k in range(n)),
        weights=tuple(tuple(int(w) for w in row) for row in integers),
        bias=tuple(start),
    )
    columns = tuple(Column(f, rule) for f, (_, _, rule) in enumerate(grid))
    return columns, Summed((scorer,), scale, off, "linear")


def _grid(feature: int, low: float, high: float) -> tuple[int, int, Affine]:
    """The step's exponent, the middle of the range in steps, and the rule, which clips codes to the range."""
    if not (math.isfinite(low) and math.isfinite(high - low) and low <= high):
        raise InputError(f"the range of feature {feature} is {low} to {high}; give a finite lower and upper end")
    step = (high - low or abs(low) / SAME) / (2 * (CODE_MAX - 1))
    exponent = math.ceil(math.log2(max(step, LEAST_STEP))) if low or high else 0
    ends = max(abs(low), abs(high), 2.0**exponent)
    guard = min(MAX_GUARD, math.floor(math.log2(I32_MAX / (ends / 2.0**exponent + 1))))
    if guard < 1 or not 1 <= guard - exponent + 64 <= 128:
        raise InputError(
            f"the range of feature {feature}, {low} to {high}, is too narrow for its distance from 0, or too far from "
            "1; centre and scale the feature first"
        )
    middle = math.floor((low + high) / 2 / 2.0**exponent)
    size = max(1, math.ceil((high - low) / 2 / 2.0**exponent) + 1)
    size = min(size, CODE_MAX)
    add = (1 << guard >> 1) - (middle << guard)
    return exponent, middle, Affine(frac=guard - exponent, mul=1, add=add, shift=guard, low=-size, high=size)


# An int8 network of a file as columns and a scorer of integers, and its comparison with what the file's runtime says.
#
# A reading becomes the code of its grid, rounded to the nearest, halves up; a missing one counts as the median of the
# rows, or without rows as 0.


SHIFT = 51  # of a column: its factor has 30 bits
STEP_BITS = 22  # a step of a code is at least half of this many bits of the reading
VALUE_BITS = 20  # of a value's smallest step, which is one of the network's output


def import_int8(
    source: Source, layout: Layout, *, rows: NDArray[np.float64] | None, n_check: int, seed: int
) -> Imported:
    """Columns and the scorer of a checked source that is an int8 network; parameters as of ``parts.import_parts``.

    Raises
    ------
    InputError
        The verifier refuses the network, or the file's own runtime cannot run it.
    """
    network = source.int8
    assert network is not None
    assert network.run is not None
    grid, last = network.grid, network.layers[-1].grid
    dtypes, never = [f.dtype for f in layout.features], [False] * len(layout.features)
    user_rows = None if rows is None else as_held(rows, dtypes, never)
    columns = tuple(Column(f, column_of(grid)) for f in range(len(dtypes)))
    steps = None if source.kind.has_classes else VALUE_BITS - math.frexp(last.scale)[1]
    scorer = scorer_of(network, _substitutes(columns, rows, grid), steps)
    unit = 1.0 if steps is None else 2.0**steps
    parts = Parts.of(source, columns, Summed((scorer,), unit, np.zeros(1), "int8"))
    program = plain(layout.features, layout.sensors, parts, len(layout.classes), layout.costs)
    try:
        prove_scorer(program, 0, ())
    except ProgramError as error:
        raise InputError(f"the {source.name} cannot be proved: {error}; quantise a smaller network") from error
    ends = [grid.scale * (q - grid.zero_point) for q in (-128, 127)]
    reach = np.tile(ends, (len(dtypes), 1))
    X = probe_rows((), dtypes, never, n_check, seed, user_rows=user_rows, reach=reach)
    codes = codes_of(columns, X)
    scores = score_codes((scorer,), 0, codes)
    said = np.asarray(network.run(codes.T.astype(np.int8)), dtype=np.float64)
    answers: NDArray[Any]
    if steps is None:
        off, answers = np.abs(scores - said).max(axis=0), labels_of_scores(said, ties_up=source.ties_up)
    else:
        said = said * last.scale
        off, answers = np.array([last.scale * unit + 1]), said[:, 0]  # a step of the output, and the value's rounding
    summed = Summed((scorer,), unit, off, "int8")
    return Imported(source, layout, parts, summed, compare(source, summed, scores, X, answers, said), TESTED, X)


def column_of(grid: Grid) -> Affine:
    """The rule of the nearest code, halves up.

    >>> column_of(Grid(0.5, -3))
    Affine(frac=22, mul=1073741824, add=-5629499534213120, shift=51, low=-128, high=127)
    """
    frac = STEP_BITS - math.frexp(grid.scale)[1]
    mul = round(2.0 ** (SHIFT - frac) / grid.scale)
    return Affine(frac, mul, (2 * grid.zero_point + 1) << (SHIFT - 1), SHIFT, -128, 127)


def _substitutes(columns: Sequence[Column], rows: NDArray[np.float64] | None, grid: Grid) -> list[int]:
    typical = np.zeros((1, len(columns)))
    if rows is not None:
        seen = np.where(np.isnan(rows).all(axis=0), 0.0, rows)
        typical = np.nanmedian(seen, axis=0)[None]
    return [int(c) for c in codes_of(columns, typical)[:, 0]]
