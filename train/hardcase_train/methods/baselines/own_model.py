# SPDX-License-Identifier: Apache-2.0
"""A user's own model as the low-cost model: answer if its margin is wide enough, else forward.

It cannot be retrained without a fold, and may have been trained on the training rows, so its thresholds and confidences
are estimated on the validation rows alone. If one of its sensors fails, the case is forwarded; without the cloud, the
most frequent class is the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import MARGIN, Acquire, Answer, Branch, Column, Forward, Node, Opaque, Slice

from ...data.problem import Problem
from ...policy.answers import answer_node
from ...policy.batch import Batch
from ...policy.compile import Part, compile_program
from ...policy.confidences import NEVER, confidence_table, margin_at
from ...policy.front import Point, best_points, test_figures
from ...policy.kinds import answer_loss
from ...policy.losses import class_outputs
from ...policy.selection import Judge, Trained
from ...trees.binning import Bins
from ...trees.boosting import Ensemble

METHOD = "own"


@dataclass(frozen=True)
class OwnPart:
    """The user's model as a part of a program."""

    opaque: Opaque

    def columns(self, dtypes: Sequence[str]) -> list[Column]:
        return []

    def scorer(self, dtypes: Sequence[str], columns: Sequence[Column]) -> Opaque:
        return self.opaque


def own_points(
    problem: Problem, scorer: Opaque, valid: np.ndarray, test: np.ndarray, origin: dict[str, Any]
) -> list[Point]:
    """The Pareto front of this model's policies over levels of confidence.

    Parameters
    ----------
    scorer : the model and the features it reads, none of which may be missing
    valid, test : (n, n_outputs) its scores of the validation and test rows
    origin : facts about the model that the points report as parameters

    Raises
    ------
    InputError
        One of its features may be missing.
    """
    check_readings(problem, scorer)
    judge = Judge(problem, is_alone=True)
    sensors = tuple(sorted({int(s) for s in problem.sensor_of[list(scorer.features)]}))
    base = answer_loss(problem).base()
    parts: list[Part] = [OwnPart(scorer), Ensemble(Bins(()), np.empty(0, dtype=np.int64), base)]
    trained = [Trained(parts[0], valid.astype(np.float64))]
    plain = _nodes(problem, sensors, -NEVER)
    own_answer = len(plain) - 2
    start = compile_program(problem, parts, plain)
    batch = judge.batch(start, trained)
    all_local = batch.run(judge.hpc_label)
    own = all_local.node == own_answer
    right = all_local.label == judge.y
    table = confidence_table(all_local.margin[own], right[own], judge.weight[own])
    levels = sorted(c / 10_000 for c in table[1][1:])  # a threshold at each step of confidence
    margins = {-NEVER: 0.0} | {margin_at(table, level): level for level in levels if problem.may_forward(sensors)}
    points = []
    for margin, level in margins.items():
        nodes = _nodes(problem, sensors, margin)
        outcome = batch.run(judge.hpc_label, nodes)
        local = outcome.node == own_answer
        nodes[own_answer] = answer_node(nodes[own_answer], outcome.margin[local], right[local], judge.weight[local])
        program = replace(start, nodes=tuple(nodes))
        params = {**origin, "sensors": list(sensors), "level": level}
        points.append(Point(METHOD, params, judge.summary(outcome), None, program))
    rows = problem.test
    tested = Batch(start, rows.X, [test.astype(np.float64)], rows.sizes)
    return [
        replace(p, test=test_figures(problem, tested.run(rows.hpc_label, p.policy.nodes), p.policy.nodes))
        for p in best_points(points)
        if p.policy is not None
    ]


def _nodes(problem: Problem, sensors: tuple[int, ...], margin: float) -> list[Node]:
    own, base = (Slice(k, 0, class_outputs(problem.n_classes)) for k in range(2))
    if not problem.may_forward(sensors):
        return [Acquire(sensors, 1, 2), Answer(own), Answer(base)]
    return [
        Acquire(sensors, 1, 3),
        Branch(own, MARGIN, (2, 4), margin),
        Forward(problem.hpc_sensors, 4),
        Forward(problem.hpc_sensors, 5),
        Answer(own),
        Answer(base),
    ]


def check_readings(problem: Problem, scorer: Opaque) -> None:
    """Refuse a model that reads what may be missing.

    Raises
    ------
    InputError
        One of its features may be missing.
    """
    for f in scorer.features:
        if problem.features[f].nullable:
            raise InputError(
                f"[lpc] reads feature {f}, which is missing in some training rows, and a TFLite model cannot handle "
                "missing values; fill them in the table, or drop those rows"
            )
