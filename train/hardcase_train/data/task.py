# SPDX-License-Identifier: Apache-2.0
"""A task: the problem made of table and configuration, with the names that a bundle's manifest carries."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from hardcase_edge.batch.quality import Quality
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import Feature, Sensor, Uplink
from hardcase_edge.program.readings import request_bytes

from .canonical_order import content_groups
from .config import Config
from .dtypes import check_declared, declared, held
from .effort import effort_of
from .error_costs import cost_table, measure_of, named_quality
from .hpc import fit_hpc, make_hpc, out_of_fold, probabilities
from .legacy_hpc import read_legacy
from .problem import MAX_CLASSES, MIN_ROWS, N_FOLDS, Problem, Rows, scaled
from .split import CALIBRATION, LEAST_GROUPS, random_split, time_split
from .table import Table, read_table

__all__ = ["Opener", "Task", "make_task", "target_classes", "target_labels", "whole_column"]

Opener = Callable[[Path, Sequence[str], Sequence[str], Sequence[Any], np.ndarray], Any]

PARTS = (("train", 0), ("valid", 1), ("test", 2))  # none may be empty


@dataclass(frozen=True)
class Task:
    """A problem and its names. ``hpc`` is the fitted f0, a given one or a ``Legacy``; ``table``: the rows as read."""

    problem: Problem
    features: tuple[str, ...]
    sensors: tuple[str, ...]
    classes: tuple[Any, ...]
    windows: dict[str, int]
    hpc: Any
    config: Config
    table: Table


def make_task(
    config: Config, *, quiet: bool = True, table: Table | None = None, model: Any = None, given: Opener | None = None
) -> Task:
    """Read the table, split it, declare sensors and fit f0.

    Parameters
    ----------
    quiet : show no progress bar on stderr
    table : the data; without it, ``config.file`` is read
    model : f0, an unfitted estimator; without it, ``config`` names one
    given : opens the fitted model that ``config`` names, which has ``predict_proba``: from the file, names and types of
        features, labels and training rows

    Raises
    ------
    InputError
        The table does not fit the configuration.
    """
    if config.model is not None and given is None:
        raise InputError(f"[hpc] model {config.model} is opened by hardcase train only; name an estimator")
    whole = read_table(config.file) if table is None else table
    y, classes = target_classes(whole, config.target)
    group, order = _groups(whole, config, y)
    split = _split(whole, config, y, group)
    weight = _weights(whole, config, split)
    split = np.where(weight > 0, split, -1)  # rows of weight 0 belong to no part
    train = split == 0
    if group is not None:
        _check_train_groups(len(np.unique(group[train])), config)
    if len(np.unique(y[train])) < 2:
        raise InputError(f"the training rows have only one class of {config.target!r}; choose another split")
    dropped = _dropped(whole, config)
    table = whole.without(*_no_features(config), *dropped).as_features(train, config.dates).without(*dropped)
    sensors, names = _sensors(table, config)
    features = declared(table.X, train, categories={table.names.index(name) for name in table.categories})
    X = held(table.X, features)
    index = [order[split[order] == k] for k in range(split.max() + 1)]  # the last, calibration, may be empty
    legacy = None
    if config.legacy is not None:
        legacy = read_legacy(config.legacy, config.legacy_name, whole, classes, _places(table, sensors, names))
    uplink = _uplink(config, features, tuple(range(len(features))) if legacy is None else legacy.carried(train))
    check_declared(features, sensors, uplink)
    if given is not None and config.model is not None:
        if table.categories:
            raise InputError(
                f"the column {next(iter(table.categories))!r} holds categories, which a fitted model knows by numbers "
                "of its own; write those numbers into the table"
            )
        hpc = given(config.model, table.names, [f.dtype for f in features], classes, X[train])
        proba = [hpc.predict_proba(X[part]) for part in index]
    elif legacy is not None:
        hpc, proba = legacy, legacy.split(index)
    else:
        hpc, proba = _fitted(config, model, (X, y, weight), index, len(classes), quiet, group)
    parts = [
        Rows(X[rows], y[rows], p, rows, weight[rows], None if group is None else group[rows])
        for rows, p in zip(index, proba, strict=True)
    ]
    calibration = parts[CALIBRATION] if len(parts) > CALIBRATION else None
    problem = Problem(
        features,
        sensors,
        uplink,
        len(classes),
        parts[0],
        parts[1],
        parts[2],
        config.seed,
        calibration,
        config.size,
        effort_of("[policy]", config.effort),
    ).with_quality(_quality(config, classes, y[train], weight[train]), legacy is not None)
    return Task(problem, table.names, names, classes, _windows(table, names), hpc, config, table)


def _quality(config: Config, classes: tuple[Any, ...], y: np.ndarray, weight: np.ndarray) -> Quality:
    """The measure of answers that the configuration asks for; ``y`` and ``weight`` of training rows."""
    if config.errors:
        return measure_of(cost_table(config.errors, classes, "[cost.errors]"), y, weight)
    return named_quality(config.quality, classes, "[policy]")


def _fitted(
    config: Config,
    model: Any,
    rows: tuple[np.ndarray, ...],
    index: list[np.ndarray],
    n_classes: int,
    quiet: bool,
    group: np.ndarray | None,
) -> tuple[Any, list[np.ndarray]]:
    """f0 fitted to the training rows, and its probabilities for every part's rows: out-of-fold on training rows."""
    if model is None:
        model = make_hpc(config.estimator, config.params, config.seed)
    X, y, weight = rows
    train, *others = index
    with tqdm(total=1 + N_FOLDS, desc="1/5 f0", disable=quiet) as bar:
        fitted = fit_hpc(model, X[train], y[train], weight[train])
        bar.update(1)
        group = None if group is None else group[train]
        train_proba = out_of_fold(model, X[train], y[train], n_classes, config.seed, bar.update, weight[train], group)
    return fitted, [train_proba, *(probabilities(fitted, X[part], n_classes) for part in others)]


