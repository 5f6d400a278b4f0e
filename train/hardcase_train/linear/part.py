# SPDX-License-Identifier: Apache-2.0
"""A linear model as a part: weights on standardised readings, compiled to a polynomial of degree 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hardcase_edge.more.batch.codes import affine_codes
from hardcase_edge.program.definition import CODE_MAX, Affine, Column, Polynomial
from hardcase_edge.program.readings import I32_MAX, I32_MIN

from ..data.problem import Problem
from ..policy.kinds import answer_loss, hpc_loss
from ..policy.losses import AnswerLoss
from ..policy.selection import Judge, Trained

# Forward rates at which the gate decides without the margin: far from the boundary, where f1 has seen no rows, a linear
# margin is always large.
GATE_RATES = tuple(k / 40 for k in range(41))
STEPS = 2048  # codes per standard deviation
BYTE_STEPS, BYTE_MAX = 32, 127  # of columns that fit a byte: clipped at 4 deviations
MAX_FRAC, MAX_SHIFT = 64, 60


@dataclass(frozen=True)
class Linear:
    """``scores = Z @ weights + bias``, where Z is ``standard.transform`` of the readings.

    weights : (n_features, n_outputs), in score per deviation; features with a row of zeros are not read
    bias : (n_outputs,)
    """

    standard: Standard
    weights: np.ndarray
    bias: np.ndarray

    def scores(self, Z: np.ndarray) -> np.ndarray:
        """Scores of standardised rows, (n, n_outputs)."""
        return np.asarray(Z @ self.weights + self.bias)

    def columns(self, dtypes: Sequence[str]) -> list[Column]:
        """The affine columns that the model reads."""
        read = [c for c, w in zip(self.standard.columns, self.weights, strict=True) if w.any()]
        return [c for c in read if c is not None]

    def scorer(self, dtypes: Sequence[str], columns: Sequence[Column]) -> Polynomial:
        """The draft scorer over a program's columns; a missing reading counts as the mean, code 0."""
        own_columns = self.columns(dtypes)
        weights = self.weights[[c.feature for c in own_columns]].T / STEPS
        return Polynomial(
            columns=tuple(columns.index(c) for c in own_columns),
            substitutes=(0,) * len(own_columns),
            constant=1,
            terms=tuple((k,) for k in range(len(own_columns))),
            weights=tuple(tuple(float(w) for w in row) for row in weights),
            bias=tuple(float(b) for b in self.bias),
        )


@dataclass(frozen=True)
class LinearRows:
    """Standardised training rows for linear learners."""

    Z: np.ndarray  # (n, n_features) standardised readings
    classes: AnswerLoss
    forward: np.ndarray  # (n,) f0's loss, -log p(y_i | z = 0; f0)

    @property
    def total(self) -> float:
        """Total weight of the rows."""
        return float(self.classes.weight.sum())

    def scores(self, coef: np.ndarray) -> np.ndarray:
        """Scores, (n, n_outputs), for ``coef`` (n_features + 1, n_outputs): weights above biases."""
        return np.asarray(self.Z @ coef[:-1] + coef[-1])

    def take(self, rows: np.ndarray) -> LinearRows:
        """Some of the rows, by number."""
        return LinearRows(self.Z[rows], self.classes.take(rows), self.forward[rows])


def linear_rows(problem: Problem, Z: np.ndarray) -> LinearRows:
    """The training rows of a problem; ``Z`` holds their standardised readings."""
    return LinearRows(Z, answer_loss(problem), hpc_loss(problem))


