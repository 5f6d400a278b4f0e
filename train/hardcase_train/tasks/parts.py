# SPDX-License-Identifier: Apache-2.0
"""The rows of a task: the group, the weight and the part (train, valid, test or calibration) of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from hardcase_edge.base.hints import nearest_column
from hardcase_edge.errors import InputError
from hardcase_edge.program.limits import MAX_ITEM_SIZE

from ..data.canonical_order import content_groups
from ..data.problem import MIN_ROWS, N_FOLDS, scaled
from ..data.split import CALIBRATION, LEAST_GROUPS, random_split, time_split
from ..data.table import Table
from ..settings.config import Config
from .target import Target, numbers_of_names, plain, whole_column

PARTS = (("train", 0), ("valid", 1), ("test", 2))  # none may be empty


def row_groups(table: Table, config: Config, y: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """The group of each row, None if the configuration names none, and the order in which parts take the rows.

    Raises
    ------
    InputError
        The column of groups is missing, incomplete, or has another use.
    """
    if config.group is None:
        return None, np.arange(len(y))
    if config.group not in table.labels:
        raise InputError(
            f"[data] group is {config.group!r}, which is not a column of text or numbers of the data; "
            f"{nearest_column(config.group, table.labels)}"
        )
    if config.group in (config.target, config.split, config.weight):
        raise InputError(
            f"[data] group is {config.group!r}, which is the target, the split or the weight; name another column"
        )
    names = whole_column(table, config.group, f"the group {config.group!r}")
    rest = table.without(config.group)
    texts = [np.unique(rest.labels[c].astype(str), return_inverse=True)[1] for c in rest.texts if c in rest.labels]
    dates = [part for column in rest.parts.values() for part in column().values()]
    return content_groups(names, np.column_stack([rest.X, *texts, *dates]), y)


def in_order(config: Config) -> Config:
    """The configuration, in which no split divides an item, and a random one no sequence, unless groups are named."""
    if config.item is not None and config.group is None:
        return config.but(group=config.item)
    is_whole = config.sequence is None or config.group is not None or config.split != "random"
    return config if is_whole else config.but(group=config.sequence)


def row_sequences(table: Table, config: Config, n: int) -> np.ndarray | None:
    """The number of each row's stream, (n,), whose rows are in the table's order; None if rows have no order.

    Raises
    ------
    InputError
        The column of sequences is missing, incomplete, or has another use.
    """
    if config.sequence is None:
        return np.zeros(n, dtype=np.int64) if config.split == "time" else None
    if config.sequence in (config.target, config.split, config.weight, config.item_size):
        raise InputError(
            f"[data] sequence is {config.sequence!r}, which has another use in [data]; name another column"
        )
    if config.sequence not in table.labels:
        raise InputError(
            f"[data] sequence is {config.sequence!r}, which is not a column of text or numbers of the data; "
            f"{nearest_column(config.sequence, table.labels)}"
        )
    return numbers_of_names(table, config.sequence, f"[data] sequence {config.sequence!r}")


def check_train_groups(n_groups: int, config: Config) -> None:
    """Models are judged on training groups that they have not seen, one fold after the other."""
    if n_groups < N_FOLDS:
        raise InputError(
            f"the training rows have {n_groups} groups of {config.group!r}, at least {N_FOLDS} are expected; "
            "add groups or choose another split"
        )


def row_parts(table: Table, config: Config, target: Target, group: np.ndarray | None) -> np.ndarray:
    """0, 1, 2 or 3 per row: train, valid, test, calibration.

    Raises
    ------
    InputError
        A part would be empty, or the configuration's split does not fit the table.
    """
    n = len(target.y)
    if n < MIN_ROWS:
        raise InputError(f"the data has {n} rows, at least {MIN_ROWS} are expected")
    if config.split == "time":
        by_time = time_split(n, group)
        if by_time is None:
            raise InputError(
                f"the groups of {config.group!r} overlap in time, so that no three parts follow each other without "
                'dividing one; use split = "random" or a column that says each group\'s part'
            )
        return by_time
    if config.split == "random":
        if group is not None and group.max() + 1 < sum(LEAST_GROUPS):
            raise InputError(
                f"the data has {group.max() + 1} groups of {config.group!r}, at least {sum(LEAST_GROUPS)} are "
                f"expected: {N_FOLDS} to train, one to validate and one to test"
            )
        split = random_split(target.strata, config.seed, group)
        for name, k in PARTS:
            if not (split == k).any():
                are_numbers = target.kind.has_classes and all(isinstance(c, int | float) for c in target.classes)
                other = ', or predict numbers by task = "value"' if are_numbers else ""
                raise InputError(
                    f"the target {config.target!r} has too few rows per class: no {name} row is left; add rows{other}"
                )
        return split
    if config.split not in table.labels:
        raise InputError(
            f"[data] split is {config.split!r}, which is not random, time or a column of the data; "
            f"{nearest_column(config.split, ['random', 'time', *table.labels])}"
        )
    parts: dict[Any, int] = {**dict(PARTS), "calibration": CALIBRATION, 0: 0, 1: 1, 2: 2, 3: CALIBRATION}
    values = [v.strip().lower() if isinstance(v, str) else plain(v) for v in table.labels[config.split]]
    odd = sorted({str(v) for v in values if v not in parts})
    if odd:
        raise InputError(
            f"the split column {config.split!r} holds {odd[0]!r}; train, valid, test or calibration is expected"
        )
    split = np.array([parts[v] for v in values])
    for name, k in PARTS:
        if not (split == k).any():
            raise InputError(f"the split column {config.split!r} has no {name} row; assign some")
    _check_whole(table, config, split, group)
    return split


def _check_whole(table: Table, config: Config, split: np.ndarray, group: np.ndarray | None) -> None:
    """Refuse a split column that divides a group."""
    if group is None:
        return
    part = np.full(group.max() + 1, -1)
    part[group] = split
    divided = np.flatnonzero(part[group] != split)
    if len(divided):
        assert config.group is not None
        name = {**{k: name for name, k in PARTS}, CALIBRATION: "calibration"}
        one, other = sorted(name[k] for k in np.unique(split[group == group[divided[0]]]).tolist())[:2]
        raise InputError(
            f"the group {str(table.labels[config.group][divided[0]])[:80]!r} of {config.group!r} is in both {one} and "
            f"{other} of the split column {config.split!r}; put all its rows in one part"
        )


def item_sizes(table: Table, config: Config) -> np.ndarray | None:
    """Item size of each row, (n,) int64; None if the configuration names no column.

    Raises
    ------
    InputError
        The column is missing, has another use, or holds something else than whole numbers from 1.
    """
    if config.item_size is None:
        return None
    if config.item_size in (config.target, config.split, config.group, config.weight):
        raise InputError(
            f"[data] item_size is {config.item_size!r}, which has another use in [data]; name another column"
        )
    return sizes_in(table, config.item_size, f"[data] item_size is {config.item_size!r}")


def sizes_in(table: Table, column: str, what: str) -> np.ndarray:
    """The item sizes in a column, (n,) int64; ``what`` begins the message of an error.

    Raises
    ------
    InputError
        The table lacks the column, or it holds something else than whole numbers from 1.
    """
    if column not in table.labels:
        raise InputError(f"{what}, which is not a column of the data; {nearest_column(column, table.labels)}")
    values = [v if isinstance(v, int | float) else np.nan for v in table.labels[column]]
    sizes = np.array(values, dtype=np.float64)
    odd = np.flatnonzero(~((sizes >= 1) & (sizes <= MAX_ITEM_SIZE) & (sizes == np.floor(sizes))))
    if len(odd):
        raise InputError(
            f"{what}, whose row {odd[0] + 1} holds {str(table.labels[column][odd[0]])[:40]}; whole numbers from 1 to "
            f"{MAX_ITEM_SIZE} are expected"
        )
    return sizes.astype(np.int64)


def task_weights(table: Table, config: Config, split: np.ndarray) -> np.ndarray:
    """Row weights, (n,), scaled to a mean of 1.

    Raises
    ------
    InputError
        The column of weights is missing or holds something else, or leaves a part without rows.
    """
    if config.weight is None:
        return np.ones(len(split))
    if config.weight not in table.labels:
        raise InputError(
            f"[data] weight is {config.weight!r}, which is not a column of the data; "
            f"{nearest_column(config.weight, table.labels)}"
        )
    if config.weight in (config.target, config.split):
        raise InputError(f"[data] weight is {config.weight!r}, which is the target or the split; name another column")
    values = [v if isinstance(v, int | float) else np.nan for v in table.labels[config.weight]]
    weight = np.array(values, dtype=np.float64)
    odd = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(odd):
        raise InputError(
            f"the weight {config.weight!r} is missing or not a number of at least 0 in {len(odd)} rows, "
            f"first in row {odd[0] + 1}"
        )
    for name, k in PARTS:
        if not (weight[split == k] > 0).any():
            raise InputError(
                f"the weight {config.weight!r} is 0 in all {name} rows; give at least one a positive weight"
            )
    return scaled(weight)
