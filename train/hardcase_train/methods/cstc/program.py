# SPDX-License-Identifier: Apache-2.0
"""A fitted tree of classifiers as a program: buy what a node needs, route by its score, answer or forward.

At each exit, rows with a wide margin are answered and the others forwarded, at the margin that is best for a price; of
values, all are answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.program.definition import MARGIN, THRESHOLD, Branch, Forward, Node, Slice

from ...data.problem import Problem
from ...policy.answers import bare_answer, with_confidences
from ...policy.compile import buy, compile_program, policy_of
from ...policy.confidences import NEVER
from ...policy.front import Point, best_points
from ...policy.kinds import learned
from ...policy.prices import prices
from ...policy.selection import Judge, Trained
from ...stages.thresholds import Choices, Meeting, priced_cuts
from .fit import answering, inner
from .shape import EXIT, LOW_HIGH, Shape

LEAST_PRICE, MOST_PRICE = 0.01, 3.0  # errors per cost unit, at which rows are forwarded
Cuts = Mapping[int, float]  # by node where rows exit: the margin below which they are forwarded


def tree_points(
    judge: Judge,
    method: str,
    params: dict[str, Any],
    shape: Shape,
    has: np.ndarray,
    trained: Sequence[Trained],
) -> list[Point]:
    """The points of one tree that are best on the judged rows: answering all rows, and forwarding at each price.

    Parameters
    ----------
    has : (n_nodes, n_sensors) bool, the sensors that a row has bought when a node sees it
    trained : the parts in the order of ``Fitted.parts``
    """
    problem = judge.problem
    if not all(problem.is_affordable(np.flatnonzero(row).tolist()) for row in has):
        return []
    parts = [t.part for t in trained]
    first = len(parts) - len(inner(shape)) - len(answering(shape))  # before it: what parts stand on
    plain, answers = _nodes(problem, shape, has, {}, first)
    policy = policy_of(problem, parts, plain)
    batch = judge.batch(compile_program(problem, parts, plain), trained)
    local = batch.run(judge.hpc_label, plain)
    tried: list[tuple[dict[str, Any], Cuts]] = [({}, {})]
    if learned(problem).has_margins:
        exits = {
            k: np.flatnonzero(local.node == at)
            for k, at in answers.items()
            if problem.may_forward(np.flatnonzero(has[k]).tolist())
        }
        cloud = learned(problem).cloud(judge.stakes, (), judge.y, judge.weight)
        grid = prices(problem, problem.effort.n_graph_prices, LEAST_PRICE, MOST_PRICE) if exits else []
        tried += [({"forward_price": p}, _cuts(judge, local, exits, cloud, p)) for p in grid]
    points = []
    for own, cuts in tried:
        nodes, _ = _nodes(problem, shape, has, cuts, first)
        outcome = batch.run(judge.hpc_label, nodes)
        program = replace(policy, nodes=tuple(with_confidences(judge, nodes, outcome)))
        points.append(Point(method, {**params, **own}, judge.summary(outcome), None, program))
    return best_points(points)


def _cuts(judge: Judge, local: Outcome, exits: Mapping[int, np.ndarray], cloud: np.ndarray, price: float) -> Cuts:
    """The margin at each exit below which forwarding is worth its price."""
    cuts: dict[int, float] = {}
    kind = learned(judge.problem)
    request_cost = judge.problem.row_costs([judge.problem.hpc_sensors], judge.sizes, 1)[:, 0]
    for k, rows in exits.items():
        if not len(rows):
            continue
        wrong = kind.expected(local.margin[rows], None, (), local.label[rows], judge.y[rows], judge.weight[rows])
        stage = Meeting(local.margin[rows], None, wrong, local.cost[rows])
        cost = np.broadcast_to(request_cost, len(judge.y))[rows]
        best_cuts = priced_cuts(Choices([stage], cloud[rows], cost, judge.weight[rows]), price)
        cuts[k] = best_cuts[0].margin if best_cuts else NEVER
    return {k: cut for k, cut in cuts.items() if cut > -NEVER}


def _nodes(
    problem: Problem, shape: Shape, has: np.ndarray, cuts: Cuts, first: int
) -> tuple[list[Node], dict[int, int]]:
    """The nodes, and by node of the tree where its Answer is; ``first``: the scorer of the first routing part."""
    part = {k: first + i for i, k in enumerate(inner(shape))}
    answer = {k: first + len(part) + i for i, k in enumerate(answering(shape))}
    nodes: list[Node] = []
    places: dict[int, int] = {}

    def leave(k: int) -> int:
        at, bare = len(nodes), bare_answer(problem, answer[k])
        if k in cuts:
            nodes.append(Branch(bare.scores, MARGIN, (at + 1, at + 2), cuts[k]))
            nodes.append(Forward(problem.hpc_sensors, at + 2))
        places[k] = len(nodes)
        nodes.append(bare)
        return at

    def visit(k: int) -> int:
        at, before = len(nodes), shape.parents[k]
        new = has[k] & ~has[before] if before >= 0 else has[k]
        nodes.extend(buy(np.flatnonzero(new).tolist(), at))
        if shape.is_leaf(k):
            leave(k)
            return at
        branch = len(nodes)
        nodes.append(bare_answer(problem, first))  # its place; the branch needs targets
        low, high = (visit(c) if (c := shape.children[k][side]) != EXIT else leave(k) for side in LOW_HIGH)
        nodes[branch] = Branch(Slice(part[k], 0, 1), THRESHOLD, (low, high), 0.0)
        return at

    visit(0)
    return nodes, places
