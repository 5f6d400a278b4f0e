# SPDX-License-Identifier: Apache-2.0
"""The method ``and-or``: a cascade whose stages are given their sensors by cost, trained by one AND-OR loss.

Dundar and Bi (2007), as Xu et al. (2014) compare with it, 6.3. A row of the most frequent class may leave at any stage,
so its loss is the least of all stages' (OR); a row of another class must pass them all, so its loss is the largest
(AND). docs/math.md (114).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from ...data.problem import Problem
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.front import Point, best_points
from ...policy.losses import sigmoid
from ...policy.selection import Judge
from ...policy_estimator import Limits
from ...stages.subset_search import SubsetSearch
from .columns import Columns, readings
from .descent import solve_jointly
from .fit import Fitted, judged, make_objective
from .objective import SMOOTH, Rule, Weights
from .program import tree_points
from .shape import Shape, chain, tree

SHARPNESS = 10.0  # of the smooth maximum and minimum of logistic losses
L2 = 1e-4
N_STEPS = 100  # of L-BFGS
LEAST_SHARE = 1e-3  # of the largest price at which a sensor is worth buying
NEXT_TO_ZERO = 1e-2  # of the largest norm of a sensor's weights


@dataclass(eq=False, repr=False)
class AndOr(MethodClassifier):
    """A cascade in which stage k may read the sensors up to the k-th level of cost.

    Parameters
    ----------
    n_stages : levels of cost, at most; sensors that cost the same are on one level
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> AndOr(costs=[1.0, 8.0]).method.name
    'and-or'
    """

    n_stages: int = 5
    method: ClassVar[Method] = Method(
        name="and-or", maturity="research", against="classes alone; only cases of the most frequent one leave early",
        turn=19, colour="#922b21",
    )  # fmt: skip
    _limits: ClassVar[Limits] = {"n_stages": (1, 16)}

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting; all prices are on one path."""
        return [{"n_stages": cls.n_stages}]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points over prices that are best on the judged rows."""
        return cls(**params).points(search.judge)

    def points(self, judge: Judge) -> list[Point]:
        """Points over prices."""
        problem, columns = judge.problem, readings(judge.problem)
        cascade = _Cascade(problem, columns, stage_levels(problem, self.n_stages))
        points: list[Point] = []
        last: np.ndarray | None = None
        for price, free in cascade.path(problem.effort.n_tree_prices):
            if last is not None and (free == last).all():
                continue
            last = free
            has = np.logical_or.accumulate(cascade.by_sensor(free), axis=0)
            trained = judged(judge, lambda rows, free=free: cascade.fitted(rows, free))  # type: ignore[misc]
            named = {"n_stages": self.n_stages, "price": price}
            points += tree_points(judge, self.method.name, named, cascade.shape, has, trained)
        return best_points(points)


def stage_levels(problem: Problem, n_stages: int) -> list[float]:
    """The largest cost of a sensor of each stage, rising: quantiles of the costs of all that are offered."""
    costs = np.sort(problem.sensor_costs()[list(problem.offered)])
    places = np.ceil(np.arange(1, n_stages + 1) / n_stages * len(costs)).astype(int) - 1
    return sorted({float(costs[p]) for p in places}) if len(costs) else [0.0]


@dataclass(frozen=True)
class AndOrLoss:
    """Mean AND-OR loss of stages' scores, with a mixed norm over sensors.

    Z : (n, n_columns)
    is_rare : (n,) bool, rows of any class but the most frequent
    share : (n,) weights, adding up to 1
    owner : (n_columns,) sensor of each column
    costs : (n_sensors,)
    free : (n_stages, n_columns) bool, weights that may differ from 0
    """

    Z: np.ndarray
    is_rare: np.ndarray
    share: np.ndarray
    owner: np.ndarray
    costs: np.ndarray
    free: np.ndarray
    price: float = 0.0

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient by weights and biases (n_stages, n_columns + 1), flat."""
        coef = flat.reshape(len(self.free), -1)
        sign = np.where(self.is_rare, 1.0, -1.0)[:, None]
        scores = sign * (self.Z @ coef[:, :-1].T + coef[:, -1])
        bend = SHARPNESS * sign
        losses = np.logaddexp(0.0, -scores)
        n_stages = len(self.free)
        row = (logsumexp(bend * losses, axis=1) - np.where(self.is_rare, 0.0, np.log(n_stages))) / bend[:, 0]
        slope = self.share[:, None] * softmax(bend * losses, axis=1) * -sigmoid(-scores) * sign
        weights = coef[:, :-1]
        norms = self.norms(weights)
        pull = (self.price * self.costs / norms)[self.owner] * weights + L2 * weights
        value = self.share @ row + self.price * self.costs @ norms + 0.5 * L2 * np.square(weights).sum()
        gradient = np.column_stack([(slope.T @ self.Z + pull) * self.free, slope.sum(axis=0)])
        return float(value), gradient.ravel()

    def norms(self, weights: np.ndarray) -> np.ndarray:
        """(n_sensors,) roots of the sums of squares of all stages' weights."""
        return np.asarray(np.sqrt(np.bincount(self.owner, np.square(weights).sum(axis=0), len(self.costs)) + SMOOTH))

    def minimum(self, start: np.ndarray) -> np.ndarray:
        """Weights and biases (n_stages, n_columns + 1)."""
        solution = minimize(
            self, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": N_STEPS, "maxcor": 20}
        )
        return np.asarray(solution.x.reshape(start.shape))


