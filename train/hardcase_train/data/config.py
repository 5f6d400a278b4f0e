# SPDX-License-Identifier: Apache-2.0
"""The configuration file hardcase.toml, checked key by key and frozen; an error names the nearest known key."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.base.toml import parse_toml
from hardcase_edge.bundle.manifest import CLOCK_UNIT, MAX_NAME
from hardcase_edge.errors import InputError
from hardcase_edge.program.kinds import CLASS, NAMES, Kind, kind_named

from ..columns.dates import DATES
from ..structured.item_settings import ItemSettings
from .amounts import DECLARED, NO_LIMITS, ORIGINS, PolicyLimits, check_amount, check_choice, check_cost
from .effort import effort_of
from .index_settings import IndexSettings

__all__ = [
    "DEFAULT_METHODS", "SIZES", "TASKS", "Config", "SensorConfig", "read_config",
]  # fmt: skip

DEFAULT_METHODS = ("auto",)
TASKS = NAMES
SIZES = ("auto", "small", "large", "ebm")
MAX_CONFIG_BYTES = 1_000_000
NUMBER: tuple[type, ...] = (int, float)
LIMITS = tuple(field.name for field in fields(PolicyLimits))
PATHS = ("file", "model", "table", "tflite")  # keys that name files
KINDS = {dict: "a table", list: "an array", str: "a string", bool: "true or false", int: "a whole number"}
KINDS |= {float: "a number"}

KEYS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "data": {
        "file": str,
        "target": str,
        "task": str,
        "target_unit": str,
        "split": str,
        "group": str,
        "sequence": str,
        "weight": str,
        "item_size": str,
        "item": str,
        "seed": int,
        "drop": list,
        "dates": str,
    },
    "cost": {"unit": str, "clock": bool, "default_sensor": NUMBER, "uplink": dict, "cloud": dict, "errors": dict},
    "cost.uplink": {"per_request": (int, float), "per_byte": (int, float), "cost_origin": str},
    "cost.cloud": {"per_request": (int, float), "cost_origin": str},
    "cost.errors": {"miss": dict, "false_alarm": dict, "other": (int, float), "matrix": dict},
    "sensor": {"name": str, "features": list, "cost": (int, list, float), "cost_origin": str},
    "hpc": {"estimator": (list, str), "params": dict, "model": str, "table": str, "name": str, "classes": list},
    "lpc": {"tflite": str, "sensors": list},
    "index": {"estimated": bool}
    | dict.fromkeys(("alpha", "tolerance", "max_minutes"), NUMBER)
    | dict.fromkeys(("max_trained", "max_models", "max_bytes"), int),
    "joint": {"shares": list, "releases": list, "labels": str, "max_parts": int, "weight_bits": int}
    | dict.fromkeys(("ask", "atypical"), NUMBER),
    "policy": {
        "methods": list,
        "size": str,
        "effort": str,
        "quality": (str, dict),
        "class_weight": str,
        "budget": NUMBER,
        "max_ms": NUMBER,
        "max_bytes": int,
        "max_forward": NUMBER,
    },
}
KEYS["cost"]["cost_origin"] = str  # of the costs in a table, one of ORIGINS


@dataclass(frozen=True, kw_only=True)
class SensorConfig:
    """One [[sensor]] table. A feature that ends in ``*`` stands for all columns with that prefix."""

    name: str
    features: tuple[str, ...]
    cost: float | tuple[float, ...]  # unit of cost; several: c0 + c1 s + c2 s^2 ... for an item of size s
    cost_origin: str = DECLARED  # where the cost is from, one of ORIGINS


@dataclass(frozen=True, kw_only=True)
class Config:
    """Every key of hardcase.toml. Costs in the unit of ``[cost] unit``."""

    file: Path
    name: str | None = None  # of bundles, for people; None: that of the file, without its ending
    target: str
    task: str = CLASS.name  # what the target is, one of TASKS
    target_unit: str = ""  # of values, for the device's records
    split: str = "random"  # "random", "time", or a column that holds train, valid, test or calibration
    group: str | None = None  # a column that names each row's group; no split, fold or interval divides one
    sequence: str | None = None  # a column that names each row's stream, whose rows follow each other as in the table
    weight: str | None = None  # a column of row weights; without one, all rows weigh the same
    item_size: str | None = None  # a column of each row's item size, in which costs are polynomials
    item: str | None = None  # a column: rows that follow each other with one text in it are the parts of an item
    seed: int = 0
    drop: tuple[str, ...] = ()  # columns that no model reads; one that ends in ``*``: all columns with that prefix
    dates: str = "leave"  # what becomes of columns of dates, one of ``columns.dates.DATES``
    unit: str = "unit"
    clock: bool = False  # whether devices go by the clock; the unit is then ``CLOCK_UNIT``
    default_sensor: float = 1.0  # cost of a feature that belongs to no [[sensor]]
    per_request: float = 0.0
    per_byte: float = 0.0
    cloud_per_request: float = 0.0
    sensors: tuple[SensorConfig, ...] = ()
    default_origin: str = DECLARED  # where the costs of [cost] are from, one of ORIGINS
    uplink_origin: str = DECLARED
    cloud_origin: str = DECLARED
    estimator: str | tuple[str, ...] = ""  # several are the steps of a Pipeline; empty: the kind's default
    params: dict[str, Any] = field(default_factory=dict)
    model: Path | None = None  # file of a fitted model, in place of an estimator
    model_classes: tuple[str | int | float, ...] = ()  # labels of its columns; empty: those that it names itself
    legacy: Path | None = None  # table of a legacy system, in place of an estimator
    legacy_name: str = ""
    own_model: Path | None = None  # a .tflite file, used as the LPC
    own_sensors: tuple[str, ...] = ()  # sensors whose readings ``own_model`` takes
    methods: tuple[str, ...] = DEFAULT_METHODS  # not checked in this module; ``methods.check_method`` does
    size: str = "auto"  # of low-cost models, one of SIZES
    effort: str = "normal"  # how much a search tries, one of ``effort.EFFORTS``
    quality: str | dict[str, Any] | None = None  # the measure of answers, as ``error_costs.chosen_quality`` takes it
    limits: PolicyLimits = NO_LIMITS  # that every policy keeps
    index: IndexSettings = field(default_factory=IndexSettings)  # of poly-dom and the methods beside it
    joint: ItemSettings = field(default_factory=ItemSettings)  # of items of several parts
    errors: dict[str, Any] = field(default_factory=dict)  # costs of errors, as ``error_costs.cost_table`` takes them

    @property
    def kind(self) -> Kind:
        """What is predicted."""
        return kind_named(self.task)

    def __post_init__(self) -> None:
        if self.clock and self.unit != CLOCK_UNIT:
            raise InputError(
                f"the clock counts in {CLOCK_UNIT}, but the unit of costs is {str(self.unit)[:60]!r}; change one"
            )
        if self.clock and not self.per_request + self.per_byte + self.cloud_per_request:
            raise InputError(
                "by the clock a request costs its round trip, and none is declared; state in [cost.uplink] per_request "
                "how many ms it takes, or more than any budget if there is no cloud"
            )
        sized = next((s for s in self.sensors if isinstance(s.cost, tuple) and any(s.cost[1:])), None)
        if sized is not None and self.item_size is None:
            raise InputError(
                f"the cost of sensor {sized.name!r} depends on the item's size, but no column gives sizes; name it in "
                "[data] item_size"
            )
        if not self.estimator:
            object.__setattr__(self, "estimator", self.kind.default_f0)
        texts = (("unit", self.unit, 1), ("target_unit", self.target_unit, 0), ("name", self.bundle_name, 1))
        for key, text, least in texts:
            if not isinstance(text, str) or not least <= len(text) <= MAX_NAME:
                raise InputError(f"{key} is {str(text)[:60]!r}, a text of at most {MAX_NAME} characters is expected")
        if not isinstance(self.seed, int | np.integer) or not 0 <= self.seed < 2**32:
            raise InputError(f"the seed is {str(self.seed)[:60]}, a whole number from 0 to {2**32 - 1} is expected")
        if not all(isinstance(name, str) and name for name in self.drop):
            raise InputError(f"drop is {str(list(self.drop))[:80]}, column names are expected")

        labels = [str(label) for label in self.model_classes if isinstance(label, (str, *NUMBER))]
        if len(set(labels)) < len(self.model_classes):
            raise InputError(
                f"[hpc] classes is {str(list(self.model_classes))[:80]}; name each once, in the model's order"
            )

    @property
    def bundle_name(self) -> str:
        """What bundles are called."""
        return self.file.stem if self.name is None else self.name

    @property
    def hpc_name(self) -> str:
        """What f0 is, in words."""
        names = (self.estimator,) if isinstance(self.estimator, str) else self.estimator
        return self.legacy_name or (" and ".join(names) if self.model is None else self.model.name)


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
            text = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; create one with: hardcase init") from error
    if len(text) > MAX_CONFIG_BYTES:
        raise InputError(
            f"{path} is larger than {MAX_CONFIG_BYTES} bytes; move data and tables into files of their own"
        )
    return _build(path, parse_toml(str(path), text), seed)


def _build(path: Path, tree: dict[str, Any], seed: int | None) -> Config:
    _check_keys(
        path,
        "",
        tree,
        dict.fromkeys(("data", "cost", "hpc", "lpc", "policy", "index", "joint"), dict) | {"sensor": list},
    )
    data = _section(path, tree, "data")
    cost = _section(path, tree, "cost")
    uplink = _section(path, cost, "uplink", "cost.uplink")
    cloud = _section(path, cost, "cloud", "cost.cloud")
    hpc = _section(path, tree, "hpc")
    policy = _section(path, tree, "policy")
    for key in ("file", "target"):
        if key not in data:
            raise InputError(f"{path}: [data] has no {key}; add it")
    out: dict[str, Any] = {
        "file": path.parent / data["file"],
        "target": data["target"],
        "task": check_choice(f"{path}: [data] task", data.get("task", CLASS.name), TASKS),
        "target_unit": data.get("target_unit", ""),
        "split": data.get("split", "random"),
        "group": data.get("group"),
        "sequence": data.get("sequence"),
        "weight": data.get("weight"),
        "item_size": data.get("item_size"),
        "item": data.get("item"),
        "seed": data.get("seed", 0) if seed is None else seed,
        "drop": tuple(data.get("drop", ())),
        "dates": check_choice(f"{path}: [data] dates", data.get("dates", "leave"), DATES),
        "unit": cost.get("unit", CLOCK_UNIT if cost.get("clock") else "unit"),
        "clock": cost.get("clock", False),
        "default_sensor": check_amount(f"{path}: [cost] default_sensor", cost.get("default_sensor", 1.0)),
        "per_request": check_amount(f"{path}: [cost.uplink] per_request", uplink.get("per_request", 0.0)),
        "per_byte": check_amount(f"{path}: [cost.uplink] per_byte", uplink.get("per_byte", 0.0)),
        "cloud_per_request": check_amount(f"{path}: [cost.cloud] per_request", cloud.get("per_request", 0.0)),
        "sensors": tuple(_sensor(path, entry) for entry in tree.get("sensor", [])),
        "default_origin": _origin(f"{path}: [cost]", cost),
        "uplink_origin": _origin(f"{path}: [cost.uplink]", uplink),
        "cloud_origin": _origin(f"{path}: [cost.cloud]", cloud),
    }
    if not all(isinstance(name, str) and name for name in out["drop"]):
        raise InputError(f"{path}: [data] drop is {str(data['drop'])[:80]}, an array of column names is expected")
    if not 0 <= out["seed"] < 2**32:
        raise InputError(f"{path}: the seed {out['seed']} is out of range 0..{2**32 - 1}; choose another")
    out.update(_quality(path, policy, _section(path, cost, "errors", "cost.errors"), out["task"]))
    out.update(_hpc(path, hpc))
    out["index"] = IndexSettings(**_section(path, tree, "index"))
    out["joint"] = ItemSettings(**_section(path, tree, "joint"))
    if tree.get("joint") and out["item"] is None:
        raise InputError(f"{path}: [joint] is about items of several parts; name their column in [data] item")
    out.update(_lpc(path, _section(path, tree, "lpc")))
    if "methods" in policy:
        out["methods"] = tuple(policy["methods"])
        if not out["methods"] or not all(isinstance(name, str) for name in out["methods"]):
            raise InputError(
                f'{path}: [policy] methods is {policy["methods"]!r}; name at least one method, such as "auto"'
            )
    out["size"] = check_choice(f"{path}: [policy] size", policy.get("size", "auto"), SIZES)
    out["effort"] = effort_of(f"{path}: [policy]", policy.get("effort", "normal")).name
    out["limits"] = PolicyLimits(**{key: policy[key] for key in LIMITS if key in policy})
    names = [s.name for s in out["sensors"]]
    if len(set(names)) != len(names):
        raise InputError(
            f"{path}: the sensor {next(n for n in names if names.count(n) > 1)!r} is declared twice; rename one"
        )
    return Config(**out)


def _section(path: Path, tree: dict[str, Any], key: str, full: str | None = None) -> dict[str, Any]:
    section: dict[str, Any] = tree.get(key, {})
    _check_keys(path, full or key, section, KEYS[full or key])
    return section


def _check_keys(path: Path, where: str, section: Any, types: dict[str, Any]) -> None:
    label = f"[{where}]" if where else "the top level"
    if not isinstance(section, dict):
        raise InputError(f"{path}: {label} is {str(section)[:80]!r}, a table is expected")
    for key, value in section.items():
        if key not in types:
            hint = did_you_mean(key, types, f"known keys are {', '.join(types)}", cutoff=0.5)
            raise InputError(f"{path}: {label} has the unknown key {key[:60]!r}; {hint}")
        if not isinstance(value, types[key]) or isinstance(value, bool) != (types[key] is bool):
            kind = types[key][-1] if isinstance(types[key], tuple) else types[key]
            raise InputError(f"{path}: {label} {key} is {str(value)[:80]!r}, {KINDS[kind]} is expected")
        if isinstance(value, str) and not 1 <= len(value) <= MAX_NAME and key not in PATHS:
            raise InputError(f"{path}: {label} {key} has {len(value)} characters, 1 to {MAX_NAME} are expected")


def _hpc(path: Path, hpc: dict[str, Any]) -> dict[str, Any]:
    """f0: an estimator with its parameters, a fitted model, or the table of a legacy system with its name."""
    _check_params(path, hpc.get("params", {}))
    if "name" in hpc and "table" not in hpc:
        raise InputError(f"{path}: [hpc] name belongs to a legacy system; add its table or remove name")
    source = next((key for key in ("table", "model") if key in hpc), None)
    for key in ("estimator", "params", "model"):
        if source is not None and key in hpc and key != source:
            raise InputError(
                f"{path}: [hpc] has {key} and {source}; keep one: f0 is an estimator, a fitted model or a legacy system"
            )
    found = {"model_classes": tuple(hpc.get("classes", ()))}
    if source == "table":
        file = path.parent / hpc["table"]
        return found | {"legacy": file, "legacy_name": hpc.get("name", file.stem)}
    if source == "model":
        return found | {"model": path.parent / hpc["model"]}
    return found | _estimator(path, hpc) | ({"params": hpc["params"]} if "params" in hpc else {})


def _estimator(path: Path, hpc: dict[str, Any]) -> dict[str, Any]:
    """The name of a classifier, or the names of the steps of a Pipeline."""
    names = hpc.get("estimator")
    if not isinstance(names, list):
        return {} if names is None else {"estimator": names}
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(
            f'{path}: [hpc] estimator is {names!r:.80}; name scikit-learn\'s classes, such as ["StandardScaler", '
            '"LogisticRegression"]'
        )
    return {"estimator": tuple(names)}


def _quality(path: Path, policy: dict[str, Any], errors: dict[str, Any], task: str) -> dict[str, Any]:
    """The measure of answers: costs of errors, balanced classes, or a measure by name."""
    wishes = {"[cost.errors]": errors, "[policy] quality": policy.get("quality")}
    wishes["[policy] class_weight"] = policy.get("class_weight")
    measures = [name for name, value in wishes.items() if value]
    if len(measures) > 1:
        raise InputError(f"{path}: {' and '.join(measures)} both say what an error counts; keep one")
    if policy.get("class_weight", "balanced") != "balanced":
        raise InputError(f"{path}: [policy] class_weight is {policy['class_weight']!r}; use balanced, or [cost.errors]")
    if not kind_named(task).has_classes and "class_weight" in policy:
        raise InputError(f'{path}: [policy] class_weight is for classes, not for task = "{task}"; remove it')
    for key, value in errors.items():
        _check_costs(path, f"[cost.errors] {key}", value)
    quality = "balanced" if "class_weight" in policy else policy.get("quality")
    return {"quality": quality, "errors": errors}


def _check_costs(path: Path, what: str, value: Any) -> None:
    """Check that every leaf of a table of costs is an amount."""
    if isinstance(value, dict):
        for name, part in value.items():
            _check_costs(path, f"{what}.{name[:60]}", part)
    else:
        check_amount(f"{path}: {what}", value)


def _lpc(path: Path, lpc: dict[str, Any]) -> dict[str, Any]:
    """The user's own model, and the sensors whose readings it takes."""
    if not lpc:
        return {}
    sensors = lpc.get("sensors", [])
    if "tflite" not in lpc or not sensors or not all(isinstance(s, str) for s in sensors):
        raise InputError(
            f"{path}: [lpc] needs both tflite (a file) and sensors (an array of the sensors that it reads)"
        )
    return {"own_model": path.parent / lpc["tflite"], "own_sensors": tuple(sensors)}


def _check_params(path: Path, params: dict[str, Any]) -> None:
    """Parameters go into the manifest, so they must be JSON values."""
    try:
        json.dumps(params, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: [hpc.params] must be numbers, strings, arrays and tables: {error}") from error


def _sensor(path: Path, entry: Any) -> SensorConfig:
    _check_keys(path, "sensor", entry, KEYS["sensor"])
    for key in ("name", "cost"):
        if key not in entry:
            raise InputError(f"{path}: the sensor {entry.get('name', '?')!r} has no {key}; add it")
    features = entry.get("features", [entry["name"]])
    if not features or not all(isinstance(f, str) and f for f in features):
        raise InputError(f"{path}: the features of sensor {entry['name']!r} are not an array of column names")
    return SensorConfig(
        name=entry["name"],
        features=tuple(features),
        cost=check_cost(f"{path}: the cost of sensor {entry['name']!r}", entry["cost"]),
        cost_origin=_origin(f"{path}: sensor {entry['name']!r}", entry),
    )


def _origin(where: str, section: dict[str, Any]) -> str:
    return check_choice(f"{where} cost_origin", section.get("cost_origin", DECLARED), ORIGINS)
