# SPDX-License-Identifier: Apache-2.0
"""The method ``cstc``: cost-sensitive trees of linear classifiers, cascades of them, and Cronus.

Xu, Kusner, Weinberger, Chen and Chapelle (2014). One objective trains all of them (``objective``); for each price of a
rising list, its minimum says which sensors each node buys, and all weights are fitted again without the price.
docs/math.md, section 15.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ...data.problem import N_FOLDS, Problem
from ...estimator import Limits, MethodClassifier
from ...method import Method, Params
from ...policy.compile import Part
from ...policy.front import Point, best_points
from ...policy.prices import prices
from ...policy.selection import Judge, Trained
from ...stages.subset_search import SubsetSearch
from ...trees.binning import Bins
from .columns import Columns, readings, tree_columns
from .descent import initial, jointly, prices_of
from .fit import LEAVES, Learner, has_by_then, make_objective
from .objective import Rule
from .program import tree_points
from .shape import Shape, chain, tree
from .zeros import sparse

__all__ = ["SHAPES", "CostSensitiveTree"]

SHAPES = ("tree", "cascade", "cronus")
COLUMNS = ("readings", "trees")
N_TREES = 120  # of a dictionary
LEAST_PRICE, MOST_PRICE = 0.01, 3.0  # errors per cost unit, at which rows are forwarded


@dataclass(eq=False, repr=False)
class CostSensitiveTree(MethodClassifier):
    """A tree or a cascade of linear classifiers that buys other sensors for other rows.

    Parameters
    ----------
    shape : "tree" (CSTC), "cascade" (CSCC) or "cronus"; with ``depth`` 0 all are the single classifier
    depth : levels below the root: a tree has ``2 ** depth`` leaves, a cascade ``depth + 1`` nodes
    columns : what nodes weigh, "readings" or "trees" (boosted trees; two classes or values only)
    leaves : what answers, "linear" or "trees"
    slope : of the sigmoid that routes rows in training; 1 in the paper
    interior : weight of inner nodes' losses in a tree; 1 in the paper
    l2 : ridge penalty on all weights
    n_steps : of L-BFGS between two rescalings
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> model = CostSensitiveTree(shape="cascade", depth=3, costs=[1.0, 8.0], forward_cost=20.0)
    >>> model.method.name, model.slope
    ('cstc', 1.0)
    """

    shape: str = "tree"
    depth: int = 2
    columns: str = "readings"
    leaves: str = "linear"
    slope: float = 1.0
    interior: float = 1.0
    l2: float = 1e-4
    n_steps: int = 25
    method: ClassVar[Method] = Method(name="cstc", work=8, colour="#16a085", takes_values=True)
    _limits: ClassVar[Limits] = {"depth": (0, 4), "slope": (1e-3, 1e3), "interior": (0, 1), "l2": (0, np.inf),
                                "n_steps": (1, np.inf)}  # fmt: skip

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return len(problem.effort.tree_shapes) * len(LEAVES)

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting for each shape and kind of leaf; all prices are on one path."""
        shapes = search.problem.effort.tree_shapes
        return [{"shape": shape, "depth": depth, "leaves": leaves} for shape, depth in shapes for leaves in LEAVES]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points of one setting over prices that are best on the judged rows."""
        return cls(**params).learn(search.judge, params)

    def points(self, judge: Judge) -> list[Point]:
        """Points over prices."""
        for name, value, known in (("shape", self.shape, SHAPES), ("leaves", self.leaves, LEAVES),
                                   ("columns", self.columns, COLUMNS)):  # fmt: skip
            if value not in known:
                raise ValueError(f"{name} of CostSensitiveTree is {value!r}; expected one of {known}")
        return self.learn(judge, {"shape": self.shape, "depth": self.depth, "leaves": self.leaves})

    def learn(self, judge: Judge, params: Params) -> list[Point]:
        """The points over prices that are best on the judged rows, each with its policy."""
        problem, shape = judge.problem, tree(self.depth) if self.shape == "tree" else chain(self.depth + 1)
        rule = Rule(
            by_exit=self.shape != "tree", one_bundle=self.shape == "cronus", l2=self.l2, slope=self.slope,
            interior=self.interior, n_steps=self.n_steps,
        )  # fmt: skip
        columns = self._columns(problem)
        learner = Learner(problem, shape, rule, self.leaves)
        binned = learner.binned() if self.leaves == "trees" else None
        forward_prices = prices(problem, problem.effort.n_graph_prices, LEAST_PRICE, MOST_PRICE)
        points: list[Point] = []
        for price, has in self._sensors(problem, columns, shape, rule):
            trained = self._trained(judge, learner, columns, has, binned)
            named = {**params, "price": price}
            points += tree_points(judge, self.method.name, named, shape, has, trained, forward_prices)
        return best_points(points)

    def _columns(self, problem: Problem) -> Columns:
        if self.columns == "readings":
            return readings(problem)
        if problem.n_outputs > 1:
            raise ValueError(
                "columns of CostSensitiveTree are 'trees', which need two classes or values; use 'readings'"
            )
        return tree_columns(problem, N_TREES)

    def _sensors(
        self, problem: Problem, columns: Columns, shape: Shape, rule: Rule
    ) -> Iterator[tuple[float, np.ndarray]]:
        """For each price, the sensors that a row has bought when a node sees it, (n_nodes, n_sensors) bool."""
        rows = np.arange(len(problem.train.y))
        objective = make_objective(problem, columns, shape, rule, rows)
        offered = np.isin(np.arange(len(problem.sensors)), problem.offered)
        free = np.tile([all(offered[s] for s in sensors) for sensors in columns.sensors], (len(shape), 1))
        weights, last = initial(objective, free), None
        for price in prices_of(objective, problem.effort.n_tree_prices):
            priced = replace(objective, rule=replace(rule, price=price))
            weights = jointly(priced, weights, free)
            has = has_by_then(priced, sparse(priced, weights), len(problem.sensors))
            if last is None or (has != last).any():
                yield price, has
            last = has

    def _trained(
        self,
        judge: Judge,
        learner: Learner,
        columns: Columns,
        has: np.ndarray,
        binned: tuple[Bins, np.ndarray] | None,
    ) -> list[Trained]:
        """The parts of a tree with these sensors, and their scores of the judged rows."""
        problem = judge.problem
        n = len(problem.train.y)
        model = learner.fit(columns, has, np.arange(n), binned)
        valid = model.scores(problem.valid.X)
        unseen = [np.empty((n, part.shape[1])) for part in valid]
        for k in range(N_FOLDS if judge.is_crossed else 0):
            rows, others = np.flatnonzero(judge.fold == k), np.flatnonzero(judge.fold != k)
            copy = learner.fit(columns.of(others, np.flatnonzero(has.any(axis=0)).tolist()), has, others, binned)
            for own, scores in zip(unseen, copy.scores(problem.train.X[rows]), strict=True):
                own[rows] = scores

        def judged(part: Part, own_valid: np.ndarray, own: np.ndarray) -> Trained:
            return judge.trained(part, own_valid, lambda rows, _: own[rows])

        return [judged(*part) for part in zip(model.parts(), valid, unseen, strict=True)]