def _places(table: Table, sensors: tuple[Sensor, ...], names: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Feature numbers behind each name of a sensor or a feature; a sensor takes precedence over a feature."""
    features = {f: (k,) for k, f in enumerate(table.names)}
    return {**features, **{name: s.features for name, s in zip(names, sensors, strict=True)}}


def _no_features(config: Config) -> list[str]:
    """Columns that models must not read: target, split, group and weight."""
    split = None if config.split in ("random", "time") else config.split
    return [name for name in (config.target, split, config.group, config.weight) if name is not None]


def _dropped(table: Table, config: Config) -> list[str]:
    """The columns, and parts of dates, that ``[data] drop`` names."""
    dropped: list[str] = []
    parts = [part for name in table.parts for part in table.date_columns(name)] if config.dates == "parts" else []
    columns = (*(table.kinds or table.names), *parts)
    for pattern in config.drop:
        matching = _matching(columns, pattern)
        if not matching:
            near = difflib.get_close_matches(pattern, columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"columns are {', '.join(columns[:20])}"
            raise InputError(f"[data] drop names {pattern!r}, which is not a column of the data; {hint}")
        dropped += matching
    return dropped


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
        raise InputError(f"the target {target!r} has {len(classes)} classes; 2 to {MAX_CLASSES} are expected")
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
    return [v.strip() if isinstance(v, str) else _plain(v) for v in raw]


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _groups(table: Table, config: Config, y: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """The group of each row, None if the configuration names none, and the order in which parts take the rows."""
    if config.group is None:
        return None, np.arange(len(y))
    if config.group not in table.labels:
        raise InputError(f"[data] group is {config.group!r}, which is not a column of text or numbers of the data")
    if config.group in (config.target, config.split, config.weight):
        raise InputError(
            f"[data] group is {config.group!r}, which is the target, the split or the weight; name another column"
        )
    names = whole_column(table, config.group, f"the group {config.group!r}")
    rest = table.without(config.group)
    texts = [np.unique(rest.labels[c].astype(str), return_inverse=True)[1] for c in rest.texts if c in rest.labels]
    dates = [part for column in rest.parts.values() for part in column().values()]
    return content_groups(names, np.column_stack([rest.X, *texts, *dates]), y)


def _check_train_groups(n_groups: int, config: Config) -> None:
    """Models are judged on training groups that they have not seen, one fold after the other."""
    if n_groups < N_FOLDS:
        raise InputError(
            f"the training rows have {n_groups} groups of {config.group!r}, at least {N_FOLDS} are expected; "
            "add groups or choose another split"
        )


def _split(table: Table, config: Config, y: np.ndarray, group: np.ndarray | None) -> np.ndarray:
    """0, 1, 2 or 3 per row: train, valid, test, calibration."""
    n = len(y)
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
        split = random_split(y, config.seed, group)
        for name, k in PARTS:
            if not (split == k).any():
                raise InputError(
                    f"the target {config.target!r} has too few rows per class: no {name} row is left; add rows"
                )
        return split
    if config.split not in table.labels:
        raise InputError(f"[data] split is {config.split!r}, which is not random, time or a column of the data")
    parts: dict[Any, int] = {**dict(PARTS), "calibration": CALIBRATION, 0: 0, 1: 1, 2: 2, 3: CALIBRATION}
    values = [v.strip().lower() if isinstance(v, str) else _plain(v) for v in table.labels[config.split]]
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


def _weights(table: Table, config: Config, split: np.ndarray) -> np.ndarray:
    """Row weights, (n,), scaled to a mean of 1."""
    if config.weight is None:
        return np.ones(len(split))
    if config.weight not in table.labels:
        raise InputError(f"[data] weight is {config.weight!r}, which is not a column of the data")
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


def _sensors(table: Table, config: Config) -> tuple[tuple[Sensor, ...], tuple[str, ...]]:
    owner: dict[str, str] = {}
    sensors, names = [], []
    for s in config.sensors:
        features: list[str] = []
        for pattern in s.features:
            columns = _matching(table.names, pattern)
            if not columns:
                near = difflib.get_close_matches(pattern, table.names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"columns are {', '.join(table.names[:20])}"
                raise InputError(f"sensor {s.name!r} names {pattern!r}, which is not a column of numbers; {hint}")
            features += [f for f in columns if f not in features]
        for f in features:
            if f in owner:
                raise InputError(
                    f"feature {f!r} belongs to the sensors {owner[f]!r} and {s.name!r}; remove it from one"
                )
            owner[f] = s.name
        sensors.append(Sensor(tuple(table.names.index(f) for f in features), (to_micro(s.cost),)))
        names.append(s.name)
    for k, f in enumerate(table.names):
        if f not in owner:
            if f in names:
                raise InputError(f"feature {f!r} belongs to no sensor, but a sensor has its name; rename the sensor")
            sensors.append(Sensor((k,), (to_micro(config.default_sensor),)))
            names.append(f)
    return tuple(sensors), tuple(names)


def _matching(names: Sequence[str], pattern: str) -> list[str]:
    """The column of this name; otherwise, if the pattern ends in ``*``, the columns with that prefix."""
    if pattern in names:
        return [pattern]
    return [n for n in names if n.startswith(pattern[:-1])] if pattern.endswith("*") else []


def _uplink(config: Config, features: tuple[Feature, ...], carried: tuple[int, ...]) -> Uplink:
    return Uplink(
        per_request=to_micro(config.per_request),
        per_byte=to_micro(config.per_byte),
        cloud_per_request=to_micro(config.cloud_per_request),
        request_bytes=request_bytes([features[f].dtype for f in carried]),
        features=carried,
    )


def _windows(table: Table, sensors: tuple[str, ...]) -> dict[str, int]:
    return {s: n for s, n in table.windows.items() if s in sensors}
