# SPDX-License-Identifier: Apache-2.0
"""GreedyMiser: cost-sensitive boosted trees that use one set of sensors for all cases and never forward.

Xu, Weinberger and Chapelle (2012), as described by Nan and Saligrama (2017): ADAPT-GBRT when no row may be forwarded
(Pfull = 0). Then q is zero, the gate is not trained, and f1 is boosted under equation (1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from ...data.problem import Problem
from ...estimator import Limits, MethodClassifier
from ...method import Method, Params
from ...policy.answers import answer_point
from ...policy.front import Point
from ...policy.selection import Judge
from ...stages.subset_search import SubsetSearch
from ...trees.binning import Bins, make_bins
from ...trees.boosting import Ensemble, TreeSettings
from ...trees.size import size_of
from .gbrt import Twin
from .stages import gammas

__all__ = ["GreedyMiser"]

FINER = 6  # gammas below those of ADAPT-GBRT, whose least one may buy a few sensors where none buys all of them


@dataclass(eq=False, repr=False)
class GreedyMiser(MethodClassifier):
    """A boosted low-cost model without a gate.

    Parameters
    ----------
    gamma : float >= 0
        Mean loss per unit of cost: a sensor is bought if it lowers the mean loss by more than that (equation (1)).
    n_trees : int
        The default is what ``AdaptGBRT`` grows in its first round and three alternations.
    settings : TreeSettings; None: by the problem's size
    others : those of ``PolicyClassifier``, by keyword

    Attributes
    ----------
    those of ``PolicyClassifier`` after ``fit``; after ``learn``
    trained_ : Trained, the ensemble and its scores on the judged rows
    sensors_ : list of int, the sensors that the trees read

    Examples
    --------
    >>> y = np.arange(200) % 2
    >>> X = np.column_stack([y, 1 - y, np.zeros(200)])
    >>> model = GreedyMiser(gamma=0.01, costs=[9.0, 1.0, 1.0], effort="quick", random_state=0)
    >>> model.fit(X, y).sensors_
    [1]
    """

    gamma: float = 0.0
    n_trees: int = 80
    settings: TreeSettings | None = None
    method: ClassVar[Method] = Method(
        name="greedy-miser",
        maturity="tested",
        against="it forwards no case to f0",
        turn=9,
        colour="#27ae60",
        auto="raced",
        runners=slice(1, None, 2),
        takes_values=True,
    )
    _limits: ClassVar[Limits] = {"gamma": (0, np.inf), "n_trees": (1, np.inf)}

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return problem.effort.n_gammas + FINER

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """The gammas of ADAPT-GBRT and halves of the least one, each with as many trees as that grows."""
        effort = search.problem.effort
        n_trees = effort.gate_trees * (1 + effort.gate_rounds)
        known = gammas(search.problem)
        least = min(gamma for gamma in known if gamma > 0)
        return [{"gamma": g, "n_trees": n_trees} for g in (*known, *(least / 2**k for k in range(1, FINER + 1)))]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The point of one setting."""
        return cls(**params).points(search.judge)

    def points(self, judge: Judge) -> list[Point]:
        """One policy: buy the sensors that the trees read, and answer."""
        model = self.learn(judge)
        params = {"gamma": self.gamma, "sensors": model.sensors_}
        return [answer_point(judge, "greedy-miser", params, tuple(model.sensors_), model.trained_)]

    def learn(self, judge: Judge, bins: Bins | None = None) -> Self:
        """Learn from the training rows; f0 is not used."""
        problem, settings = judge.problem, self.settings or size_of(judge.problem).model
        bins = bins or make_bins(problem.train.X, problem.dtypes, settings.max_bins)
        codes = bins.transform(problem.train.X)
        prices = self.gamma * problem.sensor_costs()
        model = Twin(problem, bins, codes, np.arange(len(problem.train.y)), prices)
        model.boost(None, settings, self.n_trees)
        self.sensors_ = list(problem.affordable(model.ensemble.read()))
        if self.sensors_ != model.sensors():  # then the first that the trees have bought, as far as the budget goes
            model = Twin(problem, bins, codes, np.arange(len(problem.train.y)), prices)
            model.allow(self.sensors_)
            model.boost(None, settings, self.n_trees)
            self.sensors_ = model.sensors()

        def out_of_fold(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
            twin = Twin(problem, bins, codes, others, prices)
            twin.allow(self.sensors_)
            twin.boost(None, settings, self.n_trees)
            return twin.scores_of(codes[:, rows])[:, :-1]

        valid = model.scores_of(bins.transform(problem.valid.X))[:, :-1]
        whole = model.ensemble
        part = Ensemble(bins, whole.features, whole.base[:-1], whole.trees, whole.outputs)  # without the gate's score
        self.trained_ = judge.trained(part, valid, out_of_fold)
        return self
