# SPDX-License-Identifier: Apache-2.0
"""Stage-wise regression: boosted trees that ignore costs; their number alone trades accuracy against cost.

Friedman (2001), the first peer of Xu et al. (2014), figure 6. A policy buys every sensor that its trees read, for all
rows alike, and answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...data.problem import Problem
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.answers import answer_point
from ...policy.front import Point
from ...policy_estimator import Limits
from ...stages.subset_search import SubsetSearch
from ...trees.binning import make_bins
from ...trees.boosting import ensemble_scores
from ...trees.size import size_of
from ...trees.subset_classifier import fit_classifier


@dataclass(eq=False, repr=False)
class StageWiseRegression(MethodClassifier):
    """Boosted trees without prices.

    Parameters
    ----------
    n_trees : int
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> y = np.arange(200) % 2
    >>> X = np.column_stack([y, np.zeros(200)])
    >>> StageWiseRegression(n_trees=1, effort="quick", random_state=0).fit(X, y).sensors_
    [0]
    """

    n_trees: int = 32
    method: ClassVar[Method] = Method(
        name="stage-wise", maturity="research", against="it ignores costs", turn=20, colour="#a04000", takes_values=True
    )
    _limits: ClassVar[Limits] = {"n_trees": (1, np.inf)}

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return len(_numbers(problem))

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """Numbers of trees, doubling up to what the size allows."""
        return [{"n_trees": n} for n in _numbers(search.problem)]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The point of one number of trees; copies may read the sensors that its trees read, and no others.

        Where these are over the budget, the trees are grown again from those of the first splits that are not.
        """
        judge, problem = search.judge, search.problem
        settings = size_of(problem).model
        bins = make_bins(problem.train.X, problem.dtypes, settings.max_bins)
        codes = bins.transform(problem.train.X)
        rest = (bins, codes, settings, params["n_trees"])
        every = np.arange(len(problem.train.y))
        whole = fit_classifier(problem, problem.offered, *rest, every)
        sensors = problem.affordable(whole.read())
        if not set(problem.sensor_of[whole.read()].tolist()) <= {*sensors}:
            whole = fit_classifier(problem, sensors, *rest, every)
            sensors = problem.affordable(whole.read())

        def out_of_fold(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
            twin = fit_classifier(problem, sensors, *rest, others)
            return ensemble_scores(twin, np.ascontiguousarray(codes[twin.features][:, rows]))

        valid = ensemble_scores(whole, bins.transform(problem.valid.X)[whole.features])
        trained = judge.trained(whole, valid, out_of_fold)
        return [answer_point(judge, cls.method.name, {**params, "sensors": list(sensors)}, sensors, trained)]

    def _settings(self, search: SubsetSearch) -> list[Params]:
        return [{"n_trees": self.n_trees}]


def _numbers(problem: Problem) -> list[int]:
    most = size_of(problem).n_trees
    return [most >> k for k in range(most.bit_length())]
