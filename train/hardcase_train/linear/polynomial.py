# SPDX-License-Identifier: Apache-2.0
"""A polynomial as a part: weights on terms of standardised readings, compiled to a program's scorer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardcase_edge.program.definition import Column, Polynomial

from .standardise import Standard

__all__ = ["PolynomialPart", "on_grid"]

LARGEST = 2**15 - 1  # of an integer weight


@dataclass(frozen=True)
class PolynomialPart:
    """``scores = bias + sum over terms of weight * product of factors``, factors in deviations from the mean.

    factors : (n_terms, degree) feature numbers; the number ``n_features`` stands for the constant 1
    weights : (n_terms, n_outputs)
    bias : (n_outputs,)
    """

    standard: Standard
    factors: np.ndarray
    weights: np.ndarray
    bias: np.ndarray

    def only(self, which: Sequence[int]) -> PolynomialPart:
        """The polynomial with some of its outputs."""
        return PolynomialPart(self.standard, self.factors, self.weights[:, list(which)], self.bias[list(which)])

    def beside(self, other: PolynomialPart) -> PolynomialPart:
        """Both polynomials, which have the same terms, as one: this one's outputs, then the other's."""
        assert np.array_equal(self.factors, other.factors)
        weights = np.hstack([self.weights, other.weights])
        return PolynomialPart(self.standard, self.factors, weights, np.concatenate([self.bias, other.bias]))

    def columns(self, dtypes: Sequence[str]) -> list[Column]:
        """The affine columns that the polynomial reads."""
        return [self._column(f) for f in self._features()]

    def scorer(self, dtypes: Sequence[str], columns: Sequence[Column]) -> Polynomial:
        """The draft scorer over a program's columns; a missing reading counts as the mean, code 0."""
        features = self._features()
        place = {f: k for k, f in enumerate(features)} | {len(self.standard.columns): len(features)}
        unit = float(self.standard.steps) ** self.factors.shape[1]
        return Polynomial(
            columns=tuple(columns.index(self._column(f)) for f in features),
            substitutes=(0,) * len(features),
            constant=self.standard.steps,
            terms=tuple(tuple(place[f] for f in term) for term in self.factors.tolist()),
            weights=tuple(tuple(row) for row in (self.weights.T / unit).tolist()),
            bias=tuple(self.bias.tolist()),
        )

    def _features(self) -> list[int]:
        return sorted(set(self.factors.ravel().tolist()) - {len(self.standard.columns)})

    def _column(self, feature: int) -> Column:
        column = self.standard.columns[feature]
        assert column is not None  # terms have no features without a column
        return column


def on_grid(weights: np.ndarray, bias: np.ndarray, unit: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias as multiples of the power of two that 16-bit integers can hold, which export then keeps.

    Where a case takes many branches in turn, rounding at export would change the way of a few cases in a thousand.

    Parameters
    ----------
    weights : (n_terms, n_outputs)
    bias : (n_outputs,)
    unit : a term's product of codes when all factors are 1: the codes' steps, a power of two, to the degree
    """
    largest = float(np.abs(weights).max(initial=0.0))
    if largest == 0.0:
        return weights, bias
    step = 2.0 ** -np.floor(np.log2(LARGEST / largest))
    return np.rint(weights / step) * step, np.rint(bias * (unit / step)) * (step / unit)
