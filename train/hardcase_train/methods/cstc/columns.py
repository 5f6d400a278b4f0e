# SPDX-License-Identifier: Apache-2.0
"""What linear nodes weigh: standardised readings, or a dictionary of boosted trees grown under several prices.

Xu et al. (2014), section 5: a column is a tree's output, and needs every sensor that the tree reads. Trees of one
booster without prices read ten sensors each, and the relaxation then buys all or nothing; under prices they read few.
Of more classes than two, each booster has one class against the others, in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ...data.problem import Problem
from ...linear.part import Linear, Standard, make_standard
from ...policy.compile import Part
from ...policy.kinds import answer_loss
from ...policy.losses import AnswerLoss, ClassLoss
from ...policy.prices import prices
from ...policy.tree_scores import add_tree
from ...trees.binning import MISSING_BIN, Bins, make_bins
from ...trees.boosting import Ensemble, TreeSettings, boost
from ...trees.grower import GrownTree
from ...trees.subset_classifier import Stacked

SETTINGS = TreeSettings(learning_rate=0.2, max_leaves=8, max_depth=3, min_rows=20, l2=1.0, max_bins=64)
LEAST_PRICE, MOST_PRICE = 0.03, 10.0  # mean loss per cost unit, of the dictionary's boosters
N_PRICES = 5  # boosters under a price, beside one without


class Columns(Protocol):
    """Columns of rows; ``sensors[j]`` are those that column j needs."""

    @property
    def sensors(self) -> Sequence[Sequence[int]]: ...

    def values(self, X: np.ndarray) -> np.ndarray:
        """(n, n_columns) for readings (n, n_features)."""
        ...

    @property
    def below(self) -> list[Part]:
        """The parts on which those of ``part`` stand."""
        ...

    def part(self, coef: np.ndarray) -> Part:
        """The part whose scores are ``values @ coef[:-1] + coef[-1]``, for coef (n_columns + 1, n_outputs)."""
        ...

    def of(self, rows: np.ndarray, sensors: Sequence[int]) -> Columns:
        """The columns that these training rows alone, by number, would have given, of these sensors alone."""
        ...


@dataclass(frozen=True)
class Readings:
    """Standardised readings of all features; a missing one is at the mean."""

    standard: Standard
    owner: tuple[int, ...]

    @property
    def sensors(self) -> list[tuple[int, ...]]:
        return [(s,) for s in self.owner]

    def values(self, X: np.ndarray) -> np.ndarray:
        return self.standard.transform(X)

    @property
    def below(self) -> list[Part]:
        return []

    def part(self, coef: np.ndarray) -> Part:
        return Linear(self.standard, coef[:-1], coef[-1])

    def of(self, rows: np.ndarray, sensors: Sequence[int]) -> Readings:
        return self


def readings(problem: Problem) -> Readings:
    """The readings, standardised by the training rows."""
    standard = make_standard(problem.train.X, problem.train.weight)
    return Readings(standard, tuple(int(s) for s in problem.sensor_of))


@dataclass(frozen=True)
class TreeColumns:
    """Trees of one output each, their leaves as they grew."""

    problem: Problem
    bins: Bins
    trees: tuple[GrownTree, ...]
    n_trees: int

    @property
    def sensors(self) -> list[tuple[int, ...]]:
        owner = self.problem.sensor_of
        return [tuple(sorted({int(owner[f]) for f in tree.features})) for tree in self.trees]

    @cached_property
    def dictionary(self) -> Ensemble:
        """All trees as one ensemble, on which the nodes' parts stand."""
        features = np.arange(len(self.problem.features))
        return Ensemble(self.bins, features, np.zeros(1), list(self.trees), [(0, 1)] * len(self.trees))

    @property
    def below(self) -> list[Part]:
        return [self.dictionary]

    def values(self, X: np.ndarray) -> np.ndarray:
        codes, values = np.ascontiguousarray(self.bins.transform(X)), np.zeros((len(X), len(self.trees)))
        for t, tree in enumerate(self.trees):
            column = np.zeros((len(X), 1))
            shape = (tree.features, tree.bins, tree.missing_left, tree.children, tree.leaves)
            add_tree(codes, MISSING_BIN, *shape, column, 0)
            values[:, t] = column[:, 0]
        return values

    def part(self, coef: np.ndarray) -> Part:
        used = np.flatnonzero(coef[:-1].any(axis=1))
        return Stacked(self.dictionary, used, coef[used], coef[-1])

    def of(self, rows: np.ndarray, sensors: Sequence[int]) -> TreeColumns:
        return tree_columns(self.problem, self.n_trees, rows, sensors)


def tree_columns(
    problem: Problem, n_trees: int, rows: np.ndarray | None = None, sensors: Sequence[int] | None = None
) -> TreeColumns:
    """The trees of boosters without a price and under several.

    Parameters
    ----------
    n_trees : of all boosters together
    rows : training rows, by number; None: all
    sensors : that trees may read; None: those offered
    """
    rows = np.arange(len(problem.train.y)) if rows is None else rows
    bins = make_bins(problem.train.X, problem.dtypes, SETTINGS.max_bins)
    codes = np.ascontiguousarray(bins.transform(problem.train.X[rows]))
    losses, trees = _single_scores(answer_loss(problem, rows)), list[GrownTree]()
    allowed = np.isin(np.arange(len(problem.sensors)), problem.offered if sensors is None else list(sensors))
    n_each = max(1, n_trees // ((1 + N_PRICES) * len(losses)))
    for price in [0.0, *prices(problem, N_PRICES, LEAST_PRICE, MOST_PRICE)]:
        for loss in losses:
            penalty = np.where(allowed, price * problem.sensor_costs() * loss.weight.sum(), np.inf)
            grown = Ensemble(bins, np.arange(len(problem.features)), loss.base())
            scores = np.tile(grown.base, (len(rows), 1))
            boost(grown, loss, codes, problem.offered_of, scores, penalty, SETTINGS, n_each)
            trees += grown.trees
    return TreeColumns(problem, bins, tuple(trees), n_trees)


def _single_scores(loss: AnswerLoss) -> list[AnswerLoss]:
    """Losses of one score each: the loss itself, or of more classes than two each class against the others."""
    if not isinstance(loss, ClassLoss) or loss.n_outputs == 1:
        return [loss]
    worth = loss._targets[loss.y]
    weight = loss.weight * worth.sum(axis=1)
    return [ClassLoss((worth[:, a] > worth.mean(axis=1)).astype(np.int64), 2, weight) for a in range(loss.n_classes)]
