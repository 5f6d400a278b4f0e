# SPDX-License-Identifier: Apache-2.0
"""Data shared by all states of a graph: standardised rows, polynomial terms, bins, and cross-validation folds."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ...data.problem import N_FOLDS
from ...linear.logistic import Design
from ...linear.part import BYTE_MAX, BYTE_STEPS, STEPS, Standard, make_standard
from ...linear.terms import PolynomialPart, Terms, make_terms
from ...policy.compile import Part
from ...policy.selection import Judge, Trained
from ...successors.reduce import Graph
from ...trees.binning import Bins, make_bins
from ...trees.size import size_of


class DagRows:
    """The rows of a problem, prepared for the states of a graph.

    Parameters
    ----------
    degree : degree of the polynomials, 1 to 3

    Attributes
    ----------
    fold : (n_train,) number of the copy that is not trained on the row
    seen : (1 + N_FOLDS, n_train) float32, 1 if the row is in the training set of the model, or of its copy per fold
    """

    def __init__(self, judge: Judge, graph: Graph, degree: int) -> None:
        self.judge, self.graph, self.degree, self.problem = judge, graph, degree, judge.problem
        train = self.problem.train
        self.weight = train.weight
        self.fold = judge.fold
        self.seen = np.ones((1 + N_FOLDS, len(train.y)), dtype=np.float32)
        for k in range(N_FOLDS):
            self.seen[1 + k, self.fold == k] = 0.0

    @cached_property
    def standard(self) -> Standard:
        """Standardisation; columns have one byte if the degree is above 1, because they are multiplied."""
        scale = (STEPS,) if self.degree == 1 else (BYTE_STEPS, BYTE_MAX)
        return make_standard(self.problem.train.X, self.problem.train.weight, *scale)

    @cached_property
    def standardised(self) -> tuple[np.ndarray, np.ndarray]:
        """Standardised training and validation rows."""
        p = self.problem
        return self.standard.transform(p.train.X), self.standard.transform(p.valid.X)

    @cached_property
    def terms(self) -> Terms:
        """Polynomial terms of all features."""
        return make_terms(self.standardised[0], self.degree)

    @cached_property
    def design(self) -> Design:
        """Training rows as terms, with their weighted Gram matrix."""
        values = self.terms.values(self.standardised[0])
        share = (self.weight / self.weight.sum()).astype(np.float32)
        return Design(values, (values * share) @ values.T)

    @cached_property
    def valid_values(self) -> np.ndarray:
        """Validation rows as terms."""
        return self.terms.values(self.standardised[1])

    @cached_property
    def binned(self) -> tuple[Bins, np.ndarray, np.ndarray]:
        """Bins, and codes of training and validation rows."""
        p = self.problem
        bins = make_bins(p.train.X, p.dtypes, size_of(p).model.max_bins)
        return bins, bins.transform(p.train.X), bins.transform(p.valid.X)

    def prepare(self, needs_terms: bool, needs_bins: bool) -> None:
        """Compute shared data before threads start to use it."""
        if needs_terms:
            _ = self.design, self.valid_values
        if needs_bins:
            _ = self.binned

    def features(self, s: int) -> np.ndarray:
        """The features available in a state."""
        sensors = self.problem.sensors
        return np.array([f for k in self.graph.states[s] for f in sensors[k].features], dtype=np.int64)

    def mine(self, s: int) -> np.ndarray:
        """The numbers of the terms available in a state."""
        return self.terms.within(self.features(s))

    def own(self, scores: np.ndarray) -> np.ndarray:
        """Out-of-fold scores of training rows, (n_train, n_outputs).

        Parameters
        ----------
        scores : (1 + N_FOLDS, n_outputs, n_train) scores by the model and its copies; if only the model's are given,
            these are returned
        """
        if len(scores) == 1:
            return np.asarray(scores[0].T, dtype=np.float64)
        return np.asarray(scores[1 + self.fold, :, np.arange(len(self.fold))], dtype=np.float64)

    def trained(self, part: Part, unseen: np.ndarray, valid: np.ndarray) -> Trained:
        """A part with its scores on the judged rows."""
        return Trained(part, np.vstack([unseen, valid]) if self.judge.is_crossed else valid)

    def polynomial(self, columns: np.ndarray, coef: np.ndarray) -> PolynomialPart:
        """The part with coefficients (n_outputs, n_terms) of these terms; term 0 is the bias."""
        weights = coef / self.terms.scale[columns]
        return PolynomialPart(self.standard, self.terms.factors[columns[1:]], weights[:, 1:].T, weights[:, 0])
