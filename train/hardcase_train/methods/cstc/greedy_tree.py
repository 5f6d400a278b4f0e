# SPDX-License-Identifier: Apache-2.0
"""The method ``astc``: a tree of least-squares classifiers, whose nodes buy sensors greedily and halve their rows.

Kusner, Chen, Zhou, Xu, Weinberger and Chen, *Feature-Cost Sensitive Learning with Submodular Trees of Classifiers*
(2014). From the root down, a node buys the sensor with the most gain in explained squares per cost, until its budget is
spent; what its parents bought is free. Nothing is fitted jointly. docs/math.md (113).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import solve

from ...data.problem import Problem
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.front import Point, best_points
from ...policy.kinds import learned
from ...policy.selection import Judge
from ...policy_estimator import Limits
from ...stages.subset_search import SubsetSearch
from .columns import Columns, readings
from .descent import halve_rows
from .fit import Fitted, judged, make_objective
from .objective import Rule, Weights
from .program import tree_points
from .shape import EXIT, Shape, tree

LEAST_GAIN = 1e-4  # of all squares: less is noise
DEPENDENT = 1e-6  # of a column's squares, what is left of one that others give
LEAST_BUDGET = 0.01  # of what all sensors cost, a node's
FEW_ROWS = 10  # of a node, below which it answers as its parent

Choice = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # of columns, targets, and sensors at hand


@dataclass(eq=False, repr=False)
class GreedyTree(MethodClassifier):
    """A tree of least-squares classifiers that are fitted one after the other.

    Parameters
    ----------
    depth : levels below the root
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> GreedyTree(depth=1, costs=[1.0, 8.0]).method.name
    'astc'
    """

    depth: int = 2
    method: ClassVar[Method] = Method(
        name="astc", maturity="research", against="nothing is fitted jointly", turn=18, colour="#0b5345",
        takes_values=True,
    )  # fmt: skip
    _limits: ClassVar[Limits] = {"depth": (0, 4)}

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return len(cls._depths(problem))

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting for each depth; all budgets belong to it."""
        return [{"depth": depth} for depth in cls._depths(search.problem)]

    @staticmethod
    def _depths(problem: Problem) -> list[int]:
        return [depth for shape, depth in problem.effort.tree_shapes if shape == "tree"]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points of one depth that are best on the judged rows."""
        return cls(**params).points(search.judge)

    def points(self, judge: Judge) -> list[Point]:
        """Points over budgets of a node."""
        problem, shape, columns = judge.problem, tree(self.depth), readings(judge.problem)
        costs, rows = problem.sensor_costs(), np.arange(len(problem.train.y))
        offered = np.isin(np.arange(len(costs)), problem.offered)
        budgets = costs[offered].sum() * np.geomspace(LEAST_BUDGET, 1.0, problem.effort.n_tree_prices + 1)
        points: list[Point] = []
        last: np.ndarray | None = None
        for budget in [0.0, *budgets[:-1], costs[offered].sum()]:
            choose = _greedy(columns, costs, offered, budget)
            has = _grown(problem, columns, shape, rows, choose)[1]
            if last is not None and (has == last).all():
                continue
            last = has
            trained = judged(judge, lambda rows, has=has: _fitted(problem, columns, shape, has, rows))  # type: ignore[misc]
            named = {"depth": self.depth, "budget": float(budget)}
            points += tree_points(judge, self.method.name, named, shape, has, trained)
        return best_points(points)


def bought(
    Z: np.ndarray, Y: np.ndarray, owner: np.ndarray, costs: np.ndarray, has: np.ndarray, budget: float
) -> np.ndarray:
    """The sensors at hand after greedy purchases, (n_sensors,) bool.

    Parameters
    ----------
    Z : (n, n_columns) columns of mean 0
    Y : (n, n_outputs) targets of mean 0
    owner : (n_columns,) the sensor of each column
    costs : (n_sensors,); infinite for those that are not offered
    has : (n_sensors,) bool, sensors at hand
    """
    Z, Y, has = Z.astype(np.float64), Y.copy(), has.copy()
    whole, least = np.square(Z).sum(axis=0), LEAST_GAIN * np.square(Y).sum()
    for k in np.flatnonzero(has):
        _project(Z, Y, np.flatnonzero(owner == k), whole)
    while True:
        squares = np.square(Z).sum(axis=0)
        gains = np.square(Z.T @ Y).sum(axis=1) / np.maximum(squares, DEPENDENT * whole + 1e-300)
        gain = np.bincount(owner, np.where(squares > DEPENDENT * whole, gains, 0.0), len(costs))
        can = ~has & (costs <= budget) & (gain > least)
        if not can.any():
            return has
        worth = np.where(can, gain / np.maximum(costs, 1e-12), -1.0)
        s = int(worth.argmax())
        has[s], budget = True, budget - costs[s]
        _project(Z, Y, np.flatnonzero(owner == s), whole)


def _project(Z: np.ndarray, Y: np.ndarray, columns: np.ndarray, whole: np.ndarray) -> None:
    """Take out of all columns and targets what these columns explain, in place."""
    for j in columns:
        own = Z[:, j] @ Z[:, j]
        if own > DEPENDENT * whole[j]:
            unit = Z[:, j] / np.sqrt(own)
            Y -= np.outer(unit, unit @ Y)
            Z -= np.outer(unit, unit @ Z)


def _greedy(columns: Columns, costs: np.ndarray, offered: np.ndarray, budget: float) -> Choice:
    owner = np.array([s for (s,) in columns.sensors])
    prices = np.where(offered, costs, np.inf)
    return lambda Z, Y, has: bought(Z, Y, owner, prices, has, budget)


def _fitted(problem: Problem, columns: Columns, shape: Shape, has: np.ndarray, rows: np.ndarray) -> Fitted:
    """The tree of these training rows for sensors that are chosen, (n_nodes, n_sensors) bool."""
    nodes = iter(has)
    weights, _ = _grown(problem, columns, shape, rows, lambda Z, Y, before: next(nodes))
    return Fitted(shape, columns, weights, {}, problem.n_outputs)


def _grown(
    problem: Problem, columns: Columns, shape: Shape, rows: np.ndarray, choose: Choice
) -> tuple[Weights, np.ndarray]:
    """Weights of all nodes, and the sensors at hand in each, (n_nodes, n_sensors) bool."""
    objective = make_objective(problem, columns, shape, Rule(), rows)
    Y, zero, n_sensors = learned(problem).targets(problem.train.y[rows]), objective.zero(), len(problem.sensors)
    owner = np.array([s for (s,) in columns.sensors])
    reaches, has = np.zeros((len(shape), len(rows)), dtype=bool), np.zeros((len(shape), n_sensors), dtype=bool)
    reaches[0] = True
    for k in range(len(shape)):
        parent = shape.parents[k]
        before = has[parent] if parent >= 0 else has[k]
        own = objective.take(np.flatnonzero(reaches[k]))
        is_few = own.share.size < FEW_ROWS
        if is_few and parent >= 0:
            zero.coef[k], zero.theta[k] = zero.coef[parent], zero.theta[parent]
            has[k] = choose(np.zeros((1, len(owner))), np.zeros((1, Y.shape[1])), before)
        else:
            root, target = np.sqrt(own.share)[:, None], Y[reaches[k]]
            at, mean = own.share @ own.Z, own.share @ target
            Z, target = root * (own.Z - at), root * (target - mean)
            has[k] = choose(Z, target, before)
            zero.coef[k] = _least_squares(zero.coef[k], Z, target, at, mean, has[k][owner])
            if not shape.is_leaf(k):
                zero.coef[k], zero.theta[k] = halve_rows(own, zero.coef[k], own.share)
        scores = objective.Z @ zero.coef[k, :-1, -1] + zero.coef[k, -1, -1]
        for side, child in enumerate(shape.children[k]):
            if child != EXIT:
                reaches[child] = reaches[k] & ((scores > zero.theta[k]) == bool(side))
    return zero, has


def _least_squares(
    coef: np.ndarray, Z: np.ndarray, Y: np.ndarray, at: np.ndarray, mean: np.ndarray, free: np.ndarray
) -> np.ndarray:
    """Ridge regression on some of the columns, all of mean 0 beside ``at`` and ``mean``, as a node's weights."""
    fitted, n_outputs = np.zeros(coef.shape), Y.shape[1]
    if free.any():
        gram = Z[:, free].T @ Z[:, free]
        gram += 1e-4 * np.eye(len(gram))
        fitted[np.flatnonzero(free), :n_outputs] = solve(gram, Z[:, free].T @ Y, assume_a="pos")
    fitted[-1, :n_outputs] = mean - at @ fitted[:-1, :n_outputs]
    return fitted
