"""The first honest baseline: the best fixed set of sensors, answered locally, chosen by validation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hardcase_edge.program import Answer, Node, Slice

from .buying import buy
from .calibrate import confidence_table
from .compiler import policy_of
from .estimator import PolicyClassifier
from .front import Point
from .judge import Judge, Trained
from .losses import class_outputs
from .subsets import Subset, SubsetSearch

__all__ = ["StaticSubset", "answer_node", "answer_point", "static_grid", "static_run"]


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


def answer_point(judge: Judge, method: str, params: dict[str, Any], subset: Subset, trained: Trained) -> Point:
    """A program that buys the same sensors for every case and answers."""
    problem = judge.problem
    nodes = [*buy(subset, 0), Answer(Slice(0, 0, class_outputs(problem.n_classes)))]
    policy = policy_of(problem, [trained.part], nodes)
    outcome = judge.run(policy.program(), [trained])
    nodes[-1] = answer_node(nodes[-1], outcome.margin, outcome.label == judge.y, judge.weight)
    return Point(method, params, judge.summary(outcome), {}, replace(policy, nodes=tuple(nodes)))


def answer_node(node: Node, margins: np.ndarray, is_right: np.ndarray, weight: np.ndarray) -> Answer:
    """The same answer with a confidence table learned from these rows."""
    assert isinstance(node, Answer)
    thresholds, confidences = confidence_table(margins, is_right, weight)
    return Answer(node.scores, node.kind, thresholds, confidences)
