# SPDX-License-Identifier: Apache-2.0
"""Points of a gate and a low-cost model: a sweep of both thresholds on the judged rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from hardcase_edge.program.definition import MARGIN, THRESHOLD, Branch, Forward, Node, Slice

from ...data.problem import Problem
from ...policy.answers import answer_node, bare_answer
from ...policy.compile import buy, compile_program, policy_of
from ...policy.confidences import NEVER
from ...policy.front import Point, best_points
from ...policy.kinds import learned
from ...policy.selection import Judge, Trained


class Gated(Protocol):
    """A fitted gate and low-cost model: class scores first, the gate's score last, and the sensors they read."""

    trained_: Trained
    sensors_: list[int]


def adapt_nodes(problem: Problem, sensors: list[int], threshold: float, margin: float) -> list[Node]:
    """Nodes: acquire; answer if the margin of f1 is wide enough; else the gate g decides between Forward and Answer.

    Values have no margin, so the gate decides alone.
    """
    width = problem.n_outputs
    nodes = buy(sensors, 0)
    if not problem.may_forward(sensors):
        return [*nodes, bare_answer(problem, 0)]
    has_margins = learned(problem).has_margins
    answer = len(nodes) + (3 if has_margins else 2)
    if has_margins:
        nodes.append(Branch(Slice(0, 0, width), MARGIN, (len(nodes) + 1, answer), margin))
    nodes.append(Branch(Slice(0, width, width + 1), THRESHOLD, (answer, answer - 1), threshold))
    return [*nodes, Forward(problem.hpc_sensors, answer), bare_answer(problem, 0)]


def gated_points(
    judge: Judge, method: str, model: Gated, params: dict[str, Any], gate_rates: Sequence[float] = ()
) -> list[Point]:
    """``path_points`` of one model."""
    return path_points(judge, method, [(model, params)], gate_rates)


def path_points(
    judge: Judge, method: str, models: Sequence[tuple[Gated, dict[str, Any]]], gate_rates: Sequence[float] = ()
) -> list[Point]:
    """The points of several models that are best on the judged rows, each with its policy.

    Parameters
    ----------
    models : each with the parameters that its points report
    gate_rates : forward rates at which the gate decides alone, in addition to those at which a wide margin of f1
        overrules it
    """
    swept = [(p, model) for model, params in models for p in _sweep(judge, method, model, params, gate_rates)]
    model_of = {id(p): model for p, model in swept}
    best = best_points([p for p, _ in swept])
    if judge.is_rough:
        return best
    by_model = {id(m): _with_policies(judge, m, [p for p in best if model_of[id(p)] is m]) for m, _ in models}
    return [next(by_model[id(model_of[id(p)])]) for p in best]


def _sweep(judge: Judge, method: str, model: Gated, params: dict[str, Any], gate_rates: Sequence[float]) -> list[Point]:
    """Points over both thresholds, taken at quantiles of the judged rows.

    Two runs of the program give every row's outcome if it is answered locally and if it is forwarded; a pair of
    thresholds only selects between the two.
    """
    problem, sensors, scores = judge.problem, model.sensors_, model.trained_.scores
    if not problem.is_affordable(sensors):
        return []
    program = compile_program(problem, [model.trained_.part], adapt_nodes(problem, sensors, 0.0, 0.0))
    local = judge.run(program, [model.trained_], adapt_nodes(problem, sensors, NEVER, -NEVER))
    forwarded = judge.run(program, [model.trained_], adapt_nodes(problem, sensors, -NEVER, NEVER))
    gate = scores[:, -1]
    kind = learned(problem)
    margin = kind.margins(scores[:, :-1])
    most = judge.most_forwarded
    rates = sorted({*(r for r in problem.effort.forward_rates if r < most), *([most] if most < 1 else [])})
    belows = dict.fromkeys(_threshold(margin, 1 - rate) for rate in rates) if kind.has_margins else {NEVER: None}
    aboves = dict.fromkeys([-NEVER, *(_threshold(gate, rate) for rate in rates[1:])])
    pairs = [(above, below) for above in aboves for below in belows]
    pairs += [(_threshold(gate, rate), NEVER) for rate in (*gate_rates, *([most] if most < 1 else []))]
    if not problem.may_forward(sensors):
        pairs = [(NEVER, -NEVER)]  # all rows are answered
    points = []
    for above, below in pairs:
        hard = (gate > above) & (margin < below)
        reported = {**params, "gate": above, "margin": below, "sensors": sensors}
        points.append(Point(method, reported, judge.summary(forwarded.where(hard, local)), None, None))
    return points


def _with_policies(judge: Judge, model: Gated, points: Sequence[Point]) -> Iterator[Point]:
    """The points with their policies; confidences are estimated on the judged rows that are answered locally."""
    problem, parts = judge.problem, (model.trained_.part,)
    batch = judge.batch(compile_program(problem, parts, ()), [model.trained_])
    for point in points:
        nodes = adapt_nodes(problem, model.sensors_, point.params["gate"], point.params["margin"])
        outcome = batch.run(judge.hpc_label, nodes)
        local = ~outcome.forwarded
        right = judge.right(outcome.label)[local]
        nodes[-1] = answer_node(nodes[-1], outcome.margin[local], right, judge.weight[local])
        yield replace(point, valid=judge.summary(outcome), policy=policy_of(problem, parts, nodes))


def _threshold(values: np.ndarray, rate: float) -> float:
    """A threshold that about a share of ``rate`` of the values exceed, half-way between two of them.

    One that all exceed is half a mean gap below them, where a program that rounds otherwise has them above it, too.
    """
    ordered = np.sort(values)[::-1]
    k = round(rate * len(ordered))
    if k == 0:
        return float(ordered[0]) + 1.0
    if k == len(ordered):
        return float(ordered[-1]) - float(ordered[0] - ordered[-1]) / (2 * k)
    return float(ordered[k - 1] + ordered[k]) / 2
