# SPDX-License-Identifier: Apache-2.0
"""Reading hardcase.toml: what is wrong is told in one line, with the nearest known key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardcase_edge.base.files import read_most
from hardcase_edge.base.hints import check_keys
from hardcase_edge.base.toml import parse_toml
from hardcase_edge.errors import InputError
from hardcase_edge.program.limits import CLOCK_UNIT

from .config import Config, ErrorCosts, IndexSettings, ItemSettings, PolicyLimits, SensorConfig
from .statement import REQUIRED, Settings, Statement, statements

MAX_CONFIG_BYTES = 1_000_000
RECORDS: tuple[type[Settings], ...] = (Config, ErrorCosts, SensorConfig, PolicyLimits, IndexSettings, ItemSettings)
SENSOR = "sensor"  # an array of tables
TABLES = ("data", "cost", "cost.uplink", "cost.cloud", "cost.errors", SENSOR, "hpc", "lpc", "policy", "index", "joint")
STATED: dict[str, dict[str, tuple[type[Settings], Statement]]] = {
    table: {one.key: (record, one) for record in RECORDS for one in statements(record) if one.table == table}
    for table in TABLES
}
KEYS = {table: tuple(known) for table, known in STATED.items()}
PATHS = ("file", "model", "legacy", "own_model")
F0 = ("estimator", "params", "model", "legacy")


def read_config(path: str | Path, *, seed: int | None = None) -> Config:
    """Read a hardcase.toml; ``file`` is relative to its folder. ``seed`` overrides the seed in it.

    Raises
    ------
    InputError
        The file cannot be read, is not TOML, has an unknown key, or has a value out of range.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            text = read_most(file, MAX_CONFIG_BYTES)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; create one with: hardcase init") from error
    if len(text) > MAX_CONFIG_BYTES:
        raise InputError(
            f"{path} is larger than {MAX_CONFIG_BYTES} bytes; move data and tables into files of their own"
        )
    tree = parse_toml(str(path), text)
    try:
        return _config(path, tree, {} if seed is None else {"seed": seed})
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _config(path: Path, tree: dict[str, Any], over: dict[str, Any]) -> Config:
    check_keys("the top level", tree, [table for table in TABLES if "." not in table])
    given: dict[type[Settings], dict[str, Any]] = {record: {} for record in RECORDS}
    for table in TABLES:
        if table == SENSOR:
            continue
        for key, value in _table(table, tree).items():
            if f"{table}.{key}" not in TABLES:
                record, one = STATED[table][key]
                given[record][one.field] = value
    own = given[Config]
    _check_required(Config, "[data]", own)
    texts = {key: own[key] for key in PATHS if isinstance(own.get(key), str)}
    own.update({key: path.parent / text for key, text in texts.items() if "\0" not in text})
    if own.get("clock") is True:
        own.setdefault("unit", CLOCK_UNIT)
    ErrorCosts(**given[ErrorCosts])
    _check_f0(own)
    _check_own_model(own)
    if given[ItemSettings] and "item" not in own:
        raise InputError("[joint] is about items of several parts; name their column in [data] item")
    return Config(
        **own | over,
        errors=given[ErrorCosts],
        sensors=tuple(map(_sensor, _sensors(tree))),
        limits=PolicyLimits(**given[PolicyLimits]),
        index=IndexSettings(**given[IndexSettings]),
        joint=ItemSettings(**given[ItemSettings]),
    )


def _table(name: str, tree: dict[str, Any]) -> dict[str, Any]:
    """A table with known keys; an empty one where there is none."""
    above, _, key = name.rpartition(".")
    table = (tree.get(above, {}) if above else tree).get(key, {})
    below = [t.rpartition(".")[2] for t in TABLES if t.startswith(f"{name}.")]
    check_keys(f"[{name}]", table, [*KEYS[name], *below])
    return dict(table)


def _check_required(record: type[Settings], what: str, given: Mapping[str, Any]) -> None:
    for one in statements(record):
        if one.default is REQUIRED and one.field not in given:
            raise InputError(f"{what} has no {one.key}; add it")


def _sensors(tree: dict[str, Any]) -> list[Any]:
    found = tree.get(SENSOR, [])
    if not isinstance(found, list):
        raise InputError(f"[{SENSOR}] is {found!r:.80}, an array is expected: write [[{SENSOR}]]")
    return found


def _sensor(entry: Any) -> SensorConfig:
    check_keys(f"[[{SENSOR}]]", entry, list(KEYS[SENSOR]))
    name = entry.get("name", "?")
    given = {"features": [name], **entry}
    _check_required(SensorConfig, f"the sensor {name!r:.80}", given)
    if given["features"] == []:
        raise InputError(f"the features of sensor {name!r:.80} are [], an array of column names is expected")
    return SensorConfig(**given)


def _check_f0(own: dict[str, Any]) -> None:
    """f0 is an estimator with its parameters, a fitted model, or the table of a legacy system with its name."""
    key = {one.field: one.key for one in statements(Config)}
    if "service" in own and "cloud_per_request" not in own:
        raise InputError(
            "[hpc] url names a model that is paid by the token; say in [cost.cloud] per_request what an answer costs, "
            "or 0 if nothing"
        )
    if "legacy_name" in own and "legacy" not in own:
        raise InputError("[hpc] name belongs to a legacy system; add its table or remove name")
    source = next((field for field in ("legacy", "model") if field in own), None)
    other = next((field for field in F0 if field in own and field != source), None)
    if source is not None and other is not None:
        raise InputError(
            f"[hpc] has {key[other]} and {key[source]}; keep one: f0 is an estimator, a fitted model or a legacy system"
        )
    if isinstance(own.get("legacy"), Path):
        own.setdefault("legacy_name", own["legacy"].stem)


def _check_own_model(own: dict[str, Any]) -> None:
    if ("own_model" in own) != bool(own.get("own_sensors")):
        raise InputError("[lpc] needs both tflite (a file) and sensors (an array of the sensors that it reads)")
