# SPDX-License-Identifier: Apache-2.0
"""A linear model as a part: weights on standardised readings, compiled to a polynomial of degree 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hardcase_edge.program.definition import Column, Polynomial

from ..data.problem import Problem
from ..policy.kinds import answer_loss, hpc_loss
from ..policy.losses import AnswerLoss
from ..policy.selection import Judge, Trained
from .standardise import STEPS, Standard

__all__ = ["GATE_RATES", "Linear", "LinearRows", "judged", "linear_rows"]

# Forward rates at which the gate decides without the margin: far from the boundary, where f1 has seen no rows, a linear
# margin is always large.
GATE_RATES = tuple(k / 40 for k in range(41))


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

    def held(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        copy = fit(others)
        return np.asarray(Z[rows] @ copy[:-1] + copy[-1])

    return judge.trained(part, part.scores(standard.transform(judge.problem.valid.X)), held)
