"""A linear model as a trained part: weights on standardised readings that become a polynomial of degree 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hardcase_edge.program.definition import Column, Polynomial

from ..data.problem import Problem
from ..policy.losses import FLOOR, ClassLoss
from ..policy.selection import Judge, Trained
from .standardise import STEPS, Standard

__all__ = ["GATE_RATES", "Linear", "LinearRows", "judged", "linear_rows"]

# A linear margin grows without end away from the boundary, where f1 has seen nothing; so the gate also decides alone.
GATE_RATES = tuple(k / 40 for k in range(41))


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


@dataclass(frozen=True)
class LinearRows:
    """Training rows as linear learners see them."""

    Z: np.ndarray  # (n, n_features) standardised readings
    classes: ClassLoss
    forward: np.ndarray  # (n,) f0's loss, -log p(y_i | z = 0; f0)

    @property
    def total(self) -> float:
        return float(self.classes.weight.sum())

    def scores(self, coef: np.ndarray) -> np.ndarray:
        """(n, n_outputs) under weights above biases."""
        return self.Z @ coef[:-1] + coef[-1]

    def take(self, rows: np.ndarray) -> LinearRows:
        """Some of the rows, by number."""
        c = self.classes
        return LinearRows(self.Z[rows], ClassLoss(c.y[rows], c.n_classes, c.weight[rows]), self.forward[rows])


def linear_rows(problem: Problem, Z: np.ndarray) -> LinearRows:
    """The training rows of a problem, standardised to Z."""
    rows = problem.train
    forward = -np.log(np.maximum(rows.hpc[np.arange(len(rows.y)), rows.y], FLOOR))
    return LinearRows(Z, ClassLoss(rows.y, problem.n_classes, rows.weight), forward)


def judged(
    judge: Judge, standard: Standard, Z: np.ndarray, coef: np.ndarray, fit: Callable[[np.ndarray], np.ndarray]
) -> Trained:
    """A linear part with its scores on the judged rows.

    Parameters
    ----------
    Z : (n, n_features) standardised training rows
    coef : (n_features + 1, n_outputs) weights above biases, fitted on all of them
    fit : from numbers of training rows to the ``coef`` of a twin that is fitted on those alone
    """
    part = Linear(standard, coef[:-1], coef[-1])

    def held(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        twin = fit(others)
        return Z[rows] @ twin[:-1] + twin[-1]

    return judge.trained(part, part.scores(standard.transform(judge.problem.valid.X)), held)
