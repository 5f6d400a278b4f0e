"""A linear model as a trained part: weights on standardised readings that become a polynomial of degree 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardcase_edge.program import Column, Polynomial

from .affine import STEPS, Standard

__all__ = ["Linear"]


@dataclass(frozen=True)
class Linear:
    """``scores = Z @ weights + bias``, Z as ``standard`` makes it from readings.

    weights : (n_features, n_outputs), in score per deviation; a row of zeros is a feature that is not read
    bias : (n_outputs,)
    """

    standard: Standard
    weights: np.ndarray
    bias: np.ndarray

    def scores(self, Z: np.ndarray) -> np.ndarray:
        """Scores of standardised rows, (n, n_outputs)."""
        return Z @ self.weights + self.bias

    def columns(self, dtypes: Sequence[str]) -> list[Column]:
        """The affine columns that it reads."""
        read = [c for c, w in zip(self.standard.columns, self.weights, strict=True) if w.any()]
        return [c for c in read if c is not None]

    def scorer(self, dtypes: Sequence[str], columns: Sequence[Column]) -> Polynomial:
        """The draft scorer over a program's columns; a missing reading counts as the mean, code 0."""
        mine = self.columns(dtypes)
        weights = self.weights[[c.feature for c in mine]].T / STEPS
        return Polynomial(
            columns=tuple(columns.index(c) for c in mine),
            substitutes=(0,) * len(mine),
            constant=1,
            terms=tuple((k,) for k in range(len(mine))),
            weights=tuple(tuple(float(w) for w in row) for row in weights),
            bias=tuple(float(b) for b in self.bias),
        )
