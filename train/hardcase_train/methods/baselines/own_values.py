# SPDX-License-Identifier: Apache-2.0
"""A user's own model of values: buy its sensors and answer what it says; if one of them fails, forward the case.

A value has no margin, so no threshold divides sure values from others: there is one policy. Its figures and its
confidence are those of the validation rows alone, because the model may have been trained on the training rows. Without
a sensor and without the cloud the answer is the mean of the training rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hardcase_edge.program.definition import Acquire, Forward, Node, Opaque

from ...data.problem import Problem
from ...policy.answers import answer_node, bare_answer
from ...policy.batch import Batch
from ...policy.compile import Part, compile_program
from ...policy.front import Point, test_figures
from ...policy.kinds import answer_loss
from ...policy.selection import Judge, Trained
from ...trees.binning import Bins
from ...trees.boosting import Ensemble
from .own_model import METHOD, OwnPart, check_readings

OWN_ANSWER = 1  # index of the node that answers by the user's model


def value_points(
    problem: Problem, scorer: Opaque, steps: int, valid: np.ndarray, test: np.ndarray, origin: dict[str, Any]
) -> list[Point]:
    """The one policy of this model.

    Parameters
    ----------
    scorer : the model and the features it reads, none of which may be missing
    steps : a score is the value in the target's unit times 2^steps, rounded
    valid, test : (n, 1) its scores of the validation and test rows
    origin : facts about the model that the point reports as parameters

    Raises
    ------
    InputError
        One of its features may be missing.
    """
    check_readings(problem, scorer)
    judge, rows = Judge(problem, is_alone=True), problem.test
    sensors = tuple(sorted({int(s) for s in problem.sensor_of[list(scorer.features)]}))
    base = Ensemble(Bins(()), np.empty(0, dtype=np.int64), answer_loss(problem).base())
    parts: list[Part] = [OwnPart(scorer), base]
    own, mean = (bare_answer(problem, k) for k in range(2))
    nodes: list[Node] = [Acquire(sensors, OWN_ANSWER, 2), own, Forward(problem.hpc_sensors, 3), mean]
    if not problem.may_forward(sensors):
        nodes = [Acquire(sensors, OWN_ANSWER, 2), own, mean]
    program = compile_program(problem, parts, nodes)
    values = [np.ldexp(scores.astype(np.float64), -steps) for scores in (valid, test)]
    values = [(v - problem.value_unit[0]) / problem.value_unit[1] for v in values]  # as training has them
    outcome = judge.run(program, [Trained(parts[0], values[0])])
    local = outcome.node == OWN_ANSWER
    answer = answer_node(own, outcome.margin[local], judge.right(outcome.label)[local], judge.weight[local])
    nodes[OWN_ANSWER] = replace(answer, shift=-steps)  # the model itself is in steps of the target's unit
    params = {**origin, "sensors": list(sensors)}
    tested = Batch(program, rows.X, [values[1]], rows.sizes).run(rows.hpc_label)
    figures = test_figures(problem, tested, nodes)
    return [Point(METHOD, params, judge.summary(outcome), figures, replace(program, nodes=tuple(nodes)))]
