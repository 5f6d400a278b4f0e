# SPDX-License-Identifier: Apache-2.0
"""The baseline ``cascade``: a confidence cascade (early exit) over nested sensor subsets, then f0.

Stage k buys the sensors that its subset adds, and answers if its own classifier is confident enough. Confidence is the
calibrated probability of a right answer, so one level serves all stages. The last stage forwards the remaining rows, or
answers them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...data.problem import Problem
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.front import Point, best_points
from ...stages.nested_sets import Chains
from ...stages.staged_policy import StagedPolicy, level_cuts
from ...stages.subset_search import SubsetSearch
from ...trees.subset_classifier import classifier_kinds


@dataclass(eq=False, repr=False)
class ConfidenceCascade(MethodClassifier):
    """A confidence cascade over nested sensor subsets, picked on the judged rows.

    Parameters
    ----------
    n_jobs : int or None, threads; None: 1
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> model = ConfidenceCascade(sensors=[[0], [1, 2]], costs=[1.0, 5.0], forward_cost=20.0, budget=4.0)
    >>> model.method.name, model.method.is_baseline
    ('cascade', True)
    """

    n_jobs: int | None = None
    method: ClassVar[Method] = Method(
        name="cascade", maturity="proven", against="one order of sensors serves all cases: the last one costs all",
        turn=0, colour="#2471a3", is_baseline=True, auto="always", runners=slice(-1, None),
        is_halved=False, searches_subsets=True, takes_values=True,
    )  # fmt: skip

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return len(classifier_kinds(problem))

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting per chain of nested subsets and kind of classifier; all levels share a setting's models."""
        every = (search.once(Chains).greedy, *search.priced())
        chains = [chain for sets in every if (chain := [list(s) for s in sets if search.problem.is_affordable(s)])]
        return [{"chain": chain, "classifier": kind} for chain in chains for kind in classifier_kinds(search.problem)]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """Points over confidence levels, first stages and last stages."""
        chain = [tuple(subset) for subset in params["chain"]]
        staged = StagedPolicy(search.judge, chain, search.models(chain, params["classifier"]))
        settings_and_cuts = level_cuts(staged, search.problem.effort.levels)
        kind = {"classifier": params["classifier"]}
        return best_points(staged.best(cls.method.name, [({**kind, **what}, cuts) for what, cuts in settings_and_cuts]))
