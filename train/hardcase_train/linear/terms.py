# SPDX-License-Identifier: Apache-2.0
"""Polynomial terms of standardised readings, computed once and shared by all states of a graph.

A term is a product of ``degree`` factors, each a feature or the constant 1, so lower degrees are included. Linearly
dependent terms are dropped: the square of a binary feature is affine in the feature, and the product of two binary
features of which one pair of values never occurs (as in a one-hot group) is affine in both. docs/math.md (65).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, islice
from math import comb

import numpy as np

from hardcase_edge.program.definition import Column, Polynomial

from .part import Standard

MAX_TERMS = 20_000
LARGEST = 2**15 - 1  # of an integer weight


@dataclass(frozen=True)
class Terms:
    """Products of features.

    factors : (n_terms, degree) feature numbers; ``n_features`` stands for the constant. Term 0 has only constants
    scale : (n_terms,) root mean square of each term on the training rows, by which its values are divided

    >>> make_terms(np.array([[0.0, 1.0], [1.0, 2.0], [3.0, 5.0]]), degree=2).factors.tolist()
    [[2, 2], [0, 2], [1, 2], [0, 0], [0, 1], [1, 1]]
    """

    factors: np.ndarray
    n_features: int
    scale: np.ndarray

    def values(self, Z: np.ndarray, terms: np.ndarray | None = None) -> np.ndarray:
        """Scaled terms, (n_terms, n) float32, of standardised rows (n, n_features); ``terms``: some, by number."""
        numbers = np.arange(len(self.factors)) if terms is None else terms
        factors = np.vstack([Z.T, np.ones(len(Z))]).astype(np.float32)
        values = np.empty((len(numbers), len(Z)), dtype=np.float32)
        for k, t in enumerate(numbers):
            np.multiply(factors[self.factors[t, 0]], np.float32(1 / self.scale[t]), out=values[k])
            for f in self.factors[t, 1:]:
                if f < self.n_features:
                    values[k] *= factors[f]
        return values

    def within(self, features: np.ndarray) -> np.ndarray:
        """Numbers of the terms of these features and the constant."""
        is_in = np.zeros(self.n_features + 1, dtype=bool)
        is_in[features] = is_in[-1] = True
        return np.flatnonzero(is_in[self.factors].all(axis=1))


def n_terms(n_features: int, degree: int) -> int:
    """The largest number of terms.

    >>> n_terms(3, degree=2)
    10
    """
    return comb(n_features + degree, degree)


def make_terms(Z: np.ndarray, degree: int) -> Terms:
    """The terms of standardised rows, (n, n_features), by rising number of factors that are features.

    Raises
    ------
    ValueError
        There are more than 20,000 terms.
    """
    n = Z.shape[1]
    levels = [np.unique(z) for z in Z.T]
    varying = [f for f in range(n) if len(levels[f]) > 1]
    dependent = _dependent_pairs(Z, levels, varying)
    factors = [(n,) * degree]
    for order in range(1, degree + 1):
        new = (
            (*term, *(n,) * (degree - order))
            for term in combinations_with_replacement(varying, order)
            if not any((a, b) in dependent for k, a in enumerate(term) for b in term[k + 1 :])
        )
        factors += islice(new, MAX_TERMS)
        if len(factors) > MAX_TERMS:
            raise ValueError(f"degree {degree} of {len(varying)} features has more than {MAX_TERMS} terms; lower it")
    raw = Terms(np.array(factors), n, np.ones(len(factors)))
    mean_squares = [float(np.square(raw.values(Z, np.array([t]))).mean()) for t in range(len(factors))]
    scale = np.sqrt(np.array(mean_squares))
    is_nonzero = scale > 1e-6
    return Terms(raw.factors[is_nonzero], n, scale[is_nonzero])


def _dependent_pairs(Z: np.ndarray, levels: list[np.ndarray], varying: list[int]) -> set[tuple[int, int]]:
    """Pairs (a, b), a <= b, of binary features whose product is affine in them: at most three pairs of values occur."""
    binary = [f for f in varying if len(levels[f]) == 2]
    high = np.column_stack([Z[:, f] == levels[f][1] for f in binary]).astype(np.float32) if binary else np.empty((0, 0))
    both = high.T @ high
    only = np.diag(both)[:, None] - both
    none = len(Z) - both - only - only.T
    cells = (both > 0).astype(int) + (only > 0) + (only.T > 0) + (none > 0)
    return {(a, b) for i, a in enumerate(binary) for j, b in enumerate(binary) if j >= i and cells[i, j] < 4}


# A polynomial as a part: weights on terms of standardised readings, compiled to a program's scorer.


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

    def with_outputs_of(self, other: PolynomialPart) -> PolynomialPart:
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
