"""The first honest baseline: the best fixed set of sensors, answered locally, chosen on the judged rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.answers import answer_point
from ...policy.front import Point
from ...stages.subset_search import SubsetSearch
from ...trees.subset_classifier import classifier_kinds

__all__ = ["StaticSubset"]


@dataclass(eq=False, repr=False)
class StaticSubset(MethodClassifier):
    """The fixed set of sensors that the judged rows pick.

    Parameters
    ----------
    n_jobs : int or None, threads; None is one
    others : those of ``PolicyClassifier``, by name
    """

    n_jobs: int | None = None
    method: ClassVar[Method] = Method(
        name="static", colour="#7f8c8d", is_baseline=True, auto="always", runners=slice(0, None, 3), is_halved=False,
        searches_subsets=True,
    )  # fmt: skip

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """The promising sets on the greedy paths, the largest first, each with every kind of classifier."""
        subsets = sorted(search.walked(), key=len, reverse=True)
        kinds = classifier_kinds(search.problem)
        return [{"sensors": list(subset), "classifier": kind} for subset in subsets for kind in kinds]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The one point of a set."""
        subset = tuple(params["sensors"])
        (model,) = search.models([subset], params["classifier"])
        return [answer_point(search.judge, cls.method.name, dict(params), subset, model)]

    def _settings(self, search: SubsetSearch) -> list[Params]:
        settings = self.grid(search)
        for kind in classifier_kinds(search.problem):
            search.models((tuple(s["sensors"]) for s in settings if s["classifier"] == kind), kind)  # side by side
        return settings
