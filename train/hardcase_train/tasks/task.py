# SPDX-License-Identifier: Apache-2.0
"""A task: the problem made of table and configuration, its sensors, and the names that a bundle's manifest carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from hardcase_edge.base.hints import nearest_column
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.quality import Quality
from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import FREE, Costs, Sensor, Uplink
from hardcase_edge.program.readings import request_bytes

from ..data.dtypes import check_declared, declared, rounded_to_dtypes
from ..data.error_costs import chosen_quality
from ..data.problem import N_FOLDS, Problem, Rows, value_unit
from ..data.split import CALIBRATION, blocks
from ..data.table import Table, read_table
from ..hpc.fit import answers_to, fit_hpc, make_hpc, out_of_fold
from ..hpc.legacy import read_legacy
from ..settings.config import Config
from ..settings.effort import effort_of
from .parts import check_train_groups, in_order, item_sizes, row_groups, row_parts, row_sequences, task_weights
from .target import Target, read_target

Opener = Callable[[Path, Sequence[str], Sequence[str], Sequence[Any], np.ndarray], Any]


@dataclass(frozen=True)
class Task:
    """A problem and its names. ``hpc`` is the fitted f0, a given one or a ``Legacy``; ``table``: the rows as read.

    ``y``: (n,) the target of each row of the table, a class index or the value as read: ``Rows`` hold standard units.
    """

    problem: Problem
    features: tuple[str, ...]
    sensors: tuple[str, ...]
    classes: tuple[Any, ...]
    windows: dict[str, int]
    hpc: Any
    config: Config
    table: Table
    y: np.ndarray


def make_task(
    config: Config, *, quiet: bool = True, table: Table | None = None, model: Any = None, given: Opener | None = None
) -> Task:
    """Read the table, split it, declare sensors and fit f0.

    Parameters
    ----------
    quiet : show no progress bar on stderr
    table : the data; without it, ``config.file`` is read
    model : f0, an unfitted estimator; without it, ``config`` names one
    given : opens the fitted model that ``config`` names, which has ``predict_proba``, or ``predict`` of values: from
        the file, names and types of features, labels and training rows

    Raises
    ------
    InputError
        The table does not fit the configuration.
    """
    if config.model is not None and given is None:
        raise InputError(f"[hpc] model {config.model} is opened by hardcase train only; name an estimator")
    if config.model_classes and config.model is None:
        raise InputError("[hpc] classes names those of a fitted model; name its file in [hpc] model, or with --hpc")
    config = in_order(config)
    whole = read_table(config.file) if table is None else table
    target = read_target(whole, config)
    y, classes = target.y, target.classes
    sizes = item_sizes(whole, config)
    group, order = row_groups(whole, config, y)
    sequence = row_sequences(whole, config, len(y))
    order = order if sequence is None else np.arange(len(y))
    split = row_parts(whole, config, target, group)
    weight = task_weights(whole, config, split)
    split = np.where(weight > 0, split, -1)  # rows of weight 0 belong to no part
    train = split == 0
    if group is not None:
        check_train_groups(len(np.unique(group[train])), config)
    unit = _unit(target, y[train], weight[train], config)
    dropped = dropped_columns(whole, config)
    table = whole.without(*_no_features(config), *dropped).as_features(train, config.dates).without(*dropped)
    sensors, names = task_sensors(table, config)
    codes, known = {table.names.index(name) for name in table.categories}, [table.declared.get(n) for n in table.names]
    features = declared(table.X, train, categories=codes, known=known)
    X = rounded_to_dtypes(table.X, features)
    index = [order[split[order] == k] for k in range(split.max() + 1)]  # the last, calibration, may be empty
    legacy = None
    if config.legacy is not None:
        legacy = read_legacy(config.legacy, config.legacy_name, whole, classes, _places(table, sensors, names))
    carried = tuple(range(len(features))) if legacy is None else legacy.carried(train)
    uplink, costs = Uplink(request_bytes([features[f].dtype for f in carried]), carried), task_costs(config)
    largest = 1 if sizes is None else int(sizes.max())
    check_declared(features, sensors, uplink, costs, largest)
    if given is not None and config.model is not None:
        if own := set(table.categories) - set(whole.categories):  # codes of this table, which f0 does not know
            raise InputError(
                f"the column {min(own)!r} holds categories, which a fitted model knows by numbers "
                "of its own; write those numbers into the table"
            )
        hpc = given(config.model, table.names, [f.dtype for f in features], classes, X[train])
        proba = [hpc.predict_proba(X[part]) if classes else hpc.predict(X[part])[:, None] for part in index]
    elif legacy is not None:
        hpc, proba = legacy, legacy.split(index)
    else:
        folded = blocks(len(y)) if group is None and sequence is not None else group
        hpc, proba = _fitted(config, model, (X, y, weight), index, target, quiet, folded)
    if unit != (0.0, 1.0):
        y, proba = (y - unit[0]) / unit[1], [(values - unit[0]) / unit[1] for values in proba]
    parts = [
        Rows(
            X[rows],
            y[rows],
            p,
            rows,
            weight[rows],
            None if group is None else group[rows],
            sizes=None if sizes is None else sizes[rows],
            sequence=None if sequence is None else sequence[rows],
        )
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
        value_unit=unit,
        max_item_size=largest,
        index=config.index,
        limits=config.limits,
        costs=costs,
    ).with_quality(_quality(config, target, weight, train), legacy is not None)
    return Task(problem, table.names, names, classes, _windows(table, names), hpc, config, table, target.y)


def _unit(target: Target, y: np.ndarray, weight: np.ndarray, config: Config) -> tuple[float, float]:
    """Offset and step of values, in the target's unit; ``y`` and ``weight`` of the training rows."""
    if target.kind.has_classes:
        if len(np.unique(y)) < 2:
            raise InputError(f"the training rows have only one class of {config.target!r}; choose another split")
        return 0.0, 1.0
    unit = value_unit(y, weight)
    return unit if target.kind.has_unit else (0.0, 1.0)  # NDCG takes relevances as they are


