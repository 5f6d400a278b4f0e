# SPDX-License-Identifier: Apache-2.0
"""A draft program of values in the target's unit: training works in standard units, devices and people do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hardcase_edge.program.definition import (
    Answer,
    Branch,
    Node,
    Number,
    Opaque,
    Polynomial,
    Program,
    Scorer,
    Stack,
    Tree,
    Trees,
)

__all__ = ["in_target_unit"]


def in_target_unit(program: Program, unit: tuple[float, float]) -> Program:
    """The same program, whose values are ``unit[0] + unit[1] * value``.

    Parameters
    ----------
    unit : what 0 and a step of 1 are in the target's unit, as ``Problem.value_unit``

    Raises
    ------
    ValueError
        An output that is answered also decides a branch, or a part has no scale of its own.
    """
    if unit == (0.0, 1.0):  # of classes always
        return program
    answered = {(n.scores.scorer, n.scores.start) for n in program.nodes if isinstance(n, Answer)}
    decides = {
        (s.scorer, k)
        for n in program.nodes
        if isinstance(n, Branch)
        for s in [n.scores]
        for k in range(s.start, s.stop)
    }
    if answered & decides:
        raise ValueError(f"the outputs {sorted(answered & decides)} are answered and decide; train them apart")
    outputs = [{o for k, o in answered if k == scorer} for scorer in range(len(program.scorers))]
    scorers = tuple(
        _scaled(scorer, own, unit, outputs[scorer.trees] if isinstance(scorer, Stack) else set(), program)
        for scorer, own in zip(program.scorers, outputs, strict=True)
    )
    return replace(program, scorers=scorers, nodes=tuple(_node(n, unit) for n in program.nodes))


def _node(node: Node, unit: tuple[float, float]) -> Node:
    """Confidences of a value are by the value."""
    if not isinstance(node, Answer):
        return node
    return replace(node, margins=tuple(unit[0] + unit[1] * m for m in node.margins))


def _scaled(scorer: Scorer, own: set[int], unit: tuple[float, float], of_trees: set[int], program: Program) -> Scorer:
    """The scorer with the outputs ``own`` in the unit; ``of_trees``: those of a stack's ensemble that are."""
    if not own and not of_trees:
        return scorer
    if isinstance(scorer, Polynomial):
        return replace(scorer, weights=_rows(scorer.weights, own, unit), bias=_shifted(scorer.bias, own, unit))
    if isinstance(scorer, Trees):
        trees = tuple(_tree(tree, own, unit) for tree in scorer.trees)
        return replace(scorer, base=_shifted(scorer.base, own, unit), trees=trees)
    if isinstance(scorer, Opaque):  # a model of the user's own is in the target's unit, by the shift of its Answer
        return scorer
    if not isinstance(scorer, Stack):
        raise ValueError(f"a scorer of kind {type(scorer).__name__} has no unit yet")
    ensemble = program.scorers[scorer.trees]
    assert isinstance(ensemble, Trees)
    shrink = [1 / unit[1] if ensemble.trees[m].output in of_trees else 1.0 for m in scorer.members]
    weights = tuple(tuple(w * s for w, s in zip(row, shrink, strict=True)) for row in scorer.weights)
    return replace(scorer, weights=_rows(weights, own, unit), bias=_shifted(scorer.bias, own, unit))


def _rows(
    weights: Sequence[Sequence[Number]], own: set[int], unit: tuple[float, float]
) -> tuple[tuple[Number, ...], ...]:
    return tuple(tuple(w * unit[1] if o in own else w for w in row) for o, row in enumerate(weights))


def _shifted(bias: Sequence[Number], own: set[int], unit: tuple[float, float]) -> tuple[Number, ...]:
    return tuple(unit[0] + unit[1] * b if o in own else b for o, b in enumerate(bias))


def _tree(tree: Tree, own: set[int], unit: tuple[float, float]) -> Tree:
    """Leaves are by leaf, then by output."""
    is_own = [tree.output + k in own for k in range(tree.width)]
    leaves = tuple(v * unit[1] if is_own[i % tree.width] else v for i, v in enumerate(tree.leaves))
    return replace(tree, leaves=leaves) if any(is_own) else tree
