# SPDX-License-Identifier: Apache-2.0
"""Which nodes a tree has: all of a depth, those that pruning on validation rows leaves, or those added greedily.

Xu et al. (2014), 3.6. Both ways look at nodes as they start, not optimised jointly; what they keep is then trained as
any tree. A side without a child answers by its node's own scores. docs/math.md (112).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...data.problem import Problem
from ...policy.kinds import learned
from .columns import Columns
from .descent import first_weights, start_node, weighted_median
from .objective import Objective, Weights
from .shape import EXIT, LOW_HIGH, Shape, tree

STRUCTURES = ("full", "pruned", "grown")

Rate = Callable[[Shape, Weights], float]


def chosen(structure: str, problem: Problem, columns: Columns, objective: Objective, free: np.ndarray) -> Shape:
    """The shape to train, within that of the objective; ``structure`` is one of ``STRUCTURES``."""
    valid, n_answers = problem.valid, objective.loss.n_outputs
    Z = columns.values(valid.X).astype(np.float32)

    def rate(shape: Shape, weights: Weights) -> float:
        scores = answers_of(shape, weights, Z, n_answers)
        return problem.quality(valid.y, learned(problem).results(scores), valid.weight, valid.group)

    if structure == "pruned":
        return pruned(objective.shape, first_weights(objective, free), rate)
    if structure == "grown":
        return grown(objective, free, rate, Z, valid.weight)
    return objective.shape


def answers_of(shape: Shape, weights: Weights, Z: np.ndarray, n_answers: int) -> np.ndarray:
    """(n, n_answers) the scores that answer each row, which takes one side at each node."""
    scores = weights.scores(Z)
    return np.asarray(scores[np.arange(len(Z)), _ends(shape, scores, weights.theta), :n_answers])


def pruned(shape: Shape, weights: Weights, rate: Rate) -> Shape:
    """Without the leaves, from the last node up, whose removal does not lower the quality on validation rows."""
    value = rate(shape, weights)
    for k in reversed(range(1, len(shape))):
        if shape.is_leaf(k):
            trial = Shape(tuple(_without(pair, k) for pair in shape.children))
            quality = rate(trial, weights)
            if quality >= value:
                shape, value = trial, quality
    return _compact(shape)


def grown(objective: Objective, free: np.ndarray, rate: Rate, valid: np.ndarray, weight: np.ndarray) -> Shape:
    """From the root, always with the child that raises the quality on validation rows most, while one does.

    Parameters
    ----------
    objective : its shape, a full tree, bounds the depth; ``free`` as of ``solve_jointly``
    valid, weight : columns (n_valid, n_columns) and weights (n_valid,) of validation rows
    """
    bound, shape = objective.shape, tree(0)
    weights = _node(replace(objective, shape=shape), replace(objective, shape=shape).zero(), free, valid, weight)
    value = rate(shape, weights)
    potential: dict[tuple[int, int], Weights] = {}
    while True:
        best: tuple[float, Shape, Weights] | None = None
        for k, side in [(k, side) for k, pair in enumerate(shape.children) for side in LOW_HIGH if pair[side] == EXIT]:
            trial = _with(shape, k, side)
            if int(trial.above[-1].sum()) > int(bound.above[-1].sum()):
                continue
            if (k, side) not in potential:
                own = _node(replace(objective, shape=trial), weights, free, valid, weight)
                potential[k, side] = Weights(own.coef[-1:], own.theta[-1:])
            child = potential[k, side]
            both = Weights(np.concatenate([weights.coef, child.coef]), np.append(weights.theta, child.theta))
            quality = rate(trial, both)
            if quality > (value if best is None else best[0]):
                best = quality, trial, both
        if best is None:
            return shape
        value, shape, weights = best


def _node(objective: Objective, weights: Weights, free: np.ndarray, valid: np.ndarray, share: np.ndarray) -> Weights:
    """The weights with those of the objective's last node, started; half of its validation rows take each side."""
    candidate, last = objective.zero(), len(objective.shape) - 1
    candidate.coef[:last], candidate.theta[:last] = weights.coef[:last], weights.theta[:last]
    candidate = start_node(
        objective, candidate, np.broadcast_to(free[:1], (last + 1, free.shape[1])), last, is_leaf=False
    )
    scores = candidate.scores(valid)
    arriving = share * (_ends(objective.shape, scores, candidate.theta) == last)
    if arriving.sum() > 0:
        middle = weighted_median(scores[:, last, -1], arriving)
        if objective.n_outputs == 1:
            candidate.theta[last] = middle
        else:
            candidate.coef[last, -1, -1] -= middle
    return candidate


def _ends(shape: Shape, scores: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """(n,) the node where each row leaves."""
    node_of = np.zeros(len(scores), dtype=np.int64)
    for k, pair in enumerate(shape.children):
        high = scores[:, k, -1] > theta[k]
        for side, child in zip(LOW_HIGH, pair, strict=True):
            if child != EXIT:
                node_of[(node_of == k) & (high == bool(side))] = child
    return node_of


def _with(shape: Shape, k: int, side: int) -> Shape:
    """The shape with one more node, the last, on this side of node k."""
    children = [list(pair) for pair in shape.children]
    children[k][side] = len(shape)
    return Shape((*((low, high) for low, high in children), (EXIT, EXIT)))


def _without(pair: tuple[int, int], k: int) -> tuple[int, int]:
    low, high = (EXIT if child == k else child for child in pair)
    return low, high


def _compact(shape: Shape) -> Shape:
    """The nodes that the root leads to, numbered anew in their order."""
    reached = [0]
    for k in reached:
        reached += [child for child in shape.children[k] if child != EXIT]
    reached.sort()
    place = {EXIT: EXIT, **{k: i for i, k in enumerate(reached)}}
    return Shape(tuple((place[shape.children[k][0]], place[shape.children[k][1]]) for k in reached))
