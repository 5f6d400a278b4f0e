# SPDX-License-Identifier: Apache-2.0
"""The method ``budget-prune``: random forests of a few sizes, pruned for rising prices, with lazy acquisition."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from joblib import Parallel, delayed

from hardcase_edge.program.definition import (
    CODE_MAX,
    THRESHOLD,
    Acquire,
    Answer,
    Branch,
    Node,
    Polynomial,
    Program,
    Slice,
    Tree,
)
from hardcase_edge.program.definition import Trees as TreesScorer

from ...data.error_costs import soft_rows
from ...data.problem import N_FOLDS, Problem, Subset
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.answers import answer_node
from ...policy.compile import compile_program
from ...policy.front import Point, best_points
from ...policy.prices import prices
from ...policy.selection import Judge
from ...stages.kept import Keeper
from ...stages.subset_search import SubsetSearch
from ...trees.binning import Bins, make_bins
from ...trees.boosting import Ensemble
from ...trees.forest import ForestSettings, fit_forest, forest_ensemble
from .budget_prune import BudgetPrune

LEAST_PRICE, MOST_PRICE = 0.03, 10.0  # errors, as a share of rows, per cost unit
JOIN = -1  # placeholder of a target: the first node of the next tree


@dataclass(eq=False, repr=False)
class BudgetPrunedForest(MethodClassifier):
    """A random forest pruned under sensor costs, of a size and price picked on the judged rows; it never forwards.

    Parameters
    ----------
    n_jobs : int or None, threads; None: 1
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> BudgetPrunedForest(costs=[1.0, 5.0], budget=3.0, n_jobs=2).method.name
    'budget-prune'
    """

    n_jobs: int | None = None
    method: ClassVar[Method] = Method(
        name="budget-prune", maturity="research",
        against="a forest reads many sensors for each case, and it forwards none to f0", turn=4, colour="#6e2c00",
        auto="raced", runners=slice(1, 2), is_halved=False,
    )  # fmt: skip

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return len(problem.effort.prune_forests)

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting per forest, the largest first; a setting covers all prices.

        If a split may choose among all features, trees share sensors and prune well; if among a few, trees are more
        diverse and more accurate together.
        """
        forests = reversed(search.problem.effort.prune_forests)
        return [{"trees": n_trees, "max_features": max_features} for n_trees, max_features in forests]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points of one forest."""
        return forest_points(search.judge, ForestSettings(params["trees"], max_features=params["max_features"]))

    def points(self, judge: Judge) -> list[Point]:
        """The best points of all forests, which are trained in parallel."""
        search = SubsetSearch(judge, 1)
        jobs = (delayed(self.run)(search, params) for params in self.grid(search))
        fronts = Parallel(n_jobs=self.n_jobs or 1, prefer="threads")(jobs)
        return best_points([point for points in fronts for point in points])


def forest_points(judge: Judge, settings: ForestSettings) -> list[Point]:
    """The points of one forest over all prices that are best on the judged rows.

    The copies without a fold are separate forests, pruned for the same prices; they may buy other sensors.
    """
    problem = judge.problem
    points, read = _priced(judge, settings, problem.offered)
    sensors = problem.affordable(f for f, _ in Counter(read).most_common())
    if set(problem.sensor_of[read].tolist()) <= {*sensors}:
        return best_points(points)
    return best_points(Keeper(problem).kept([*points, *_priced(judge, settings, sensors)[0]]))


def _priced(judge: Judge, settings: ForestSettings, sensors: Subset) -> tuple[list[Point], list[int]]:
    """The points of the forest that reads these sensors, over all prices; and the features that it splits, unpruned."""
    problem = judge.problem
    bins = make_bins(problem.train.X, problem.dtypes)
    codes = bins.transform(problem.train.X)
    codes[~np.isin(problem.sensor_of, sensors)] = 0  # no split separates equal codes
    row_sets = [np.flatnonzero(judge.fold != k) for k in range(N_FOLDS)] if judge.is_crossed else []
    row_sets.append(np.arange(len(problem.train.y)))
    copies = [_pruned(problem, bins, codes, rows, settings) for rows in row_sets]
    grid = zip(_prices(problem), zip(*copies, strict=True), strict=True)
    points = [_point(judge, settings, price, ensembles) for price, ensembles in grid]
    return points, copies[-1][0].read()


def _prices(problem: Problem) -> list[float]:
    """Prices, errors per unit of cost; the first is 0."""
    return [0.0, *prices(problem, max(1, problem.effort.n_prune_prices - 1), LEAST_PRICE, MOST_PRICE)]


def _pruned(
    problem: Problem, bins: Bins, codes: np.ndarray, rows: np.ndarray, settings: ForestSettings
) -> list[Ensemble]:
    """A forest of these training rows, pruned for every price."""
    train = problem.train
    codes_of_rows, y, weights = np.ascontiguousarray(codes[:, rows]), train.y[rows], train.weight[rows]
    sizes = None if train.sizes is None else train.sizes[rows]
    costs = problem.row_costs(problem.single_sensors, sizes) - problem.start_cost
    number, label, worth = soft_rows(y, weights, problem.targets)
    trees = fit_forest(codes_of_rows[:, number], label, problem.n_classes, worth, settings, problem.seed)
    forest = BudgetPrune(trees, codes_of_rows, y, weights, problem.sensor_of, costs, problem.seed, problem.errors)
    return [forest_ensemble(bins, trees, forest.prune(price)) for price in _prices(problem)]


def _point(judge: Judge, settings: ForestSettings, price: float, ensembles: tuple[Ensemble, ...]) -> Point:
    """The point of one price, judged by the programs of the copies; the last ensemble is the point's own."""
    problem = judge.problem
    programs = [lazy_program(problem, e) for e in ensembles]
    outcome = judge.run_each(programs)
    outcome = replace(outcome, node=np.full(len(judge.y), len(programs[-1].nodes) - 1))  # each copy has one answer
    program = programs[-1]
    answer = answer_node(program.nodes[-1], outcome.margin, judge.right(outcome.label), judge.weight)
    splits = sum(len(t.features) for t in ensembles[-1].trees)
    params = {"price": price, "trees": settings.n_trees, "max_features": settings.max_features, "splits": splits}
    program = replace(program, nodes=(*program.nodes[:-1], answer))
    return Point("budget-prune", params, judge.summary(outcome), None, program)


