"""The second honest baseline: a confidence cascade (early exit) over nested sensor subsets, then the cloud.

Stage k buys what its subset lacks, and answers if its own classifier is confident enough; confidence is the calibrated
chance of being right, so that one level serves all stages. The last stage forwards, or answers for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.front import Point, best_points
from ...stages.nested_sets import Chains
from ...stages.rules import level_cuts
from ...stages.staged_policy import StagedPolicy
from ...stages.subset_search import SubsetSearch
from ...trees.subset_classifier import classifier_kinds

__all__ = ["ConfidenceCascade"]


@dataclass(eq=False, repr=False)
class ConfidenceCascade(MethodClassifier):
    """The cascade that the judged rows pick.

    Parameters
    ----------
    n_jobs : int or None, threads; None is one
    others : those of ``PolicyClassifier``, by name
    """

    n_jobs: int | None = None
    method: ClassVar[Method] = Method(
        name="cascade", work=5, colour="#2471a3", is_baseline=True, auto="always", runners=slice(-1, None),
        is_halved=False, searches_subsets=True,
    )  # fmt: skip

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """A setting per kind of classifier: all levels share the models of a chain of nested sets."""
        chain = [list(subset) for subset in search.once(Chains).greedy]
        return [{"chain": chain, "classifier": kind} for kind in classifier_kinds(search.problem)]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """Points over confidence levels, first stages and last stages."""
        chain = [tuple(subset) for subset in params["chain"]]
        staged = StagedPolicy(search.judge, chain, search.models(chain, params["classifier"]))
        tried = level_cuts(staged, search.problem.effort.levels)
        kind = {"classifier": params["classifier"]}
        return best_points(staged.best(cls.method.name, [({**kind, **what}, cuts) for what, cuts in tried]))
