"""Confidence: how often an answer with such a margin is right, as a small table that a device can look up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression

from hardcase_edge.program.definition import Answer, Node, Slice

from ..data.problem import Subset
from .acquire import buy
from .compile import policy_of
from .front import Point
from .losses import class_outputs
from .selection import Judge, Trained

__all__ = ["NEVER", "answer_node", "answer_point", "confidence_table", "margin_at"]

NEVER = 1e6  # beyond every score

MAX_STEPS = 12


def confidence_table(
    margins: np.ndarray, is_right: np.ndarray, weight: np.ndarray | None = None
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Isotonic estimate of P(right | margin), with at most 12 steps.

    Parameters
    ----------
    margins : ndarray of shape (n,), best score minus second
    is_right : ndarray of shape (n,), bool
    weight : ndarray of shape (n,), one for each unless given

    Returns
    -------
    thresholds : strictly increasing margins where the confidence changes
    confidences : basis points, one more than thresholds; one success and one failure are added to each step, so
        that no step claims certainty
    """
    if len(margins) == 0:
        return (), (5000,)
    order = np.argsort(margins, kind="stable")
    m, right = margins[order], is_right[order].astype(float)
    w = np.ones(len(m)) if weight is None else weight[order]
    levels = IsotonicRegression(y_min=0.0, y_max=1.0).fit(m, right, w).predict(m)
    starts = np.flatnonzero(np.diff(levels, prepend=-1.0) > 0)
    while len(starts) > MAX_STEPS:  # drop the smallest step
        sizes = np.diff(np.append(starts, len(m)))
        starts = np.delete(starts, max(1, int(np.argmin(sizes))))
    starts = starts[np.append(True, np.diff(m[starts]) > 0)]
    groups = zip(np.split(right * w, starts[1:]), np.split(w, starts[1:]), strict=True)
    said = np.maximum.accumulate([round(10_000 * (g.sum() + 1) / (all_.sum() + 2)) for g, all_ in groups])
    return tuple(float(x) for x in m[starts[1:]]), tuple(int(c) for c in said)


def margin_at(table: tuple[tuple[float, ...], tuple[int, ...]], margins: np.ndarray, level: float) -> float:
    """Half-way between the narrowest margin whose confidence reaches the level and the next; beyond all if none does.

    On a row's own margin, the last digit of a sum would decide.
    """
    thresholds, confidences = table
    enough = [k for k, c in enumerate(confidences) if c >= level * 10_000]
    if not enough:
        return NEVER
    if not enough[0]:
        return 0.0
    edge = thresholds[enough[0] - 1]
    return float(edge + margins[margins < edge].max()) / 2


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
