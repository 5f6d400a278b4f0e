# SPDX-License-Identifier: Apache-2.0
"""The target: what a task predicts, which is a class, a value, or the rank of a row within its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hardcase_edge.errors import InputError
from hardcase_edge.program.kinds import Kind

from ..data.problem import MAX_CLASSES
from ..data.split import strata
from ..data.table import Table
from ..settings.config import Config

__all__ = [
    "Target", "check_relevance", "numbers_of_names", "read_target", "target_classes", "target_labels", "target_values",
    "whole_column",
]  # fmt: skip

MAX_VALUE = 1e12  # magnitude: beyond, squares and 32-bit results lose what models tell apart
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
