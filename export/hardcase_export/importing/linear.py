# SPDX-License-Identifier: Apache-2.0
"""Quantisation of linear source models: 16-bit codes over each reading's range, 16-bit weights, an error bound.

A reading becomes ``floor(x / step + 1/2)``, which is off by at most half a step. Steps are powers of two, so integers
in a range narrower than 65,536 are exact. A reading outside its range counts as the nearer end of the range; a missing
one counts as the source says, or else as the middle of the range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import CODE_MAX, Affine, Column, Polynomial
from hardcase_edge.program.limits import SAFE
from hardcase_edge.program.readings import I32_MAX

from ..sources.source import Source
from .leaves import Summed, power_below

__all__ = ["MAX_OFF", "sum_linear"]

MAX_OFF = 0.005  # of the largest score within the ranges; a model with a larger error bound is refused
MAX_GUARD = 12  # fractional bits of a reading below its step


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
    half = np.abs(linear.weights) @ (reach[:, 1] - reach[:, 0]) / 2
    worst = float((off / scale).max() / max(half.max(), 1e-300))
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
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise InputError(f"the range of feature {feature} is {low} to {high}; give a finite lower and upper end")
    exponent = math.ceil(math.log2((high - low) / (2 * (CODE_MAX - 1)))) if high > low else 0
    ends = max(abs(low), abs(high), 2.0**exponent)
    guard = min(MAX_GUARD, math.floor(math.log2(I32_MAX / (ends / 2.0**exponent + 1))))
    if guard < 1 or not 1 <= guard - exponent + 64 <= 128:
        raise InputError(
            f"the range of feature {feature}, {low} to {high}, is too narrow for its distance from 0; "
            "centre the feature first"
        )
    middle = math.floor((low + high) / 2 / 2.0**exponent)
    size = max(1, math.ceil((high - low) / 2 / 2.0**exponent) + 1)
    size = min(size, CODE_MAX)
    add = (1 << guard >> 1) - (middle << guard)
    return exponent, middle, Affine(frac=guard - exponent, mul=1, add=add, shift=guard, low=-size, high=size)
