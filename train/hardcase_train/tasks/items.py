# SPDX-License-Identifier: Apache-2.0
"""Items of several parts in a task: which rows are one item, and the columns of its cheap and its costly sensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hardcase_edge.base.hints import nearest_column
from hardcase_edge.errors import InputError

from ..data.problem import Rows
from ..data.table import Table
from ..settings.config import Config, IndexSettings
from .target import whole_column
from .task import Task

MOST_COLUMNS = 4096  # of both sensors, so that an item's operations can be proved


@dataclass(frozen=True)
class Items:
    """Items of one part of a split, in the order of the table.

    X : of each item (parts, columns), those of the first sensor before those of the second
    y : of each item (parts,) class indices
    replies : of each item (parts, 2) f0's class index and its confidence in basis points
    group : (n_items,) number of each item's group
    """

    X: list[np.ndarray]
    y: list[np.ndarray]
    replies: list[np.ndarray]
    group: np.ndarray

    @property
    def n_parts(self) -> int:
        """How many parts all items have."""
        return sum(map(len, self.y))


def check_items(config: Config) -> None:
    """Refuse what items of several parts do not have.

    Raises
    ------
    InputError
        The configuration has one of these settings.
    """
    refused = (
        ("[data] task", not config.kind.has_classes, "the parts of a chain have labels"),
        ("[data] sequence", config.sequence is not None, "the rows of an item are not a stream"),
        ("[data] weight", config.weight is not None, "its learner counts each part once"),
        ("[data] item_size", config.item_size is not None, "their costs are the same for every part"),
        ("[cost] clock", config.clock, "their costs are declared"),
        ("[cost.errors]", bool(config.errors), "they are judged by their share of right parts"),
        ("[policy] quality", config.quality is not None, "they are judged by their share of right parts"),
        ("[policy] size", config.size != "auto", "a chain has one size"),
        ("[policy] max_ms or --max-ms", config.limits.max_ms is not None, "no kernel in C decides a whole item"),
        ("[index], --all or --max-models", config.index != IndexSettings(), "they have two sets of sensors alone"),
        ("[hpc] table", config.legacy is not None, "f0 reads a part at a time"),
        ("[lpc]", config.own_model is not None, "a model of your own knows no neighbours"),
    )
    for name, is_set, why in refused:
        if is_set:
            raise InputError(f"items of several parts are not trained with {name}, because {why}; leave it out")
    if config.item in (config.target, config.split):
        raise InputError(f"[data] item is {config.item!r}, which is the target or the split; name another column")


def item_numbers(table: Table, config: Config) -> np.ndarray:
    """The number of each row's item, (n,): it rises where the text in the column ``[data] item`` changes.

    Raises
    ------
    InputError
        The column is missing, or a cell of it is empty.
    """
    assert config.item is not None
    if config.item not in table.labels:
        raise InputError(
            f"[data] item is {config.item!r}, which is not a column of text or numbers of the data; "
            f"{nearest_column(config.item, table.labels)}"
        )
    names = whole_column(table, config.item, f"[data] item {config.item!r}")
    return np.cumsum([k > 0 and a != names[k - 1] for k, a in enumerate(names)])


def sensor_types(task: Task) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The types of the readings of the cheap and of the costly sensor, one for each feature.

    Raises
    ------
    InputError
        The task has not two sensors of constant costs whose readings are numbers and never missing.
    """
    problem, names = task.problem, task.features
    if len(problem.sensors) != 2:
        raise InputError(
            f"items of several parts are trained with two sensors, first the cheap one of every part; the data has "
            f"{len(problem.sensors)} ({', '.join(task.sensors)[:80]}): give every column to one of two [[sensor]]"
        )
    if task.table.categories:
        raise InputError(f"the column {next(iter(task.table.categories))!r} holds texts; items need numbers")
    if len(names) > MOST_COLUMNS:
        raise InputError(f"the two sensors have {len(names)} columns, at most {MOST_COLUMNS} are possible")
    for name, feature in zip(names, problem.features, strict=True):
        if feature.dtype == "f64":
            raise InputError(f"the column {name!r} needs 64 bits; items need readings of 32: subtract a constant")
    parts = (problem.train, problem.valid, problem.test, problem.calibration)
    for rows in [part for part in parts if part is not None]:
        empty = np.flatnonzero(~np.isfinite(rows.X).all(axis=0))
        if len(empty):
            raise InputError(f"the column {names[empty[0]]!r} has empty cells; items need a number in each")
    first, second = (tuple(problem.features[f].dtype for f in s.features) for s in problem.sensors)
    return first, second


def items_of(task: Task, rows: Rows, numbers: np.ndarray) -> Items:
    """The items whose rows are these; ``numbers`` are those of ``item_numbers``.

    Raises
    ------
    InputError
        An item is in more than one part of the split.
    """
    order = np.argsort(rows.index, kind="stable")
    own = numbers[rows.index[order]]
    names, starts, counts = np.unique(own, return_index=True, return_counts=True)
    whole = np.bincount(numbers, minlength=int(names.max()) + 1)[names]
    if np.any(counts != whole):
        row = int(rows.index[order][starts[np.argmax(counts != whole)]]) + 1
        raise InputError(f"the item of row {row} is in two groups or parts of the split; give all its rows one")
    first, second = task.problem.sensors
    columns = [*first.features, *second.features]
    confidence = np.round(rows.hpc_confidence * 10_000).astype(np.int64)
    cells = (rows.X[:, columns], rows.y, np.stack([rows.hpc_label, confidence], axis=1))
    X, y, replies = ([np.asarray(part) for part in np.split(values[order], starts[1:])] for values in cells)
    group = np.arange(len(names)) if rows.group is None else rows.group[order][starts]
    return Items(X, y, replies, group)
