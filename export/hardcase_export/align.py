"""Move integer thresholds by the few steps that rounding cost them.

A threshold that training put on a score which occurs, or close beside one, may land on the wrong side of that score's
rounded value. On unlabelled rows both scores can be seen, and the threshold that parts the integers as the draft
parts its floats can be taken. Where several part them equally well, the one nearest to plain rounding is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.program import MARGIN, MISSING, THRESHOLD, Branch, Node, Opaque, Polynomial, Program, Slice
from hardcase_edge.session import Machine, margin_of
from hardcase_edge.verifier import verify

from .rows import codes_of, readings_of

__all__ = ["align"]

REACH = 64  # integer steps a threshold may move


def align(draft: Program, program: Program, X: NDArray[np.float64]) -> Program:
    """The program with its ``threshold`` and ``margin`` branches set as the draft decides on rows X.

    Parameters
    ----------
    draft, program : Program
        Before and after ``quantise``.
    X : (n, n_features) float64, NaN = missing
        No label is seen.
    """
    codes = codes_of(program, readings_of(program, X))
    before, after = Machine(draft), Machine(program)
    pairs: dict[tuple[Slice, str], tuple[NDArray[Any], NDArray[Any]]] = {}  # many branches may compare the same scores
    nodes: list[Node] = []
    for old, node in zip(draft.nodes, program.nodes, strict=True):
        if _can_move(node, program):
            assert isinstance(old, Branch)
            assert isinstance(node, Branch)
            key = (node.scores, node.rule)
            if key not in pairs:
                pairs[key] = (_values(before, old, codes), _values(after, node, codes))
            node = _align(old, node, *pairs[key])
        nodes.append(node)
    aligned = replace(program, nodes=tuple(nodes))
    verify(aligned)
    return aligned


def _can_move(node: Node, program: Program) -> bool:
    return (
        isinstance(node, Branch)
        and node.rule in (THRESHOLD, MARGIN)
        and not isinstance(program.scorers[node.scores.scorer], Opaque)
    )


def _align(old: Branch, node: Branch, floats: NDArray[Any], integers: NDArray[Any]) -> Node:
    is_margin = node.rule == MARGIN
    wanted = floats >= float(old.threshold) if is_margin else floats > float(old.threshold)
    steps = integers - node.threshold
    best, best_wrong = 0, len(integers) + 1
    for move in sorted(range(-REACH, REACH + 1), key=abs):  # nearest first
        wrong = int(np.sum((steps >= move if is_margin else steps > move) != wanted))
        if wrong < best_wrong:
            best, best_wrong = move, wrong
        if wrong == 0:
            break
    return replace(node, threshold=node.threshold + best)


def _values(machine: Machine, node: Branch, codes: Sequence[list[int]]) -> NDArray[Any]:
    """What the branch compares, per row on which its scorer may run."""
    part = node.scores
    score = machine.score[part.scorer]
    scorer = machine.program.scorers[part.scorer]
    needed: list[int] = []
    if isinstance(scorer, Polynomial):
        needed = [c for c, sub in zip(scorer.columns, scorer.substitutes, strict=True) if sub is None]
    out = []
    for row in codes:
        if all(row[2 * c] != MISSING for c in needed):
            scores = score(row)[part.start : part.stop]
            out.append(margin_of(scores) if node.rule == MARGIN else scores[0])
    return np.array(out)
