"""The first honest baseline: the best fixed set of sensors, answered locally, chosen by validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...estimator import PolicyClassifier
from ...policy.answers import answer_point
from ...policy.front import Point
from ...policy.selection import Judge
from ...stages.subset_search import SubsetSearch

__all__ = ["StaticSubset", "static_grid", "static_run"]


@dataclass(eq=False, repr=False)
class StaticSubset(PolicyClassifier):
    """The fixed set of sensors that the judged rows pick.

    Parameters
    ----------
    n_jobs : int or None, threads; None is one
    others : those of ``PolicyClassifier``, by name
    """

    n_jobs: int | None = None

    def points(self, judge: Judge) -> list[Point]:
        """A policy per promising set."""
        search = SubsetSearch(judge, self.n_jobs or 1)
        grid = static_grid(search)
        search.models(tuple(params["sensors"]) for params in grid)  # side by side
        return [p for params in grid for p in static_run(search, params)]


def static_grid(search: SubsetSearch) -> list[dict[str, Any]]:
    """The promising sets on the greedy paths, the largest first."""
    return [{"sensors": list(subset)} for subset in sorted(search.walked(), key=len, reverse=True)]


def static_run(search: SubsetSearch, params: dict[str, Any]) -> list[Point]:
    """The one point of a set."""
    subset = tuple(params["sensors"])
    (model,) = search.models([subset])
    return [answer_point(search.judge, "static", {"sensors": list(subset)}, subset, model)]
