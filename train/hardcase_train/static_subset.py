"""The first honest baseline: the best fixed set of sensors, answered locally, chosen by validation."""

from __future__ import annotations

from typing import Any

from hardcase_edge.program import Acquire, Answer, Node, Slice

from .batch import Batch
from .calibrate import confidence_table
from .compiler import compile_program
from .front import Point
from .losses import class_outputs
from .problem import Problem
from .subsets import Subset, SubsetSearch

__all__ = ["answer_node", "static_points"]


def static_points(problem: Problem, search: SubsetSearch, progress: Any = None) -> list[Point]:
    """A point per subset on the greedy paths: forward by gain per cost, forward by gain, backward."""
    everything = tuple(range(len(problem.sensors)))
    paths = []
    for walk in (lambda: search.forward(1.0), lambda: search.forward(0.0), lambda: search.backward(everything)):
        paths.append(walk())
        if progress is not None:
            progress.update(1)
    subsets = sorted({s for path in paths for s in path})
    return [_point(problem, subset, model) for subset, model in zip(subsets, search.models(subsets), strict=True)]


def _point(problem: Problem, subset: Subset, model: object) -> Point:
    nodes: list[Node] = [Acquire(subset, 1, 1)] if subset else []
    nodes.append(Answer(Slice(0, 0, class_outputs(problem.n_classes))))
    batch = Batch(compile_program(problem, [model], nodes), problem.valid.X)
    outcome = batch.run(problem.valid.hpc_label)
    nodes[-1] = answer_node(nodes[-1], outcome.margin, outcome.label == problem.valid.y)
    program = compile_program(problem, [model], nodes)
    test = Batch(program, problem.test.X).run(problem.test.hpc_label)
    return Point(
        "static",
        {"sensors": list(subset)},
        outcome.summary(problem.valid.y),
        test.summary(problem.test.y),
        program,
    )


def answer_node(node: Node, margins, is_right) -> Answer:
    """The same answer with a confidence table learned from these rows."""
    assert isinstance(node, Answer)
    thresholds, confidences = confidence_table(margins, is_right)
    return Answer(node.scores, node.kind, thresholds, confidences)