def _quality(config: Config, target: Target, weight: np.ndarray, train: np.ndarray) -> Quality:
    """The measure of answers that the configuration asks for."""
    return chosen_quality(
        config.task, config.quality, config.errors or None, target.classes, target.y[train], weight[train], "[policy]",
        "[cost.errors]",
    )  # fmt: skip


def _fitted(
    config: Config,
    model: Any,
    rows: tuple[np.ndarray, ...],
    index: list[np.ndarray],
    target: Target,
    quiet: bool,
    group: np.ndarray | None,
) -> tuple[Any, list[np.ndarray]]:
    """f0 fitted to the training rows, and its answers to every part's rows: out-of-fold on training rows."""
    n_classes = target.n_classes
    if model is None:
        model = make_hpc(config.estimator, config.params, config.seed, target.kind.estimator)
    X, y, weight = rows
    train, *others = index
    with tqdm(total=1 + N_FOLDS, desc="1/5 f0", disable=quiet or None) as bar:
        fitted = fit_hpc(model, X[train], y[train], weight[train])
        bar.update(1)
        group = None if group is None else group[train]
        own = out_of_fold(model, X[train], y[train], n_classes, config.seed, bar.update, weight[train], group)
    return fitted, [own, *(answers_to(fitted, X[part], n_classes) for part in others)]


