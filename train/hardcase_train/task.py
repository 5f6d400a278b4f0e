"""A task: table and configuration joined into a problem, with every name that the bundle's manifest will carry."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from hardcase_edge.errors import InputError, ProgramError
from hardcase_edge.meter import to_micro
from hardcase_edge.program import Answer, Feature, Forward, Program, Sensor, Slice, Trees, Uplink
from hardcase_edge.verifier import verify
from hardcase_edge.wire import request_bytes

from .config import Config
from .hpc import N_FOLDS, fit_hpc, make_hpc, out_of_fold, probabilities
from .problem import Problem, Rows
from .table import Table, read_table

__all__ = ["Task", "declared", "make_task", "target_classes", "target_labels"]

MAX_CLASSES = 200
MIN_ROWS = 10
PARTS = (("train", 0), ("valid", 1), ("test", 2))  # none may be empty
CALIBRATION = 3
PATTERN = (0, 1, 0, 2, 0, 0, 2, 0, 0)  # parts of the rows of a class, calibration rows apart


@dataclass(frozen=True)
class Task:
    """A problem and its names. ``hpc`` is the fitted f0; ``table`` what was read."""

    problem: Problem
    features: tuple[str, ...]
    sensors: tuple[str, ...]
    classes: tuple[Any, ...]
    windows: dict[str, int]
    hpc: Any
    config: Config
    table: Table


def make_task(config: Config, *, quiet: bool = True) -> Task:
    """Read the table, split it, declare sensors and fit f0; ``quiet``: no progress bar on stderr.

    Raises
    ------
    InputError
        The table does not fit the configuration.
    """
    whole = read_table(config.file)
    y, classes = target_classes(whole, config.target)
    split = _split(whole, config, y)
    table = whole.without(config.target, *(() if config.split in ("random", "time") else (config.split,)))
    table.check_features()
    sensors, names = _sensors(table, config)
    train = split == 0
    if len(np.unique(y[train])) < 2:
        raise InputError(f"the training rows have one class of {config.target!r} only; choose another split")
    features = declared(table.X, train)
    X = held(table.X, features)
    model = make_hpc(config.estimator, config.params, config.seed)
    n_classes = len(classes)
    uplink = _uplink(config, features)
    _check_declared(features, sensors, uplink)
    with tqdm(total=1 + N_FOLDS, desc="f0", disable=quiet, leave=False) as bar:
        fitted = fit_hpc(model, X[train], y[train])
        bar.update(1)
        unseen = out_of_fold(model, X[train], y[train], n_classes, config.seed, bar.update)
    parts = {}
    for k in np.unique(split).tolist():
        rows = np.flatnonzero(split == k)
        p = unseen if k == 0 else probabilities(fitted, X[rows], n_classes)
        parts[k] = Rows(X[rows], y[rows], p, rows)
    unused = parts.get(CALIBRATION)
    problem = Problem(features, sensors, uplink, n_classes, parts[0], parts[1], parts[2], config.seed, unused)
    return Task(problem, table.names, names, classes, _windows(table, names), fitted, config, table)


def target_classes(table: Table, target: str) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Class index per row, and the label of each class in sorted order.

    Raises
    ------
    InputError
        No such column, missing labels, or not 2 to 200 classes.
    """
    values = target_labels(table, target)
    classes = tuple(sorted(set(values), key=lambda v: (isinstance(v, str), v)))
    if not 2 <= len(classes) <= MAX_CLASSES:
        raise InputError(f"the target {target!r} has {len(classes)} classes; 2 to {MAX_CLASSES} are expected")
    number = {v: k for k, v in enumerate(classes)}
    return np.array([number[v] for v in values], dtype=np.int64), classes


def target_labels(table: Table, target: str) -> list[Any]:
    """The label of each row: a string, or a number (a whole one as int).

    Raises
    ------
    InputError
        No such column, or missing labels.
    """
    if target not in table.labels:
        known = ", ".join(list(table.labels)[:20]) or "none"
        raise InputError(f"the target {target!r} is no column of the data; columns are {known}")
    raw = table.labels[target]
    absent = [k for k, v in enumerate(raw) if v is None or v != v or (isinstance(v, str) and not v.strip())]
    if absent:
        raise InputError(
            f"the target {target!r} is missing in {len(absent)} rows, first in row {absent[0] + 1}; drop them"
        )
    return [v.strip() if isinstance(v, str) else _plain(v) for v in raw]


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _split(table: Table, config: Config, y: np.ndarray) -> np.ndarray:
    """0, 1, 2 or 3 per row: train, valid, test, calibration."""
    n = len(y)
    if n < MIN_ROWS:
        raise InputError(f"the data has {n} rows; at least {MIN_ROWS} are expected")
    if config.split == "time":
        order = np.array([0, 1, CALIBRATION, 2])
        return order[np.searchsorted([round(s * n) for s in (0.6, 0.7, 0.8)], np.arange(n), side="right")]
    if config.split == "random":
        out = _stratified(y, config.seed)
        for name, k in PARTS:
            if not (out == k).any():
                raise InputError(
                    f"the target {config.target!r} has so few rows per class that none is left for {name}; add rows"
                )
        return out
    if config.split not in table.labels:
        raise InputError(f"[data] split is {config.split!r}: neither random, time nor a column of the data")
    parts: dict[Any, int] = {**dict(PARTS), "calibration": CALIBRATION, 0: 0, 1: 1, 2: 2, 3: CALIBRATION}
    values = [v.strip().lower() if isinstance(v, str) else _plain(v) for v in table.labels[config.split]]
    odd = sorted({str(v) for v in values if v not in parts})
    if odd:
        raise InputError(
            f"the split column {config.split!r} says {odd[0]!r}; train, valid, test or calibration is expected"
        )
    out = np.array([parts[v] for v in values])
    for name, k in PARTS:
        if not (out == k).any():
            raise InputError(f"the split column {config.split!r} names no {name} row")
    return out


