# SPDX-License-Identifier: Apache-2.0
"""A linear scorer as one int8 FULLY_CONNECTED with int32 biases, for accelerators that support nothing else.

The int8 model approximates the program within a proven bound. Clip every code to ``reach``, its largest magnitude on
the validation rows, and clip the scores of such codes to ``range``: the file gives those scores to within ``allowed``
for any input. A reading becomes u = code / reach in [-1, 1] by float32, u and the weights become int8, and int8 scores
are scaled back to float32. The bound adds the errors of these steps:

    allowed = sum_j |w_j| (reach_j / 254 + 1 + |mul_j| / 2^shift_j + float_j) + k s_w / 2 + s_w / 254 + s_y

with s_w the step of weights times reaches, s_y the step of scores, and float_j four float32 roundings at the largest
number that occurs, |add_j| / 2^shift_j + reach_j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.program.definition import MISSING, Affine, Polynomial, Program

from ..scorers.parts import ScorerPart
from .columns import Columns
from .graph import Tensor

STEPS = 127
ROOM = 1.25  # range of int8 scores relative to the largest score on validation rows
I32 = 2**31 - 1


@dataclass(frozen=True)
class Int8:
    """An int8 model file, the range of its scores, and the bound on their difference from ``expected``."""

    data: bytes
    range: tuple[float, float]
    allowed: float
    linear: LinearScorer

    def expected(self, codes: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """(n, width) scores of codes as a session holds them, clipped to reach and range."""
        return np.clip(self.linear.scores(codes), *self.range)


@dataclass(frozen=True)
class LinearScorer:
    """``weights``: (width, k); ``bias``: (width,); and per column its rule, substitute and reach, in codes."""

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    columns: tuple[int, ...]
    rules: tuple[Affine, ...]
    substitutes: NDArray[np.float64]
    reach: NDArray[np.float64]

    def scores(self, codes: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """(n, width) scores, with codes clipped to reach."""
        values = np.array([[row[2 * c] for c in self.columns] for row in codes], np.float64)
        values = np.where(values == MISSING, self.substitutes, values)
        return np.clip(values, -self.reach, self.reach) @ self.weights.T + self.bias


def int8_of(program: Program, part: ScorerPart, codes: Sequence[Sequence[int]]) -> Int8 | None:
    """The int8 form of a linear scorer over affine columns; None for all other scorers.

    Parameters
    ----------
    codes : codes of validation rows, from ``integers.decide.codes_of``
    """
    linear = _linear(program, part, codes)
    if linear is None:
        return None
    scaled_weights = linear.weights * linear.reach
    step_w = float(np.abs(scaled_weights).max()) / STEPS
    largest = max(float(np.abs(linear.scores(codes)).max(initial=0)) * ROOM, 1.0)
    step_y, step_u = largest / STEPS, 1 / STEPS
    if step_w == 0 or np.abs(linear.bias).max() / (step_u * step_w) > I32:
        return None
    bound = _bound(linear, step_w) + step_y
    data = _file(program, part, linear, step_w, step_y)
    return Int8(data, (-(STEPS + 1) * step_y, STEPS * step_y), bound, linear)


def _linear(program: Program, part: ScorerPart, codes: Sequence[Sequence[int]]) -> LinearScorer | None:
    s = program.scorers[part.scores.scorer]
    if not isinstance(s, Polynomial) or not s.columns or any(len(term) != 1 for term in s.terms):
        return None
    rules = [program.columns[c].rule for c in s.columns]
    affine = tuple(r for r in rules if isinstance(r, Affine))
    if len(affine) != len(rules) or not all(map(_is_line, affine)):
        return None
    outputs = slice(part.scores.start, part.scores.stop)
    dense = np.zeros((part.width, len(s.columns) + 1))
    for place, weights in zip(s.terms, np.array(s.weights[outputs], np.float64).T, strict=True):
        dense[:, place[0]] += weights
    bias = np.array(s.bias[outputs], np.float64) + dense[:, -1] * s.constant
    magnitudes = np.array([[abs(row[2 * c]) if row[2 * c] != MISSING else 0 for c in s.columns] for row in codes])
    substitutes = np.array([v or 0 for v in s.substitutes], np.float64)
    reach = np.maximum(np.abs(substitutes), np.maximum(magnitudes.max(axis=0, initial=1), 1))
    return LinearScorer(dense[:, :-1], bias, s.columns, affine, substitutes, reach.astype(np.float64))


def _is_line(rule: Affine) -> bool:
    """Whether the code is linear in the reading up to its clipping; readings are clipped to 32 bits before."""
    ends = sorted((q * rule.mul + rule.add) >> rule.shift for q in (-(2**31), I32))
    return rule.mul != 0 and ends[0] <= rule.low and ends[1] >= rule.high


def _bound(linear: LinearScorer, step_w: float) -> float:
    slope = np.array([abs(r.mul) / 2.0**r.shift for r in linear.rules])
    offset = np.array([abs(r.add) / 2.0**r.shift for r in linear.rules])
    rounding = 4 * 2.0**-23 * (offset + 2 * linear.reach)
    errors = linear.reach / (2 * STEPS) + 1 + slope + rounding
    return float((np.abs(linear.weights) @ errors).max() + (len(errors) + 1 / STEPS) * step_w / 2)


def _file(program: Program, part: ScorerPart, linear: LinearScorer, step_w: float, step_y: float) -> bytes:
    builder = Columns(program, part)
    g = builder.g
    u = _inputs(builder, program, linear)
    quantised = g.tensor("i1", u.shape, 1 / STEPS)
    g.into("QUANTIZE", [u], quantised)
    weights = g.const(np.rint(linear.weights * linear.reach / step_w), "i1", step_w)
    bias = g.const(np.rint(linear.bias * STEPS / step_w), "i4", step_w / STEPS)
    scores = g.tensor("i1", (1, part.width), step_y)
    g.into("FULLY_CONNECTED", [quantised, weights, bias], scores)
    return g.model(f"{part.name}-int8", {"scores": g.op("DEQUANTIZE", scores, dtype="f4")})


def _inputs(builder: Columns, program: Program, linear: LinearScorer) -> Tensor:
    """(1, k) float32 in [-1, 1]: the codes divided by reach."""
    g, order = builder.g, [f for features in builder.part.inputs.values() for f in features]
    places = [order.index(program.columns[c].feature) for c in linear.columns]
    x = g.gather(g.concat([g.cast(raw, "f4") for raw in builder.raw.values()], 1), places, 1)
    presence = g.concat([g.cast(builder.present(dtype), "f4") for dtype in builder.raw], 1)
    present = g.compare("GREATER", g.gather(presence, places, 1), g.const([0.0], "f4"))
    slope = [r.mul * 2.0 ** (r.frac - r.shift) for r in linear.rules] / linear.reach
    offset = [r.add * 2.0**-r.shift for r in linear.rules] / linear.reach
    line: Any = g.op("ADD", g.op("MUL", x, g.const([slope], "f4")), g.const([offset], "f4"))
    line = g.op("MAXIMUM", g.op("MINIMUM", line, g.const([1.0], "f4")), g.const([-1.0], "f4"))
    return g.select(present, line, g.const([linear.substitutes / linear.reach], "f4"))
