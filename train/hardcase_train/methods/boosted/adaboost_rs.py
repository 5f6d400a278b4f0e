# SPDX-License-Identifier: Apache-2.0
"""AdaBoostRS: trees of AdaBoost, drawn again with probabilities that fall with what their sensors cost.

Reyzin (2011), in the version with costs that Xu et al. (2014) compare with, 6.3. AdaBoost (SAMME, for more classes than
two) gives trees and their votes; a policy has a sample of them, drawn with replacement. docs/math.md (115).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ...data.problem import Problem
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.answers import answer_point
from ...policy.front import Point
from ...policy.losses import class_outputs
from ...policy_estimator import Limits
from ...stages.subset_search import SubsetSearch
from ...trees.binning import make_bins
from ...trees.boosting import NO_ROWS, Ensemble, ensemble_scores
from ...trees.grower import Grower, GrownTree
from ...trees.size import size_of

N_TREES = 64  # of AdaBoost, from which samples are drawn
N_DRAWS = 3  # samples of each size
SURE = 1e-6  # least share of errors of a tree: its vote stays finite
FREE = 0.01  # of a mean tree's cost: what a tree costs beside its sensors


@dataclass(eq=False, repr=False)
class ResampledAdaBoost(MethodClassifier):
    """A sample of AdaBoost's trees, cheap ones first.

    Parameters
    ----------
    n_drawn : trees of the sample, those drawn twice counted twice
    draw : number of the draw
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> y = np.arange(200) % 2
    >>> X = np.column_stack([y, np.zeros(200)])
    >>> ResampledAdaBoost(n_drawn=2, effort="quick", random_state=0).fit(X, y).sensors_
    [0]
    """

    n_drawn: int = 16
    draw: int = 0
    method: ClassVar[Method] = Method(
        name="adaboost-rs", maturity="research", against="classes alone; costs steer a random draw", turn=21,
        colour="#7d6608",
    )  # fmt: skip
    _limits: ClassVar[Limits] = {"n_drawn": (1, np.inf), "draw": (0, np.inf)}

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return len(_sizes(problem)) * N_DRAWS

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """Sizes of samples, doubling, each drawn a few times."""
        return [{"n_drawn": n, "draw": k} for n in _sizes(search.problem) for k in range(N_DRAWS)]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The point of one sample; copies draw from trees of the sensors that the sample reads."""
        judge, problem = search.judge, search.problem
        boosted = search.once(_AdaBoost)
        whole = boosted.sample(boosted.whole, params)
        owner = problem.sensor_of
        sensors = tuple(sorted({int(owner[f]) for tree in whole.trees for f in tree.features}))

        def out_of_fold(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
            twin = boosted.sample(boosted.grown(others, sensors), params)
            return ensemble_scores(twin, np.ascontiguousarray(boosted.codes[:, rows]))

        valid = ensemble_scores(whole, boosted.bins.transform(problem.valid.X))
        trained = judge.trained(whole, valid, out_of_fold)
        return [answer_point(judge, cls.method.name, {**params, "sensors": list(sensors)}, sensors, trained)]

    def _settings(self, search: SubsetSearch) -> list[Params]:
        return [{"n_drawn": self.n_drawn, "draw": self.draw}]


def _sizes(problem: Problem) -> list[int]:
    return [max(1, round(N_TREES * problem.effort.tree_share)) >> k for k in (0, 1, 2, 3)]


class _AdaBoost:
    """The trees of all training rows, grown once for all samples."""

    def __init__(self, search: SubsetSearch) -> None:
        problem = search.problem
        self.problem, self.settings = problem, size_of(problem).model
        self.n_trees = max(_sizes(problem))
        self.bins = make_bins(problem.train.X, problem.dtypes, self.settings.max_bins)
        self.codes = np.ascontiguousarray(self.bins.transform(problem.train.X))
        every = np.arange(len(problem.train.y))
        self.whole = self.grown(every, problem.offered)
        sensors = problem.affordable(f for tree, _ in self.whole for f in tree.features)
        if not all(np.isin(problem.sensor_of[tree.features], sensors).all() for tree, _ in self.whole):
            self.whole = self.grown(every, sensors)  # of those of the first splits that are within the budget

    def grown(self, rows: np.ndarray, sensors: tuple[int, ...]) -> list[tuple[GrownTree, float]]:
        """Trees of these training rows, leaves one-hot, with their votes."""
        return list(self._grow(rows, sensors))

    def _grow(self, rows: np.ndarray, sensors: tuple[int, ...]) -> Iterator[tuple[GrownTree, float]]:
        problem, n_classes = self.problem, self.problem.n_classes
        owner = np.where(np.isin(problem.sensor_of, sensors), problem.sensor_of, -1)
        grower = Grower(self.codes[:, rows], self.bins.sizes, owner)
        y, weight = problem.train.y[rows], problem.train.weight[rows]
        if problem.targets is not None:
            weight = weight * problem.targets.sum(axis=1)[y]
        truth, mean, total = np.eye(n_classes)[y], weight.sum() / len(rows), weight.sum()
        for _ in range(self.n_trees):
            tree = grower.grow(
                -weight[:, None] * truth / mean, np.repeat(weight[:, None] / mean, n_classes, axis=1),
                np.zeros(len(problem.sensors)), max_leaves=self.settings.max_leaves,
                max_depth=self.settings.max_depth, min_rows=self.settings.min_rows, l2=0.0,
            )  # fmt: skip
            answer = tree.leaves.argmax(axis=1)
            wrong = answer[tree.leaf_of_row] != y
            share = max(float(weight[wrong].sum() / weight.sum()), SURE)
            vote = np.log((1 - share) / share) + np.log(n_classes - 1)
            if not len(tree.features) or vote <= 0:
                return
            yield replace(tree, leaves=np.eye(n_classes)[answer], leaf_of_row=NO_ROWS), float(vote)
            if not wrong.any():
                return
            weight = weight * np.exp(vote * wrong)
            weight *= total / weight.sum()

    def sample(self, trees: list[tuple[GrownTree, float]], params: Params) -> Ensemble:
        """Trees drawn by vote over cost, each voting by how often it was drawn times its cost."""
        n_classes, costs = self.problem.n_classes, self.problem.sensor_costs()
        weight = self.problem.train.weight
        share = np.bincount(self.problem.train.y, weight, n_classes) / weight.sum()
        ensemble = Ensemble(self.bins, np.arange(len(self.problem.features)), _scores(FREE * share[None])[0])
        if not trees:
            return ensemble
        owner = self.problem.sensor_of
        cost = np.array([costs[np.unique(owner[tree.features])].sum() for tree, _ in trees])
        cost += FREE * cost.mean() if cost.any() else 1.0
        votes = np.array([vote for _, vote in trees])
        chance = votes / cost / (votes / cost).sum()
        rng = np.random.default_rng([self.problem.seed, params["draw"], params["n_drawn"]])
        times = np.bincount(rng.choice(len(trees), params["n_drawn"], p=chance), minlength=len(trees))
        counts = times * votes / chance
        for t in np.flatnonzero(times):
            leaves = _scores(trees[t][0].leaves * counts[t] / counts.sum())
            ensemble.trees.append(replace(trees[t][0], leaves=leaves))
            ensemble.outputs.append((0, leaves.shape[1]))
        return ensemble


def _scores(shares: np.ndarray) -> np.ndarray:
    """Class scores, (n, n_outputs), of shares or votes (n, n_classes)."""
    one = class_outputs(shares.shape[1]) == 1
    return np.ascontiguousarray(shares[:, 1:] - shares[:, :1] if one else shares)