def judged(
    judge: Judge, standard: Standard, Z: np.ndarray, coef: np.ndarray, fit: Callable[[np.ndarray], np.ndarray]
) -> Trained:
    """A linear part with its scores on the judged rows.

    Parameters
    ----------
    Z : (n, n_features) standardised training rows
    coef : (n_features + 1, n_outputs) weights above biases, fitted to all of them
    fit : function of row numbers; returns the ``coef`` of a copy fitted to only these training rows
    """
    part = Linear(standard, coef[:-1], coef[-1])

    def score_fold(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        copy = fit(others)
        return np.asarray(Z[rows] @ copy[:-1] + copy[-1])

    return judge.trained(part, part.scores(standard.transform(judge.problem.valid.X)), score_fold)


# Standardised readings as affine columns: a code is the distance from the training mean in deviations.
#
# One deviation is ``STEPS`` codes, so codes are clipped at 16 deviations. In a polynomial a deviation is
# ``BYTE_STEPS`` codes, clipped at ``BYTE_MAX``: products of several codes stay small, and outliers do not dominate
# them. Models are trained on decoded codes (``codes / steps``), not on the readings, so that programs and training
# score the same numbers. A missing reading counts as the mean: code 0.


def affine_rule(mean: float, deviation: float, steps: int = STEPS, top: int = CODE_MAX) -> Affine | None:
    """The rule ``code = round((x - mean) / deviation * steps)``, clipped at +-``top``, as near as 32-bit factors allow.

    None if no rule can distinguish readings: the deviation is 0, or numbers exceed 32 bits scaled by 2**-64 to 2**64.
    If the mean is more than 2**15 deviations from zero, codes are coarser than a 2048th of a deviation.
    """
    if not (math.isfinite(mean) and math.isfinite(deviation) and deviation > 0):
        return None
    _, exponent = math.frexp(abs(mean) + CODE_MAX / STEPS * deviation)
    frac = max(-MAX_FRAC, min(MAX_FRAC, 30 - exponent))  # readings that are not clipped stay below 2**30
    unit = Fraction(2) ** frac
    centre = math.floor(Fraction(mean) * unit)
    slope = steps / (Fraction(deviation) * unit)  # codes per unit of the fixed-point reading
    magnitude = slope.numerator.bit_length() - slope.denominator.bit_length()  # slope is below 2**(magnitude + 1)
    shift = max(0, min(MAX_SHIFT, 30 - magnitude))
    mul = min(round(slope * 2**shift), I32_MAX)
    if mul == 0 or not I32_MIN <= centre <= I32_MAX:
        return None
    return Affine(frac=frac, mul=mul, add=(1 << shift >> 1) - centre * mul, shift=shift, low=-top, high=top)


@dataclass(frozen=True)
class Standard:
    """The affine column of each feature; None for a constant, always missing or out-of-range feature."""

    columns: tuple[Column | None, ...]
    steps: int = STEPS  # codes per deviation

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Standardised rows, (n, n_features) float64, in deviations from the mean; 0 for missing."""
        Z = np.zeros(X.shape)
        for f, column in enumerate(self.columns):
            if column is not None:
                present = ~np.isnan(X[:, f])
                assert isinstance(column.rule, Affine)
                Z[present, f] = affine_codes(column.rule, X[present, f]) / self.steps
        return Z


def make_standard(X: np.ndarray, weight: np.ndarray | None = None, steps: int = STEPS, top: int = CODE_MAX) -> Standard:
    """Columns by the weighted mean and deviation of training rows; X is (n, n_features), NaN for missing.

    >>> make_standard(np.array([[0.0, 7.0], [2.0, 7.0]])).transform(np.array([[1.0, 7.0], [2.0, np.nan]])).tolist()
    [[0.0, 0.0], [1.0, 0.0]]
    """
    weight = np.ones(len(X)) if weight is None else weight
    return Standard(tuple(_column(f, X[:, f], weight, steps, top) for f in range(X.shape[1])), steps)


def _column(feature: int, x: np.ndarray, weight: np.ndarray, steps: int, top: int) -> Column | None:
    present = ~np.isnan(x) & (weight > 0)
    x, weight = x[present], weight[present]
    if len(x) == 0 or x.min() == x.max():
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.average(x, weights=weight)
        deviation = np.sqrt(np.average((x - mean) ** 2, weights=weight))
    rule = affine_rule(float(mean), float(deviation), steps, top)
    if rule is None or np.ptp(affine_codes(rule, x)) == 0:
        return None
    return Column(feature, rule)
