"""Affine columns for linear scorers: a code is a reading's distance from the training mean, in deviations.

One deviation is ``STEPS`` codes, so codes reach 16 deviations to either side and are held there; in a polynomial it is
``BYTE_STEPS``, held at ``BYTE_MAX``: products of several stay small, and no far reading rules them. Models are trained
on decoded codes (``codes / steps``), not on the readings, so that a program scores what training has seen.
A missing reading counts as the mean: code 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hardcase_edge.batch.codes import affine_codes
from hardcase_edge.program.definition import CODE_MAX, Affine, Column
from hardcase_edge.program.readings import I32_MAX, I32_MIN

__all__ = ["BYTE_MAX", "BYTE_STEPS", "STEPS", "Standard", "affine_rule", "make_standard"]

STEPS = 2048  # codes per standard deviation
BYTE_STEPS, BYTE_MAX = 32, 127  # of columns that fit a byte: 4 deviations to either side
MAX_FRAC, MAX_SHIFT = 64, 60


def affine_rule(mean: float, deviation: float, steps: int = STEPS, top: int = CODE_MAX) -> Affine | None:
    """The rule of ``code = round((x - mean) / deviation * steps)``, held at +-``top``, as near as 32-bit factors come.

    None where no rule can tell readings apart: no deviation, or numbers beyond what 32 bits scaled by 2**-64 to
    2**64 hold. Where the mean is more than 2**15 deviations away, codes are coarser than a 2048th.
    """
    if not (math.isfinite(mean) and math.isfinite(deviation) and deviation > 0):
        return None
    _, exponent = math.frexp(abs(mean) + CODE_MAX / STEPS * deviation)
    frac = max(-MAX_FRAC, min(MAX_FRAC, 30 - exponent))  # readings in reach stay below 2**30
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
    """The affine column of every feature; None for one that says nothing (constant, always missing, out of range)."""

    columns: tuple[Column | None, ...]
    steps: int = STEPS  # codes per deviation

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Rows as linear models see them: (n, n_features) float64, in deviations from the mean, 0 for missing."""
        Z = np.zeros(X.shape)
        for f, column in enumerate(self.columns):
            if column is not None:
                present = ~np.isnan(X[:, f])
                assert isinstance(column.rule, Affine)
                Z[present, f] = affine_codes(column.rule, X[present, f]) / self.steps
        return Z


def make_standard(X: np.ndarray, weight: np.ndarray | None = None, steps: int = STEPS, top: int = CODE_MAX) -> Standard:
    """Columns by the mean and deviation of training rows; X is (n, n_features), NaN for missing."""
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
