"""The first honest baseline: the best fixed set of sensors, answered locally, chosen by validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hardcase_edge.program import Answer, Node, Slice

from .buying import buy
from .calibrate import confidence_table
from .compiler import compile_program
from .estimator import PolicyClassifier
from .front import Point, with_test
from .judge import Judge, Trained
from .losses import class_outputs
from .subsets import Subset, SubsetSearch

__all__ = ["StaticSubset", "answer_node", "answer_point", "static_points"]


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
        return static_points(SubsetSearch(judge, self.n_jobs or 1))


def static_points(search: SubsetSearch, progress: Any = None) -> list[Point]:
    """A point per subset on the greedy paths: forward by gain per cost, forward by gain, backward."""
    everything = tuple(range(len(search.costs)))
    paths = []
    for walk in (lambda: search.forward(1.0), lambda: search.forward(0.0), lambda: search.backward(everything)):
        paths.append(walk())
        if progress is not None:
            progress.update(1)
    subsets = search.promising(s for path in paths for s in path)
    models = search.models(subsets)
    return [
        answer_point(search.judge, "static", {"sensors": list(subset)}, subset, model)
        for subset, model in zip(subsets, models, strict=True)
    ]


def answer_point(judge: Judge, method: str, params: dict[str, Any], subset: Subset, trained: Trained) -> Point:
    """A program that buys the same sensors for every case and answers."""
    problem = judge.problem
    nodes = [*buy(subset, 0), Answer(Slice(0, 0, class_outputs(problem.n_classes)))]
    outcome = judge.run(compile_program(problem, [trained.part], nodes), [trained])
    nodes[-1] = answer_node(nodes[-1], outcome.margin, outcome.label == judge.y, judge.weight)
    program = compile_program(problem, [trained.part], nodes)
    return with_test(problem, Point(method, params, judge.summary(outcome), {}, program))


def answer_node(node: Node, margins: np.ndarray, is_right: np.ndarray, weight: np.ndarray) -> Answer:
    """The same answer with a confidence table learned from these rows."""
    assert isinstance(node, Answer)
    thresholds, confidences = confidence_table(margins, is_right, weight)
    return Answer(node.scores, node.kind, thresholds, confidences)