def _stratified(y: np.ndarray, seed: int) -> np.ndarray:
    """60/10/10/20 for train, valid, calibration, test.

    Calibration rows are drawn from all rows alike: a promise is about independent draws, and strata would keep rare
    classes out of them. The others are stratified; of a rare class, training gets its rows first.
    """
    rng = np.random.default_rng(seed)
    out = np.full(len(y), CALIBRATION, dtype=np.int64)
    others = np.sort(rng.permutation(len(y))[round(0.1 * len(y)) :])
    taken = 0  # runs on over classes, so that rounding does not favour one part
    for c in range(int(y.max()) + 1):
        rows = rng.permutation(others[y[others] == c])
        place = (np.arange(len(rows)) + (taken if len(rows) >= len(PATTERN) else 0)) % len(PATTERN)
        out[rows] = np.array(PATTERN)[place]
        taken += len(rows)
    return out


def _sensors(table: Table, config: Config) -> tuple[tuple[Sensor, ...], tuple[str, ...]]:
    owner: dict[str, str] = {}
    sensors, names = [], []
    for s in config.sensors:
        mine: list[str] = []
        for pattern in s.features:
            found = _matching(table.names, pattern)
            if not found:
                near = difflib.get_close_matches(pattern, table.names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"columns are {', '.join(table.names[:20])}"
                raise InputError(f"sensor {s.name!r} names {pattern!r}, which is no column of numbers; {hint}")
            mine += [f for f in found if f not in mine]
        for f in mine:
            if f in owner:
                raise InputError(f"feature {f!r} belongs to the sensors {owner[f]!r} and {s.name!r}; name it once")
            owner[f] = s.name
        sensors.append(Sensor(tuple(table.names.index(f) for f in mine), (to_micro(s.cost),)))
        names.append(s.name)
    for k, f in enumerate(table.names):
        if f not in owner:
            if f in names:
                raise InputError(f"feature {f!r} belongs to no sensor, but a sensor has its name; rename that sensor")
            sensors.append(Sensor((k,), (to_micro(config.default_sensor),)))
            names.append(f)
    return tuple(sensors), tuple(names)


def _matching(names: Sequence[str], pattern: str) -> list[str]:
    """The column of this name; else, if the pattern ends in ``*``, those that begin so."""
    if pattern in names:
        return [pattern]
    return [n for n in names if n.startswith(pattern[:-1])] if pattern.endswith("*") else []


def _uplink(config: Config, features: tuple[Feature, ...]) -> Uplink:
    """Every request carries all features."""
    return Uplink(
        per_request=to_micro(config.per_request),
        per_byte=to_micro(config.per_byte),
        cloud_per_request=to_micro(config.cloud_per_request),
        request_bytes=request_bytes([f.dtype for f in features]),
        features=tuple(range(len(features))),
    )


def _check_declared(features: tuple[Feature, ...], sensors: tuple[Sensor, ...], uplink: Uplink) -> None:
    """Whether any program could carry this: told before hours of training, not after."""
    nodes = (Forward(tuple(range(len(sensors))), 1), Answer(Slice(0, 0, 1)))
    try:
        verify(Program(features, sensors, uplink, (), (Trees((), (0,), ()),), nodes, 2))
    except ProgramError as error:
        raise InputError(f"no device could run what is trained on this data: {error}") from error


def declared(X: np.ndarray, train: np.ndarray) -> tuple[Feature, ...]:
    """Declared type of each feature: i32 for whole numbers, f32, or f64 where f32 would blur it.

    Blur: a value would move by more than a thousandth of the column's standard deviation.
    """
    out = []
    for f in range(X.shape[1]):
        values = X[:, f][~np.isnan(X[:, f])]
        if len(values) == 0:
            dtype = "f32"
        elif (values == np.floor(values)).all() and np.abs(values).max() < 2**31 - 1:
            dtype = "i32"
        elif np.abs(values).max() > np.finfo(np.float32).max:
            dtype = "f64"
        else:
            blur = np.abs(values.astype(np.float32) - values).max()
            is_constant = values.min() == values.max()  # then a rounded sum may still give it a deviation
            dtype = "f64" if blur > 1e-3 * values.std() > 0 and not is_constant else "f32"
        out.append(Feature(dtype, bool(np.isnan(X[train, f]).any())))
    return tuple(out)


def held(X: np.ndarray, features: tuple[Feature, ...]) -> np.ndarray:
    """Values as the declared types hold them."""
    out = X.copy()
    for f, feature in enumerate(features):
        if feature.dtype == "f32":
            out[:, f] = X[:, f].astype(np.float32)
    return out


def _windows(table: Table, sensors: tuple[str, ...]) -> dict[str, int]:
    return {s: n for s, n in table.windows.items() if s in sensors}