# Compile a tree ensemble into a program that acquires sensors lazily, only those on a row's own paths.
#
# The trees are walked one after another; a sensor is bought immediately before the first split that reads it. A subtree
# that needs no further sensor is not walked: one Answer at the end scores all trees, and by then every sensor on the
# row's own paths has been bought.


def lazy_program(problem: Problem, ensemble: Ensemble) -> Program:
    """The draft that walks these trees and answers by their sum; its last node is its only Answer."""
    program = compile_program(problem, [ensemble], ())
    trees = program.scorers[0]
    assert isinstance(trees, TreesScorer)
    sensor_of = problem.sensor_of
    walk = _Walk([int(sensor_of[program.columns[c].feature]) for c in trees.columns])
    for tree in trees.trees:
        walk.add(tree)
    nodes = (*walk.nodes, Answer(Slice(0, 0, len(trees.base))))
    readings = [_reading(trees.columns[c], is_left) for c, is_left in walk.readings]
    return replace(program, scorers=(trees, *readings), nodes=nodes)


def _reading(column: int, missing_left: bool) -> Polynomial:
    """A column's code as a score; a missing code is replaced by one that goes the split's way for missing values."""
    substitute = -CODE_MAX if missing_left else CODE_MAX
    return Polynomial((column,), (substitute,), 0, ((0,),), ((1.0,),), (0.0,), weight_bits=8)


class _Walk:
    """The nodes so far, and the sensors (a bit mask) that every path through them has tried."""

    def __init__(self, sensor_of: list[int]) -> None:
        self.sensor_of = sensor_of  # for each column of the trees
        self.nodes: list[Node] = []
        self.readings: dict[tuple[int, bool], int] = {}  # (column, whether missing goes left): its scorer
        self.tried = 0

    def add(self, tree: Tree) -> None:
        """Append the nodes of one tree."""
        if not tree.splits:
            return
        below = self._below(tree)
        first = len(self.nodes)
        ends: list[int] = []
        self._split(tree, 0, self.tried, below, ends)
        self.tried = ends[0]
        for end in ends:
            self.tried &= end
        for k in range(first, len(self.nodes)):
            self.nodes[k] = _joined(self.nodes[k], len(self.nodes))

    def _below(self, tree: Tree) -> list[int]:
        """The sensors, as a bit mask, that each split and its subtree read."""
        below = [1 << self.sensor_of[c] for c in tree.splits]
        for h in range(len(below) - 1, -1, -1):
            for child in tree.children[h]:
                below[h] |= below[child] if child > 0 else 0
        return below

    def _split(self, tree: Tree, h: int, tried: int, below: list[int], ends: list[int]) -> int:
        """Append nodes of split h and its subtree; their start. ``ends`` collects the sensors tried on each path."""
        if h < 0 or not below[h] & ~tried:
            ends.append(tried)
            return JOIN
        at = len(self.nodes)
        sensor = self.sensor_of[tree.splits[h]]
        after = tried | 1 << sensor
        ends_here = not any(c > 0 and below[c] & ~after for c in tree.children[h])
        if after != tried:
            then = JOIN if ends_here else at + 1
            self.nodes.append(Acquire((sensor,), then, then))
        if ends_here:
            ends.append(after)
            return at
        branch = len(self.nodes)
        scores = self._slice(tree.splits[h], tree.missing_left[h])
        self.nodes.append(Branch(scores, THRESHOLD, ()))  # its targets are set below
        left, right = (self._split(tree, c, after, below, ends) for c in tree.children[h])
        self.nodes[branch] = Branch(scores, THRESHOLD, (left, right), tree.thresholds[h])
        return at

    def _slice(self, column: int, missing_left: bool) -> Slice:
        scorer = self.readings.setdefault((column, missing_left), 1 + len(self.readings))
        return Slice(scorer, 0, 1)


def _joined(node: Node, end: int) -> Node:
    """The node, with JOIN replaced by ``end``."""
    if isinstance(node, Acquire):
        return replace(node, then=end, otherwise=end) if node.then == JOIN else node
    assert isinstance(node, Branch)
    return replace(node, targets=tuple(end if t == JOIN else t for t in node.targets))
