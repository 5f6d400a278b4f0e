# SPDX-License-Identifier: Apache-2.0
"""Fits a tree of classifiers for one price: which sensors each node has, then all weights again without the price.

The price that chose the sensors also shrank the weights, so they are fitted again (Xu et al. 2014, 3.5) on every column
whose sensors a row has bought by then. Copies that judge the training rows get the sensors and nothing else. Nodes that
answer keep their linear scores, or get boosted trees on the sensors of their paths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...data.problem import N_FOLDS, Problem
from ...policy.compile import Part
from ...policy.kinds import answer_loss
from ...policy.selection import Judge, Trained
from ...trees.binning import Bins, make_bins
from ...trees.boosting import Ensemble, ensemble_scores
from ...trees.size import size_of
from ...trees.subset_classifier import fit_classifier
from .columns import Columns
from .descent import first_weights, settle, solve_jointly
from .objective import Objective, Rule, Weights, payers_of
from .shape import Shape

LEAVES = ("linear", "trees")  # what answers
REFITS = 2  # rounds: without a price the objective is smooth
FEW_ROWS = 40  # rows that leave at a node, below which its linear scores answer
LEAST_SHARE = 0.02  # of a row that leaves at a node, for the row to train its trees


@dataclass(frozen=True)
class Fitted:
    """Weights of all nodes over these columns, and the boosted trees of nodes that have them."""

    shape: Shape
    columns: Columns
    weights: Weights
    boosted: dict[int, Ensemble]
    n_answers: int

    def parts(self) -> list[Part]:
        """What parts stand on, each inner node's routing part, then the part of each node where rows exit."""
        return [*self.columns.below, *map(self._router, inner(self.shape)), *map(self._answer, answering(self.shape))]

    def scores(self, X: np.ndarray) -> list[np.ndarray]:
        """The parts' scores of rows, (n, n_outputs) each; zeros for what parts stand on, which no node reads."""
        below = [np.zeros((len(X), 1)) for _ in self.columns.below]
        scores = self.weights.scores(self.columns.values(X))
        routes = [scores[:, k, -1:] - self.weights.theta[k] for k in inner(self.shape)]
        return [*below, *routes, *(self._answer_scores(k, scores, X) for k in answering(self.shape))]

    def _router(self, k: int) -> Part:
        coef = self.weights.coef[k][:, -1:].copy()
        coef[-1] -= self.weights.theta[k]
        return self.columns.part(coef)

    def _answer(self, k: int) -> Part:
        return self.boosted[k] if k in self.boosted else self.columns.part(self.weights.coef[k][:, : self.n_answers])

    def _answer_scores(self, k: int, scores: np.ndarray, X: np.ndarray) -> np.ndarray:
        if k not in self.boosted:
            return scores[:, k, : self.n_answers]
        ensemble = self.boosted[k]
        return ensemble_scores(ensemble, ensemble.bins.transform(X[:, ensemble.features]))


def inner(shape: Shape) -> list[int]:
    """The nodes that route."""
    return [k for k in range(len(shape)) if not shape.is_leaf(k)]


def answering(shape: Shape) -> list[int]:
    """The nodes where rows exit."""
    return [k for k, _ in shape.exits]


def make_objective(
    problem: Problem, columns: Columns, shape: Shape, rule: Rule, rows: np.ndarray, tree_cost: float = 0.0
) -> Objective:
    """The objective of these training rows."""
    Z = columns.values(problem.train.X[rows]).astype(np.float32)
    payers = payers_of(columns.sensors, problem.sensor_costs(), tree_cost)
    return Objective(Z, answer_loss(problem, rows), shape, payers, rule)


