# SPDX-License-Identifier: Apache-2.0
"""The methods ``cstc`` and ``single``: cost-sensitive trees of linear classifiers, cascades of them, and Cronus.

Xu, Kusner, Weinberger, Chen and Chapelle (2014). One objective trains all of them (``objective``); for each price of a
rising list, its minimum says which sensors each node buys, and all weights are fitted again without the price.
docs/math.md, section 15.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from ...data.problem import Problem
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.front import Point, best_points
from ...policy.selection import Judge
from ...policy_estimator import Limits
from ...stages.subset_search import SubsetSearch
from ...trees.binning import Bins
from .columns import Columns, readings, tree_columns
from .descent import DESCENTS, follow_prices, prices_of
from .fit import LEAVES, Fitted, Learner, has_by_then, judged, make_objective
from .objective import Objective, Rule, Weights
from .program import tree_points
from .shape import Shape, chain, tree
from .structure import STRUCTURES, chosen

SHAPES = ("tree", "cascade", "cronus")
COLUMNS = ("readings", "trees")
TUNINGS = ("sensors", "zeros")  # which weights are fitted again without the price
N_TREES = 120  # of a dictionary
N_SHAPE_PRICES = 5  # of which the middle one chooses nodes
N_THRESHOLDS = 24
NEXT_TO_ZERO = 1e-2  # of the largest norm of a sensor's weights
MAX_TRIES = 300  # single sensors that are tried, those of the least weight first


@dataclass(eq=False, repr=False)
class CostSensitiveTree(MethodClassifier):
    """A tree or a cascade of linear classifiers that buys other sensors for other rows.

    Parameters
    ----------
    shape : "tree" (CSTC), "cascade" (CSCC) or "cronus"; with ``depth`` 0 all are the single classifier
    depth : levels below the root: a tree has ``2 ** depth`` leaves, a cascade ``depth + 1`` nodes
    columns : what nodes weigh, "readings" or "trees" (boosted trees)
    leaves : what answers, "linear" or "trees"
    tuning : "sensors" fits the weights of all columns whose sensors a row has bought again, "zeros" only those that the
        price left; copies that judge training rows grow trees of their own, so among trees they do the former
    structure : "full", "pruned" or "grown" (``structure``)
    slope : of the sigmoid that routes rows in training; 1 in the paper
    interior : weight of inner nodes' losses in a tree; 1 in the paper
    l1, l2 : lasso (rho in the paper) and ridge penalty on all weights
    tree_cost : what each evaluation of a tree costs in training, if columns are trees; the meter counts sensors alone
    n_steps : of L-BFGS between two rescalings
    descent : "together" minimises over all nodes at once; "nodes" over one after the other, Algorithm 1 of the paper
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
    tuning: str = "sensors"
    structure: str = "full"
    slope: float = 1.0
    interior: float = 1.0
    l1: float = 0.0
    l2: float = 1e-4
    tree_cost: float = 0.0
    n_steps: int = 25
    descent: str = "together"
    method: ClassVar[Method] = Method(
        name="cstc", against="where inner nodes answer well for all rows, it becomes one fixed set of sensors",
        turn=11, colour="#16a085", auto="raced", takes_values=True,
    )  # fmt: skip
    _limits: ClassVar[Limits] = {"depth": (0, 4), "slope": (1e-3, 1e3), "interior": (0, 1), "l1": (0, np.inf),
                                "l2": (0, np.inf), "tree_cost": (0, np.inf), "n_steps": (1, np.inf)}  # fmt: skip

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
        known_values = {"shape": SHAPES, "leaves": LEAVES, "columns": COLUMNS, "tuning": TUNINGS,
                        "structure": STRUCTURES, "descent": tuple(DESCENTS)}  # fmt: skip
        for name, choices in known_values.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"{name} of CostSensitiveTree is {value!r}; expected one of {choices}")
        return self.learn(judge, {"shape": self.shape, "depth": self.depth, "leaves": self.leaves})

    def learn(self, judge: Judge, params: Params) -> list[Point]:
        """The points over prices that are best on the judged rows, each with its policy."""
        problem, shape = judge.problem, tree(self.depth) if self.shape == "tree" else chain(self.depth + 1)
        rule = Rule(
            by_exit=self.shape != "tree", one_bundle=self.shape == "cronus", l2=self.l2, slope=self.slope,
            interior=self.interior, l1=self.l1, n_steps=self.n_steps,
        )  # fmt: skip
        columns = self._columns(problem)
        if self.structure != "full":
            shape = self._shape(problem, columns, shape, rule)
        learner = Learner(problem, shape, rule, self.leaves)
        binned = learner.binned() if self.leaves == "trees" else None
        points: list[Point] = []
        for price, has, used in self._sensors(problem, columns, shape, rule):
            free = used if self.tuning == "zeros" else None
            trained = judged(judge, partial(_fitted, learner, columns, has, free, binned))
            named = {**params, "price": price, "path_costs": _path_costs(problem, shape, has)}
            points += tree_points(judge, self.method.name, named, shape, has, trained)
        return best_points(points)

    def _columns(self, problem: Problem) -> Columns:
        return readings(problem) if self.columns == "readings" else tree_columns(problem, N_TREES)

    def _shape(self, problem: Problem, columns: Columns, shape: Shape, rule: Rule) -> Shape:
        """The nodes to train, chosen at the middle price."""
        objective, free = self._objective(problem, columns, shape, rule)
        prices = prices_of(objective, N_SHAPE_PRICES)
        priced = replace(objective, rule=replace(rule, price=prices[len(prices) // 2]))
        return chosen(self.structure, problem, columns, priced, free)

    def _objective(self, problem: Problem, columns: Columns, shape: Shape, rule: Rule) -> tuple[Objective, np.ndarray]:
        """The objective of all training rows, and the weights that may differ from 0."""
        objective = make_objective(problem, columns, shape, rule, np.arange(len(problem.train.y)), self.tree_cost)
        offered = np.isin(np.arange(len(problem.sensors)), problem.offered)
        free = [all(offered[s] for s in sensors) for sensors in columns.sensors]
        return objective, np.tile(np.array(free, dtype=bool), (len(shape), 1))

    def _sensors(
        self, problem: Problem, columns: Columns, shape: Shape, rule: Rule
    ) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
        """For each price, the sensors that a row has bought when a node sees it, (n_nodes, n_sensors) bool.

        And the weights that the price leaves, (n_nodes, n_columns) bool.
        """
        objective, free = self._objective(problem, columns, shape, rule)
        last = None
        prices = prices_of(objective, problem.effort.n_tree_prices)
        for priced, weights in follow_prices(objective, free, prices, DESCENTS[self.descent]):
            few = sparse(priced, weights)
            has = has_by_then(priced, few, len(problem.sensors))
            used = np.asarray(few.coef[:, :-1].any(axis=2))
            if problem.limits.budget is not None:
                has = _within(problem, shape, columns, has, np.abs(few.coef[:, :-1]).sum(axis=2))
                used &= np.array([[has[k, s].all() for s in map(list, columns.sensors)] for k in range(len(has))])
            if last is None or (has != last).any():
                yield priced.rule.price, has, used
            last = has


def _within(problem: Problem, shape: Shape, columns: Columns, has: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The sensors of each way that the budget allows, (n_nodes, n_sensors) bool: of each node those of most weight.

    Parameters
    ----------
    has : as of ``_sensors``
    weights : (n_nodes, n_columns), absolute
    """
    reads = np.array([np.isin(np.arange(len(problem.sensors)), sensors) for sensors in columns.sensors], dtype=float)
    worth, kept = weights @ reads, np.zeros_like(has)
    for k, before in enumerate(shape.parents):  # a parent comes before its children
        own = kept[before].copy() if before >= 0 else np.zeros(len(problem.sensors), dtype=np.bool_)
        new = np.flatnonzero(has[k] & ~own)
        for s in new[np.argsort(-worth[k, new], kind="stable")].tolist():
            own[s] = problem.is_affordable([*np.flatnonzero(own).tolist(), s])
        kept[k] = own
    return kept


def _path_costs(problem: Problem, shape: Shape, has: np.ndarray) -> list[float]:
    """What the sensors of each way to an answer cost together."""
    return [float(problem.sensor_costs()[has[k]].sum()) for k, _ in shape.exits]


def _fitted(
    learner: Learner,
    columns: Columns,
    has: np.ndarray,
    used: np.ndarray | None,
    binned: tuple[Bins, np.ndarray] | None,
    rows: np.ndarray,
) -> Fitted:
    """The tree of these training rows, whose copies grow columns of their own of the sensors that the tree has."""
    if len(rows) < len(learner.problem.train.y):
        others = columns.of(rows, np.flatnonzero(has.any(axis=0)).tolist())
        columns, used = others, used if others is columns else None
    return learner.fit(columns, has, rows, binned, used)


# Zeros by the exact objective: which sensors each node gives up, so that expected loss plus price times cost falls.
#
# The relaxation leaves many small weights, each of which would buy its sensor. A threshold on them is chosen by the
# exact objective (10) of Xu et al. (2014), not fixed; then single sensors go, from a node and all nodes below it, as
# long as the objective falls. docs/math.md (93).


def sparse(objective: Objective, weights: Weights) -> Weights:
    """The weights with those at zero whose sensors are not worth their price; the exact objective never rises.

    The relaxation charges weights by their size, which depends on the columns' scale, so its price is not that of whole
    sensors: the exact price is the one at which the weights' own sensors cost in total what their sizes do.
    """
    fair = replace(objective, rule=replace(objective.rule, price=objective.rule.price * _size(objective, weights)))
    return _fewer(fair, _thresholded(fair, weights))


def _size(objective: Objective, weights: Weights) -> float:
    """The relaxed cost of the weights, relative to the exact cost of those that are not next to zero."""
    squares = objective.squares(weights.coef[:, :-1])
    used = squares > np.square(NEXT_TO_ZERO) * squares.max(initial=0.0)
    relaxed, exact = objective.costs(weights, used)
    return relaxed / exact if exact > 0 else 1.0


def _thresholded(objective: Objective, weights: Weights) -> Weights:
    norms = np.sqrt(objective.squares(weights.coef[:, :-1]))
    used = norms[norms > 0]
    if not len(used):
        return weights
    levels = np.geomspace(max(used.min(), used.max() * 1e-6), used.max() * 1.01, N_THRESHOLDS)
    tried = [weights, *(_without(objective, weights, norms < level) for level in levels)]
    return min(reversed(tried), key=objective.exact)


def _fewer(objective: Objective, weights: Weights) -> Weights:
    above = objective.shape.above
    squares = objective.squares(weights.coef[:, :-1])
    subtrees = above.T.astype(np.float64) @ squares  # by the node that a subtree hangs from
    candidates = np.argwhere((subtrees > 0) & (objective.payers.cost > 0))
    order = np.argsort(subtrees[tuple(candidates.T)], kind="stable")[:MAX_TRIES]
    value = objective.exact(weights)
    for k, payer in candidates[order]:
        gone = np.zeros(squares.shape, dtype=bool)
        gone[above[:, k], payer] = True
        new = _without(objective, weights, gone)
        new_value = objective.exact(new)
        if new_value < value:
            weights, value = new, new_value
    return weights


def _without(objective: Objective, weights: Weights, gone: np.ndarray) -> Weights:
    """The weights without those that need a payer that their node gives up; ``gone`` (n_nodes, n_payers) bool."""
    needs = (objective.payers.uses.T @ gone.T.astype(np.float64)).T > 0
    coef = weights.coef.copy()
    coef[:, :-1][needs] = 0.0
    return Weights(coef, weights.theta)


# The single cost-sensitive classifier: a tree of one node, which buys the same sensors for all rows.
#
# Xu et al. (2014), 2.2: equations (2) and (3) relaxed as (11); the peer of figure 6 that shows what the tree adds.


@dataclass(eq=False, repr=False)
class SingleCostSensitive(CostSensitiveTree):
    """One linear classifier with a mixed norm over sensors; parameters as of ``CostSensitiveTree``.

    Examples
    --------
    >>> SingleCostSensitive(costs=[1.0, 8.0]).method.name
    'single'
    """

    depth: int = 0
    method: ClassVar[Method] = Method(
        name="single", maturity="research", against="one linear classifier for all cases", turn=17,
        colour="#48c9b0", takes_values=True,
    )  # fmt: skip

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return len(LEAVES)

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting for each kind of leaf; all prices are on one path."""
        return [{"shape": "tree", "depth": 0, "leaves": leaves} for leaves in LEAVES]
