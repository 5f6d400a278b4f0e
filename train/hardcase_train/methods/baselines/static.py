# SPDX-License-Identifier: Apache-2.0
"""The baseline ``static``: the best fixed subset of sensors, always answered locally."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...data.problem import Problem
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.answers import answer_point
from ...policy.front import Point
from ...stages.nested_sets import Chains
from ...stages.subset_search import SubsetSearch
from ...trees.subset_classifier import classifier_kinds


@dataclass(eq=False, repr=False)
class StaticSubset(MethodClassifier):
    """A fixed subset of sensors and one classifier on it, picked on the judged rows; it never forwards.

    Parameters
    ----------
    n_jobs : int or None, threads; None: 1
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> import numpy as np
    >>> y = np.arange(200) % 2
    >>> X = np.column_stack([y, 1 - y, np.zeros(200)])
    >>> model = StaticSubset(costs=[9.0, 2.0, 1.0], effort="quick", random_state=0).fit(X, y)
    >>> model.sensors_, model.figures_.cost
    ([1], 2.0)
    """

    n_jobs: int | None = None
    method: ClassVar[Method] = Method(
        name="static", maturity="proven", against="it reads the same sensors for every case",
        turn=8, colour="#7f8c8d", is_baseline=True, auto="always", runners=slice(0, None, 3),
        is_halved=False, searches_subsets=True, takes_values=True,
    )  # fmt: skip

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return len(problem.offered) * len(classifier_kinds(problem))

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """The promising subsets on the greedy paths and those from prices, each with every kind of classifier."""
        problem = search.problem
        others = {subset for chain in search.priced() for subset in chain}
        if problem.limits.budget is not None:  # the search that moves and swaps sensors, within the budget
            others |= set(search.once(Chains).climbed)
        subsets = sorted(
            {s for s in {*search.walked(), *others} if problem.is_affordable(s)}, key=lambda s: (-len(s), s)
        )
        kinds = classifier_kinds(search.problem)
        return [{"sensors": list(subset), "classifier": kind} for subset in subsets for kind in kinds]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The point of one subset."""
        subset = tuple(params["sensors"])
        (model,) = search.models([subset], params["classifier"], are_cut=False)
        return [answer_point(search.judge, cls.method.name, dict(params), subset, model)]

    def _settings(self, search: SubsetSearch) -> list[Params]:
        settings = self.grid(search)
        for kind in classifier_kinds(search.problem):
            search.models((tuple(s["sensors"]) for s in settings if s["classifier"] == kind), kind, are_cut=False)
        return settings