@dataclass(frozen=True)
class Learner:
    """Fits weights, and trees where asked, to training rows, for sensors that are chosen.

    leaves : one of ``LEAVES``
    """

    problem: Problem
    shape: Shape
    rule: Rule
    leaves: str

    def binned(self) -> tuple[Bins, np.ndarray]:
        """Bins of the boosted trees, and the codes of all training rows."""
        bins = make_bins(self.problem.train.X, self.problem.dtypes, size_of(self.problem).model.max_bins)
        return bins, bins.transform(self.problem.train.X)

    def fit(
        self,
        columns: Columns,
        has: np.ndarray,
        rows: np.ndarray,
        binned: tuple[Bins, np.ndarray] | None,
        used: np.ndarray | None = None,
    ) -> Fitted:
        """Fit to these training rows.

        Parameters
        ----------
        has : (n_nodes, n_sensors) bool, the sensors that a row has bought when a node sees it
        rows : numbers of training rows
        binned : as ``binned``; None if the leaves are linear
        used : (n_nodes, n_columns) bool, the weights that may differ from 0; None: all whose sensors a node has
        """
        rule = replace(self.rule, price=0.0)
        objective = make_objective(self.problem, columns, self.shape, rule, rows)
        free = np.array([[all(node[s] for s in sensors) for sensors in columns.sensors] for node in has], dtype=bool)
        free = free if used is None else used
        live = np.asarray(free.any(axis=0))
        small = replace(objective, Z=objective.Z[:, live], payers=objective.payers.only(live))
        fitted = solve_jointly(small, first_weights(small, free[:, live]), free[:, live], rounds=REFITS)
        fitted = settle(small, fitted, free[:, live])
        coef = objective.zero().coef
        coef[:, np.append(live, True)] = fitted.coef
        weights = Weights(coef, fitted.theta)
        boosted = {} if binned is None else self._boosted(small, fitted, has, rows, binned)
        return Fitted(self.shape, columns, weights, boosted, objective.loss.n_outputs)

    def _boosted(
        self, objective: Objective, weights: Weights, has: np.ndarray, rows: np.ndarray, binned: tuple[Bins, np.ndarray]
    ) -> dict[int, Ensemble]:
        leaving = objective.leaving(*objective.routing(weights.scores(objective.Z), weights.theta))
        ensembles = {}
        for e, k in enumerate(answering(self.shape)):
            own = np.flatnonzero(leaving[:, e] >= LEAST_SHARE)
            if has[k].any() and len(own) >= FEW_ROWS:
                ensembles[k] = self._booster(np.flatnonzero(has[k]), rows[own], leaving[own, e], binned)
        return ensembles

    def _booster(
        self, sensors: np.ndarray, rows: np.ndarray, share: np.ndarray, binned: tuple[Bins, np.ndarray]
    ) -> Ensemble:
        size, loss = size_of(self.problem), answer_loss(self.problem, rows)
        loss = replace(loss, weight=loss.weight * share)
        return fit_classifier(self.problem, sensors.tolist(), *binned, size.model, size.n_trees, rows, loss)


def has_by_then(objective: Objective, weights: Weights, n_sensors: int) -> np.ndarray:
    """(n_nodes, n_sensors) bool: the sensors that nodes on the way to each node, and it, need."""
    pays = objective.squares(weights.coef[:, :-1])[:, :n_sensors] > 0
    return np.asarray(objective.shape.above @ pays)


def judged(judge: Judge, fit: Callable[[np.ndarray], Fitted]) -> list[Trained]:
    """The parts of the tree that ``fit`` gives for all training rows, in the order of ``Fitted.parts``.

    Parameters
    ----------
    fit : a tree of these training rows, by number; copies without a fold score that fold
    """
    problem, n = judge.problem, len(judge.problem.train.y)
    model = fit(np.arange(n))
    valid = model.scores(problem.valid.X)
    unseen = [np.empty((n, part.shape[1])) for part in valid]
    for k in range(N_FOLDS if judge.is_crossed else 0):
        rows = np.flatnonzero(judge.fold == k)
        copy = fit(np.flatnonzero(judge.fold != k))
        for own, scores in zip(unseen, copy.scores(problem.train.X[rows]), strict=True):
            own[rows] = scores

    def trained(part: Part, own_valid: np.ndarray, own: np.ndarray) -> Trained:
        return judge.trained(part, own_valid, lambda rows, _: own[rows])

    return [trained(*part) for part in zip(model.parts(), valid, unseen, strict=True)]
