# SPDX-License-Identifier: Apache-2.0
"""Nodes that answer, with confidence tables from the judged rows that end there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.program.definition import Answer, Node, Slice
from hardcase_edge.program.kinds import answers_number

from ..data.problem import Problem, Subset
from .compile import buy, policy_of
from .confidences import confidence_table, value_table
from .front import Point
from .selection import Judge, Trained


def answer_point(judge: Judge, method: str, params: dict[str, Any], subset: Subset, trained: Trained) -> Point:
    """The point of a policy that acquires the same sensors for every case and answers."""
    problem = judge.problem
    nodes = [*buy(subset, 0), bare_answer(problem, 0)]
    policy = policy_of(problem, [trained.part], nodes)
    outcome = judge.run(policy.program(), [trained])
    nodes[-1] = answer_node(nodes[-1], outcome.margin, judge.right(outcome.label), judge.weight)
    return Point(method, params, judge.summary(outcome), None, replace(policy, nodes=tuple(nodes)))


def bare_answer(problem: Problem, scorer: int) -> Answer:
    """The node that answers by this scorer's first outputs, still without confidences."""
    return Answer(Slice(scorer, 0, problem.n_outputs), problem.kind.answer)


def answer_node(node: Node, margins: np.ndarray, is_right: np.ndarray, weight: np.ndarray) -> Answer:
    """The Answer node with a confidence table fitted to these rows, (n,) each; that of values is by the value."""
    assert isinstance(node, Answer)
    table = value_table if answers_number(node.kind) else confidence_table
    thresholds, confidences = table(margins, is_right, weight)
    return Answer(node.scores, node.kind, thresholds, confidences)


def with_confidences(judge: Judge, nodes: Sequence[Node], outcome: Outcome) -> list[Node]:
    """The nodes, each Answer with the confidences of the judged rows that end there; one without rows states a half."""
    right = judge.right(outcome.label)

    def stated(k: int, node: Node) -> Node:
        rows = outcome.node == k
        return answer_node(node, outcome.margin[rows], right[rows], judge.weight[rows])

    return [stated(k, node) if isinstance(node, Answer) else node for k, node in enumerate(nodes)]
