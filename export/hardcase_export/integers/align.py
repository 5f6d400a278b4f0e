# SPDX-License-Identifier: Apache-2.0
"""Calibration of integer thresholds: each moves by the few steps that rounding of the scores cost it.

Training may put a threshold on a score that occurs, or very near to one; that score's rounded value may then lie on the
wrong side. On unlabelled rows both the float and the integer score can be computed, so ``align`` takes the integer
threshold that divides the rows as the draft's threshold does. If several thresholds do equally well, it takes the one
nearest to plain rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.more.batch.choices import margins_of
from hardcase_edge.more.batch.polynomials import products, score_products
from hardcase_edge.more.batch.trees import score_trees
from hardcase_edge.program.definition import (
    MARGIN,
    MISSING,
    THRESHOLD,
    Branch,
    Network,
    Node,
    Opaque,
    Polynomial,
    Program,
    Slice,
    Trees,
)
from hardcase_edge.session.branching import margin_of
from hardcase_edge.session.session import Machine
from hardcase_edge.verifier.verify import verify

from .decide import codes_of, readings_of

REACH = 64  # integer steps a threshold may move
MANY_ROWS = 1_000  # with more, trees are walked together: the sums of a draft's floats may differ in their last bits
EXACT = 2.0**52  # float64 adds integers exactly below this


def align(draft: Program, program: Program, X: NDArray[np.float64]) -> Program:
    """The program with thresholds moved so that its ``threshold`` and ``margin`` branches decide rows X as the draft.

    Parameters
    ----------
    draft, program : Program
        Before and after ``quantise``.
    X : (n, n_features) float64, NaN = missing
        Unlabelled rows.
    """
    codes = codes_of(program, readings_of(program, X))
    table = _table(codes)
    before, after = Machine(draft), Machine(program)
    values: dict[tuple[Slice, str], tuple[NDArray[Any], NDArray[Any]]] = {}  # shared by branches on the same scores
    nodes: list[Node] = []
    for old, node in zip(draft.nodes, program.nodes, strict=True):
        if _can_move(node, program):
            assert isinstance(old, Branch)
            assert isinstance(node, Branch)
            key = (node.scores, node.rule)
            if key not in values:
                values[key] = (_values(before, old, codes, table), _values(after, node, codes, table))
            node = _align(old, node, *values[key])
        nodes.append(node)
    aligned = replace(program, nodes=tuple(nodes))
    verify(aligned)
    return aligned


def _can_move(node: Node, program: Program) -> bool:
    return (
        isinstance(node, Branch)
        and node.rule in (THRESHOLD, MARGIN)
        and not isinstance(program.scorers[node.scores.scorer], Opaque | Network)
    )


def code_table(program: Program, X: NDArray[np.float64]) -> NDArray[np.float64]:
    """The codes of all columns on rows X, (n_columns, n), with every sensor read."""
    return _table(codes_of(program, readings_of(program, X)))


def _table(codes: Sequence[list[int]]) -> NDArray[np.float64]:
    return np.array(codes, dtype=np.float64).reshape(len(codes), -1)[:, ::2].T


def _align(old: Branch, node: Branch, floats: NDArray[Any], integers: NDArray[Any]) -> Node:
    is_margin = node.rule == MARGIN
    is_above = floats >= float(old.threshold) if is_margin else floats > float(old.threshold)
    steps = integers - node.threshold
    best, best_wrong = 0, len(integers) + 1
    for move in sorted(range(-REACH, REACH + 1), key=abs):  # the smallest moves first
        wrong = int(np.sum((steps >= move if is_margin else steps > move) != is_above))
        if wrong < best_wrong:
            best, best_wrong = move, wrong
        if wrong == 0:
            break
    return replace(node, threshold=node.threshold + best)


def _values(machine: Machine, node: Branch, codes: Sequence[list[int]], table: NDArray[np.float64]) -> NDArray[Any]:
    """The value that the branch compares with its threshold, for each row on which its scorer can run."""
    part = node.scores
    scorer = machine.program.scorers[part.scorer]
    can_score = np.ones(len(codes), dtype=bool)
    if isinstance(scorer, Polynomial):
        needed = [c for c, sub in zip(scorer.columns, scorer.substitutes, strict=True) if sub is None]
        can_score = (table[needed] != MISSING).all(axis=0)
        values = products(scorer, table[:, can_score])
        largest = np.abs(values) @ np.abs(np.array(scorer.weights, dtype=np.float64)).T if len(values) else values
        if largest.max(initial=0.0) + max(map(abs, scorer.bias)) < EXACT:
            sums = score_products(scorer, values)[:, part.start : part.stop]
            return margins_of(sums) if node.rule == MARGIN else sums[:, 0]
    if isinstance(scorer, Trees) and len(codes) > MANY_ROWS:
        sums = score_trees(scorer, table[:, can_score])[:, part.start : part.stop]
        return margins_of(sums) if node.rule == MARGIN else sums[:, 0]
    score, out = machine.score[part.scorer], []
    for row in (codes[k] for k in np.flatnonzero(can_score).tolist()):
        scores = score(row)[part.start : part.stop]
        out.append(margin_of(scores) if node.rule == MARGIN else scores[0])
    return np.array(out)