class _Cascade:
    """Stages of a problem; rows of the most frequent class leave on the low side, or on the high one if it is class 1.

    Attributes
    ----------
    shape : the chain
    """

    def __init__(self, problem: Problem, columns: Columns, levels: list[float]) -> None:
        self.problem, self.columns = problem, columns
        self.owner = np.array([s for (s,) in columns.sensors])
        self.costs = problem.sensor_costs()
        offered = np.isin(self.owner, problem.offered)
        self.allowed = np.array([offered & (self.costs[self.owner] <= level) for level in levels])
        self.is_flipped = problem.n_outputs == 1 and problem.majority == 1
        shape = chain(len(levels))
        self.shape = Shape(tuple((high, low) for low, high in shape.children)) if self.is_flipped else shape

    def by_sensor(self, free: np.ndarray) -> np.ndarray:
        """(n_stages, n_sensors) bool, of (n_stages, n_columns)."""
        return np.array([np.bincount(self.owner, stage, len(self.costs)) > 0 for stage in free])

    def path(self, n: int) -> list[tuple[float, np.ndarray]]:
        """Rising prices, and the columns that each stage reads at each, (n_stages, n_columns) bool."""
        loss = self._loss(np.arange(len(self.problem.train.y)), self.allowed)
        at = np.zeros((len(self.allowed), len(self.owner) + 1))
        at[:, -1] = _log_odds(loss.share @ loss.is_rare)
        slopes = loss(at.ravel())[1].reshape(at.shape)[:, :-1]
        paid = self.costs > 0
        top = float((loss.norms(slopes)[paid] / self.costs[paid]).max(initial=0.0))
        masks_by_price = []
        for price in (top * np.geomspace(LEAST_SHARE, 0.7, n)).tolist() if top > 0 else [0.0]:
            at = replace(loss, price=price).minimum(at)
            sizes = np.array([np.sqrt(np.bincount(self.owner, np.square(s), len(self.costs))) for s in at[:, :-1]])
            used = sizes > NEXT_TO_ZERO * sizes.max(initial=1e-300)
            masks_by_price.append((price, self.allowed & used[:, self.owner]))
        return masks_by_price

    def fitted(self, rows: np.ndarray, free: np.ndarray) -> Fitted:
        """The cascade of these training rows, fitted without a price."""
        problem = self.problem
        objective = make_objective(problem, self.columns, self.shape, Rule(price=0.0), rows)
        loss = self._loss(rows, free)
        start = np.zeros((len(free), len(self.owner) + 1))
        start[:, -1] = _log_odds(loss.share @ loss.is_rare)
        gates = loss.minimum(start)
        weights = objective.zero()
        weights.coef[:, :, -1] = -gates if self.is_flipped else gates
        if problem.n_outputs > 1:
            weights.coef[:, -1, : problem.n_classes] = np.eye(problem.n_classes)[problem.majority]
            last = replace(objective, shape=tree(0))
            weights.coef[-1] = solve_jointly(last, last.zero(), free[-1:]).coef[0]
        return Fitted(self.shape, self.columns, Weights(weights.coef, weights.theta), {}, problem.n_outputs)

    def _loss(self, rows: np.ndarray, free: np.ndarray) -> AndOrLoss:
        train = self.problem.train
        Z, y = self.columns.values(train.X[rows]), train.y[rows]
        weight = train.weight[rows]
        if self.problem.targets is not None:
            weight = weight * self.problem.targets.sum(axis=1)[y]
        return AndOrLoss(Z, y != self.problem.majority, weight / weight.sum(), self.owner, self.costs, free)


def _log_odds(share: float) -> float:
    share = min(max(share, 1e-3), 1 - 1e-3)
    return float(np.log(share / (1 - share)))
