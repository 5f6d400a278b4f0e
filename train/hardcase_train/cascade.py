"""The second honest baseline: a confidence cascade over nested sensor subsets, up to a dozen stages, then the cloud.

Stage k buys what its subset lacks, and answers if its own classifier is confident enough; confidence is the calibrated
chance of being right, so that one level serves all stages. The last stage forwards, or answers for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hardcase_edge.program import MARGIN, Acquire, Answer, Branch, Forward, Node, Slice

from .buying import buy, n_nodes
from .calibrate import confidence_table
from .compiler import compile_program
from .front import Point, best_points, with_test
from .judge import Judge, Trained
from .losses import class_outputs
from .subsets import Subset, SubsetSearch

__all__ = ["cascade_points"]

MAX_STAGES = 12
LEVELS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995)


def cascade_points(search: SubsetSearch) -> list[Point]:
    """Points over confidence levels, first stages and last stages; those that validation keeps."""
    path = [s for s in search.forward(1.0) if s]
    keep = np.unique(np.linspace(0, len(path) - 1, min(MAX_STAGES, len(path))).round().astype(int))
    chain = [path[k] for k in keep]
    models = search.models(chain)
    stages = _Stages(search.judge, chain, models)
    points = []
    for first in range(len(chain)):
        for last in range(first, len(chain)):
            for end in ("forward", "answer"):
                for level in LEVELS:
                    if end == "answer" and first == last:
                        continue  # a static subset
                    points.append(stages.point(first, last, end, level))
    return [stages.finish(p) for p in best_points([p for p in points if p is not None])]


class _Stages:
    """The stage classifiers, run once on the judged rows."""

    def __init__(self, judge: Judge, chain: Sequence[Subset], models: Sequence[Trained]) -> None:
        """Every row's outcome if it stopped at each stage, or was forwarded; a policy only says where it stops."""
        problem = judge.problem
        self.judge, self.problem, self.chain, self.models = judge, problem, chain, models
        width = class_outputs(problem.n_classes)
        self.slices = [Slice(k, 0, width) for k in range(len(chain))]
        everything = tuple(sorted({s for subset in chain for s in subset}))
        start: list[Node] = [Acquire(everything, 1, 1), Answer(self.slices[0])]
        batch = judge.batch(compile_program(problem, [m.part for m in models], start), models)
        self.tables, self.stops = [], []
        for subset, scores in zip(chain, self.slices, strict=True):
            outcome = batch.run(judge.hpc_label, [Acquire(subset, 1, 1), Answer(scores)])
            self.tables.append(confidence_table(outcome.margin, outcome.label == judge.y))
            self.stops.append(outcome)
        self.forwarded = batch.run(judge.hpc_label, [Forward(problem.hpc_sensors, 1), Answer(self.slices[0])])

    def nodes(self, first: int, last: int, end: str, level: float) -> list[Node]:
        """Acquire, Branch(margin) per stage; Answer nodes behind them."""
        stages = range(first, last + 1)
        new = {k: [s for s in self.chain[k] if k == first or s not in self.chain[k - 1]] for k in stages}
        n_body = sum(n_nodes(new[k]) + 1 for k in stages) - (end == "answer") + (end == "forward")
        answers = {k: n_body + i for i, k in enumerate(stages)}
        nodes: list[Node] = []
        for k in stages:
            if end == "answer" and k == last:
                nodes += buy(new[k], len(nodes), answers[k])
            else:
                nodes += buy(new[k], len(nodes))
                nodes.append(Branch(self.slices[k], MARGIN, (len(nodes) + 1, answers[k]), self._margin(k, level)))
        if end == "forward":
            nodes.append(Forward(self.problem.hpc_sensors, answers[last]))
        nodes.extend(Answer(self.slices[k], "class", *self.tables[k]) for k in stages)
        return nodes

    def _margin(self, stage: int, level: float) -> float:
        """The smallest margin whose confidence reaches the level; beyond all margins if none does."""
        thresholds, confidences = self.tables[stage]
        enough = [k for k, c in enumerate(confidences) if c >= level * 10_000]
        if not enough:
            return 1e6
        return thresholds[enough[0] - 1] if enough[0] else 0.0

    def point(self, first: int, last: int, end: str, level: float) -> Point:
        """A policy's figures on the judged rows."""
        outcome = self.forwarded if end == "forward" else self.stops[last]
        for k in range(last if end == "forward" else last - 1, first - 1, -1):
            stop = self.stops[k]
            outcome = stop.where(stop.margin >= self._margin(k, level), outcome)
        params = {"first": first, "last": last, "end": end, "level": level}
        return Point("cascade", params, self.judge.summary(outcome), {}, None)

    def finish(self, point: Point) -> Point:
        """The program with the scorers this point uses, and its test figures."""
        first, last = point.params["first"], point.params["last"]
        nodes = [_shift(n, first) for n in self.nodes(first, last, point.params["end"], point.params["level"])]
        parts = [m.part for m in self.models[first : last + 1]]
        program = compile_program(self.problem, parts, nodes)
        params = {"stages": [list(s) for s in self.chain[first : last + 1]], **point.params}
        return with_test(self.problem, replace(point, params=params, program=program))


def _shift(node: Node, first: int) -> Node:
    if isinstance(node, Branch | Answer):
        return replace(node, scores=replace(node.scores, scorer=node.scores.scorer - first))
    return node
