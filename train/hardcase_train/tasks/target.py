# SPDX-License-Identifier: Apache-2.0
"""The target: what a task predicts, a class, a value in its unit, or the rank of a row within its group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hardcase_edge.errors import InputError
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
from hardcase_edge.program.kinds import Kind

from ..data.problem import MAX_CLASSES, MAX_VALUE
from ..data.split import strata
from ..data.table import Table
from ..settings.config import Config

MAX_RELEVANCE = 31  # the gain of a relevance y is 2^y - 1


@dataclass(frozen=True)
class Target:
    """The target of every row.

    kind : as ``[data] task`` says
    y : (n,) class index, value, or relevance
    classes : the label of each class; empty for values and ranks
    """

    kind: Kind
    y: np.ndarray
    classes: tuple[Any, ...] = ()

    @property
    def n_classes(self) -> int:
        """The number of classes, 0 for values and ranks."""
        return len(self.classes)

    @property
    def strata(self) -> np.ndarray:
        """What splits and folds are stratified by, (n,) whole numbers."""
        return strata(self.y, self.n_classes)


def read_target(table: Table, config: Config) -> Target:
    """The column that the configuration names.

    Raises
    ------
    InputError
        The column is missing or does not hold what the task predicts.
    """
    kind = config.kind
    if kind.has_classes:
        y, classes = target_classes(table, config.target)
        return Target(kind, y, classes)
    y = target_values(table, config.target)
    if kind.needs_groups:
        if config.group is None:
            raise InputError(
                '[data] task = "rank" orders the rows of a group; name the column of groups: group = "..."'
            )
        check_relevance(y, config.target)
    return Target(kind, y)


def check_relevance(y: np.ndarray, target: str) -> None:
    """Refuse values (n,) that are no relevances.

    Raises
    ------
    InputError
        One is not a whole number from 0 to ``MAX_RELEVANCE``.
    """
    odd = np.flatnonzero((y < 0) | (y > MAX_RELEVANCE) | (y != np.floor(y)))
    if len(odd):
        raise InputError(
            f"the target {target!r} is {y[odd[0]]:g} in row {odd[0] + 1}; ranking takes whole numbers from 0 "
            f'(irrelevant) to {MAX_RELEVANCE}; use task = "value" for others'
        )


def target_values(table: Table, target: str) -> np.ndarray:
    """The value of each row, (n,) float64.

    Raises
    ------
    InputError
        The column is missing, has missing values, or holds something else than numbers up to ``MAX_VALUE``.
    """
    values = target_labels(table, target)
    texts = [v for v in values if isinstance(v, str)]
    if texts:
        raise InputError(f'the target {target!r} contains {texts[0][:60]!r}, not a number; use task = "class"')
    y = np.array([v if abs(v) <= MAX_VALUE else np.inf for v in values], dtype=np.float64)
    if not np.isfinite(y).all():
        raise InputError(f"the target {target!r} has a value beyond {MAX_VALUE:g}; state it in a larger unit")
    return y


def target_classes(table: Table, target: str) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Class index of each row, (n,), and the label of each class, sorted.

    Raises
    ------
    InputError
        The column is missing, has missing labels, or does not have 2 to 200 classes.
    """
    values = target_labels(table, target)
    classes = tuple(sorted(set(values), key=lambda v: (isinstance(v, str), v)))
    if not 2 <= len(classes) <= MAX_CLASSES:
        numbers = '; to predict numbers, use task = "value"' if len(classes) > 2 else ""
        raise InputError(f"the target {target!r} has {len(classes)} classes; 2 to {MAX_CLASSES} are expected{numbers}")
    number = {v: k for k, v in enumerate(classes)}
    return np.array([number[v] for v in values], dtype=np.int64), classes


def target_labels(table: Table, target: str) -> list[Any]:
    """The label of each row: a string, or a number (int if it is whole).

    Raises
    ------
    InputError
        The column is missing, or has missing labels.
    """
    if target not in table.labels:
        columns = ", ".join(list(table.labels)[:20]) or "none"
        raise InputError(f"the target {target!r} is not a column of the data; columns are {columns}")
    return whole_column(table, target, f"the target {target!r}")


def whole_column(table: Table, column: str, what: str) -> list[Any]:
    """The value in each row: a string, or a number (int if it is whole); ``what`` names the column in the error.

    Raises
    ------
    InputError
        A value is missing.
    """
    raw = table.labels[column]
    absent = [k for k, v in enumerate(raw) if v is None or v != v or (isinstance(v, str) and not v.strip())]
    if absent:
        raise InputError(f"{what} is missing in {len(absent)} rows, first in row {absent[0] + 1}; drop them")
    return [plain(v) for v in raw]


def numbers_of_names(table: Table, column: str, what: str) -> np.ndarray:
    """The number of the name in each row, (n,), counted by first appearance; errors as of ``whole_column``."""
    names = whole_column(table, column, what)
    number = {name: k for k, name in enumerate(dict.fromkeys(names))}
    return np.array([number[name] for name in names], dtype=np.int64)


def plain(value: Any) -> Any:
    """A text without spaces around it, or a number: int if it is whole."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


# A draft program of values in the target's unit: training works in standard units, devices and people do not.


def in_target_unit(program: Program, unit: tuple[float, float]) -> Program:
    """The program with the values ``unit[0] + unit[1] * value`` in place of its own.

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