def _places(table: Table, sensors: tuple[Sensor, ...], names: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Feature numbers behind each name of a sensor or a feature; a sensor takes precedence over a feature."""
    features = {f: (k,) for k, f in enumerate(table.names)}
    return {**features, **{name: s.features for name, s in zip(names, sensors, strict=True)}}


def _no_features(config: Config) -> list[str]:
    """Columns that models must not read: target, split, group, sequence, weight, item and its size."""
    split = None if config.split in ("random", "time") else config.split
    others = (split, config.group, config.sequence, config.weight, config.item_size, config.item)
    return list(dict.fromkeys(name for name in (config.target, *others) if name is not None))


def _windows(table: Table, sensors: tuple[str, ...]) -> dict[str, int]:
    return {s: n for s, n in table.windows.items() if s in sensors}


# The sensors of a task: which columns each delivers, what it costs, and what a decision costs beside them.


def dropped_columns(table: Table, config: Config) -> list[str]:
    """The columns, and parts of dates, that ``[data] drop`` names.

    Raises
    ------
    InputError
        The data has no such column.
    """
    dropped: list[str] = []
    parts = [part for name in table.parts for part in table.date_columns(name)] if config.dates == "parts" else []
    columns = (*(table.kinds or table.names), *parts)
    for pattern in config.drop:
        named = matching(columns, pattern)
        if not named:
            hint = nearest_column(pattern, columns)
            raise InputError(f"[data] drop names {pattern!r}, which is not a column of the data; {hint}")
        dropped += named
    return dropped


def task_sensors(table: Table, config: Config) -> tuple[tuple[Sensor, ...], tuple[str, ...]]:
    """The sensors and their names; a column that belongs to none is a sensor of its own.

    Raises
    ------
    InputError
        A sensor names a column that does not exist, or one that belongs to another sensor.
    """
    owner: dict[str, str] = {}
    sensors, names = [], []
    for s in config.sensors:
        features: list[str] = []
        for pattern in s.features:
            columns = matching(table.names, pattern)
            if not columns:
                if any(matching((pattern,), dropped) for dropped in config.drop):
                    raise InputError(f"sensor {s.name!r} names {pattern!r}, which [data] drop names; take out either")
                hint = nearest_column(pattern, table.names)
                raise InputError(f"sensor {s.name!r} names {pattern!r}, which is not a column of numbers; {hint}")
            features += [f for f in columns if f not in features]
        for f in features:
            if f in owner:
                raise InputError(
                    f"feature {f!r} belongs to the sensors {owner[f]!r} and {s.name!r}; remove it from one"
                )
            owner[f] = s.name
        sensors.append(Sensor(tuple(table.names.index(f) for f in features), coefficients(s.cost)))
        names.append(s.name)
    taken = set(names)
    for k, f in enumerate(table.names):
        if f not in owner:
            if f in taken:
                raise InputError(f"feature {f!r} belongs to no sensor, but a sensor has its name; rename the sensor")
            sensors.append(Sensor((k,), (to_micro(config.default_sensor),)))
            names.append(f)
            taken.add(f)
    return tuple(sensors), tuple(names)


def cost_origins(config: Config, names: Sequence[str]) -> dict[str, Any]:
    """Where the costs of these sensors, the radio, the cloud and a decision's start are from, as front.json has it."""
    own = {s.name: s.cost_origin for s in config.sensors}
    origins = {name: own.get(name, config.default_origin) for name in names}
    one = set(origins.values())
    return {
        "sensors": one.pop() if len(one) == 1 else origins,
        "uplink": config.uplink_origin,
        "cloud": config.cloud_origin,
        **({"decision": config.decision_origin} if config.per_decision else {}),
    }


def matching(names: Sequence[str], pattern: str) -> list[str]:
    """The column of this name; otherwise, if the pattern ends in ``*``, the columns with that prefix."""
    if pattern in names:
        return [pattern]
    return [n for n in names if n.startswith(pattern[:-1])] if pattern.endswith("*") else []


def coefficients(cost: float | tuple[float, ...]) -> tuple[int, ...]:
    """A sensor's cost as the micro-units of a program.

    >>> coefficients((0.5, 0.0, 2.0)), coefficients(3.0)
    ((500000, 0, 2000000), (3000000,))
    """
    return tuple(map(to_micro, cost)) if isinstance(cost, tuple) else (to_micro(cost),)


def task_costs(config: Config) -> Costs:
    """The costs beside those of sensors, as a program has them."""
    return Costs(**{name: to_micro(getattr(config, name)) for name in FREE.terms})
