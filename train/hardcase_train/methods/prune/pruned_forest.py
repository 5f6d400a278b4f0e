"""BudgetPrune's points: forests of a few sizes, each pruned for a series of prices and walked lazily."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from hardcase_edge.program.cost import to_unit

from ...data.problem import N_FOLDS, Problem
from ...estimator import PolicyClassifier
from ...policy.answers import answer_node
from ...policy.front import Point, best_points
from ...policy.selection import Judge
from ...stages.subset_search import SubsetSearch
from ...trees.binning import Bins, make_bins
from ...trees.boosting import Ensemble
from ...trees.forest import ForestSettings, fit_forest, forest_ensemble
from .budget_prune import BudgetPrune
from .lazy_program import lazy_program

__all__ = ["FORESTS", "PRICES", "BudgetPrunedForest", "forest_points", "prune_grid", "prune_run"]

# with all features to choose from, trees share sensors and prune well; with a few, they differ and err less together
FORESTS = (ForestSettings(3), ForestSettings(8), ForestSettings(12), ForestSettings(12, max_features=0.3))
PRICES = (0.0, 0.03, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0, 3.0, 10.0)  # errors, as a share of rows, for all sensors together


@dataclass(eq=False, repr=False)
class BudgetPrunedForest(PolicyClassifier):
    """A forest pruned under sensor costs, the size and price that the judged rows pick; never forwards.

    Parameters
    ----------
    n_jobs : int or None, threads; None is one
    others : those of ``PolicyClassifier``, by name
    """

    n_jobs: int | None = None

    def points(self, judge: Judge) -> list[Point]:
        """A policy per forest and price."""
        found = Parallel(n_jobs=self.n_jobs or 1, prefer="threads")(delayed(forest_points)(judge, f) for f in FORESTS)
        return best_points([p for points in found for p in points])


def prune_grid(search: SubsetSearch) -> list[dict[str, Any]]:
    """A setting per forest, the largest first; its prices are all of one setting."""
    return [{"trees": f.n_trees, "max_features": f.max_features} for f in reversed(FORESTS)]


def prune_run(search: SubsetSearch, params: dict[str, Any]) -> list[Point]:
    """The points of one forest."""
    return forest_points(search.judge, ForestSettings(params["trees"], max_features=params["max_features"]))


def forest_points(judge: Judge, settings: ForestSettings) -> list[Point]:
    """The points that the judged rows keep of one forest, over all prices.

    Copies that have not seen a fold are forests of their own, pruned for the same price: they may buy otherwise.
    """
    problem = judge.problem
    bins = make_bins(problem.train.X, problem.dtypes)
    codes = bins.transform(problem.train.X)
    seen = [np.flatnonzero(judge.fold != k) for k in range(N_FOLDS)] if judge.is_crossed else []
    seen.append(np.arange(len(problem.train.y)))
    copies = [_pruned(problem, bins, codes, rows, settings) for rows in seen]
    return best_points(
        [
            _point(judge, settings, price, ensembles)
            for price, ensembles in zip(_prices(problem), zip(*copies, strict=True), strict=True)
        ]
    )


def _prices(problem: Problem) -> list[float]:
    """``PRICES`` for a unit of cost."""
    total = sum(to_unit(s.cost[0]) for s in problem.sensors) or 1.0
    return [price / total for price in PRICES]


def _pruned(
    problem: Problem, bins: Bins, codes: np.ndarray, rows: np.ndarray, settings: ForestSettings
) -> list[Ensemble]:
    """A forest of these training rows, pruned for every price."""
    train = problem.train
    mine, y, weights = np.ascontiguousarray(codes[:, rows]), train.y[rows], train.weight[rows]
    costs = np.array([to_unit(s.cost[0]) for s in problem.sensors])
    trees = fit_forest(mine, y, problem.n_classes, weights, settings, problem.seed)
    forest = BudgetPrune(trees, mine, y, weights, problem.sensor_of, costs, problem.seed)
    return [forest_ensemble(bins, trees, forest.prune(price)) for price in _prices(problem)]


def _point(judge: Judge, settings: ForestSettings, price: float, ensembles: tuple[Ensemble, ...]) -> Point:
    """One program judged by its copies' programs; the last ensemble is the program's own."""
    problem = judge.problem
    programs = [lazy_program(problem, e) for e in ensembles]
    outcome = judge.run_each(programs)
    program = programs[-1]
    answer = answer_node(program.nodes[-1], outcome.margin, outcome.label == judge.y, judge.weight)
    splits = sum(len(t.features) for t in ensembles[-1].trees)
    said = {"price": price, "trees": settings.n_trees, "max_features": settings.max_features, "splits": splits}
    made = replace(program, nodes=(*program.nodes[:-1], answer))
    return Point("budget-prune", said, judge.summary(outcome), {}, made)
