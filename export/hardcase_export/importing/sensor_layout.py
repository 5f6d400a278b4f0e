# SPDX-License-Identifier: Apache-2.0
"""Sensor layout of an imported model: which sensor gives which reading, and its cost, from a small TOML.

Without a TOML one sensor gives all readings at no cost.

[model]                     # all keys are optional
name = "bearing"            # the name of the decision
target = "state"            # the name of the answer
unit = "kWh"                # of a regressor's answer
features = ["rms", "peak"]  # names in the model's order, if the model has none
classes = ["calm", "worn"]  # names in the model's order, in place of its own labels
type = "f32"                # of readings: i32, f32 or f64

[cost]
unit = "mJ"
default_sensor = 1          # cost of a feature that no sensor names: the feature is then a sensor of its own

[[sensor]]
name = "accelerometer"
features = ["rms", "peak"]  # "a*" names all features that begin with a
cost = 2.5
type = "i32"                # of its readings

[range]                     # for linear models: lowest and highest reading
rms = [0, 40]
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.base.files import read_bounded
from hardcase_edge.base.hints import check_keys, did_you_mean
from hardcase_edge.base.toml import parse_toml
from hardcase_edge.bundle.manifest import Label
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import FREE, Costs, Feature, Sensor
from hardcase_edge.program.limits import MAX_NAME

from ..sources.source import Source

MAX_BYTES = 1_000_000
MAX_COST = 1e9
NUMBER = (int, float)
KINDS: dict[Any, str] = {dict: "a table", list: "a list", str: "text", NUMBER: "a number"}
KEYS: dict[str, dict[str, Any]] = {
    "the top level": {"model": dict, "cost": dict, "sensor": list, "range": dict},
    "[model]": {"name": str, "target": str, "unit": str, "features": list, "classes": list, "type": str},
    "[cost]": {"unit": str, "default_sensor": NUMBER, "per_decision": NUMBER},
    "[[sensor]]": {"name": str, "features": list, "cost": NUMBER, "type": str},
}
READING_TYPES = {"f32": ("f32", "i32"), "f64": ("f64", "f32", "i32")}  # by the type in which a source compares


@dataclass(frozen=True)
class Layout:
    """Names, types and costs of a model's readings, in its order; ``costs``: of a decision, beside those of sensors.

    ``ranges``: (n_features, 2), NaN if not given.
    """

    name: str
    target: str
    unit: str
    names: tuple[str, ...]
    classes: tuple[Label, ...]
    features: tuple[Feature, ...]
    sensor_names: tuple[str, ...]
    sensors: tuple[Sensor, ...]
    ranges: NDArray[np.float64]
    target_unit: str = ""
    costs: Costs = FREE


def read_layout(path: str | Path) -> dict[str, Any]:
    """The TOML at this path; ``make_layout`` checks its content.

    Raises
    ------
    InputError
        The file cannot be read, is too large, or is not TOML.
    """
    data = read_bounded(path, MAX_BYTES, "sensor layout", remedy="name a TOML file of sensors")
    return parse_toml(f"sensor layout {path}", data)


def make_layout(source: Source, toml: dict[str, Any] | None = None, names: tuple[str, ...] = ()) -> Layout:
    """The layout of a checked source's readings.

    Parameters
    ----------
    toml : the result of ``read_layout``; None for one sensor, "inputs", that gives all readings at no cost
    names : names of the features, in the model's order, used if neither the source nor ``toml`` has them

    Raises
    ------
    InputError
        A key is unknown, a value is out of range, or a named feature is not among those that the model reads.
    """
    toml = {} if toml is None else toml
    _check(toml, "the top level")
    model, cost = (_checked(toml.get(key, {}), f"[{key}]") for key in ("model", "cost"))
    names = _names(source, model.get("features"), names)
    classes = _classes(source, model.get("classes"))
    entries = [_checked(entry, "[[sensor]]") for entry in toml.get("sensor", [])]
    types = [_type(source, model.get("type", source.dtype))] * len(names)
    place = {name: k for k, name in enumerate(names)}
    sensors: list[tuple[str, list[int], float]] = []
    owner: dict[int, str] = {}
    for entry in entries:
        if "name" not in entry or "cost" not in entry:
            absent = "cost" if "name" in entry else "name"
            raise InputError(f"the sensor {entry.get('name', '?')!r} has no {absent}; add it to its [[sensor]]")
        features = _features(entry, place)
        for f in features:
            if f in owner:
                raise InputError(
                    f"the feature {names[f]!r} belongs to the sensors {owner[f]!r} and {entry['name']!r}; "
                    "name it in one of them"
                )
            owner[f] = entry["name"]
            types[f] = _type(source, entry["type"]) if "type" in entry else types[f]
        sensors.append((entry["name"], features, _cost(f"the cost of sensor {entry['name']!r}", entry["cost"])))
    rest = [k for k in range(len(names)) if k not in owner]
    if rest and not entries and "default_sensor" not in cost:
        sensors.append(("inputs", rest, 0.0))
    else:
        each = _cost("[cost] default_sensor", cost.get("default_sensor", 1.0))
        sensors += [(names[k], [k], each) for k in rest]
    if len({name for name, *_ in sensors}) != len(sensors):
        raise InputError(
            "two sensors have the same name; rename one (a feature that no sensor names is a sensor of its own)"
        )
    return Layout(
        name=model.get("name", source.name),
        target=model.get("target", "target"),
        unit=cost.get("unit", "unit"),
        names=names,
        classes=classes,
        features=tuple(Feature(t, source.is_nullable) for t in types),
        sensor_names=tuple(name for name, *_ in sensors),
        sensors=tuple(Sensor(tuple(features), (to_micro(price),)) for _, features, price in sensors),
        ranges=_ranges(toml.get("range", {}), place),
        target_unit=model.get("unit", ""),
        costs=Costs(per_decision=to_micro(_cost("[cost] per_decision", cost.get("per_decision", 0.0)))),
    )


# ---------------------------------------------------------------- checks


def _checked(section: Any, where: str) -> dict[str, Any]:
    _check(section, where)
    return dict(section)


def _check(section: Any, where: str) -> None:
    kinds = KEYS[where]
    check_keys(where, section, kinds)
    for key, value in section.items():
        if not isinstance(value, kinds[key]) or isinstance(value, bool):
            raise InputError(f"{where} {key} is {str(value)[:80]!r}; give {KINDS[kinds[key]]}")
        if isinstance(value, str) and not 1 <= len(value) <= MAX_NAME:
            raise InputError(f"{where} {key} has {len(value)} characters; give it 1 to {MAX_NAME}")


def _names(source: Source, toml_names: list[Any] | None, names: tuple[str, ...]) -> tuple[str, ...]:
    n = len(source.features)
    source_names = source.features if all(source.features) else ()
    chosen = (
        tuple(map(str, toml_names))
        if toml_names is not None
        else source_names or names or tuple(f"x{k}" for k in range(n))
    )
    if len(chosen) != n or len(set(chosen)) != n or not all(0 < len(name) <= MAX_NAME for name in chosen):
        raise InputError(
            f"{len(set(chosen))} different names of features are given, but the model reads {n} features; name each"
        )
    return chosen


def _classes(source: Source, toml_classes: list[Any] | None) -> tuple[Label, ...]:
    if toml_classes is None:
        return source.classes
    if len(toml_classes) != len(source.classes) or len(set(map(str, toml_classes))) != len(toml_classes):
        raise InputError(
            f"[model] classes has {len(toml_classes)} names, but the model has {len(source.classes)} classes; "
            "give each a name of its own"
        )
    if not all(type(c) in (str, int, float) for c in toml_classes):
        raise InputError("[model] classes holds something that is neither text nor a number; replace it")
    return tuple(toml_classes)


def _type(source: Source, dtype: str) -> str:
    if dtype not in READING_TYPES[source.dtype]:
        raise InputError(
            f"readings of type {dtype!r} are asked for, but the model compares in {source.dtype}; give one of "
            f"{', '.join(READING_TYPES[source.dtype])}"
        )
    return dtype


def _features(entry: dict[str, Any], place: dict[str, int]) -> list[int]:
    places: list[int] = []
    for name in entry.get("features", [entry["name"]]):
        matches = [k for n, k in place.items() if n.startswith(str(name)[:-1])] if str(name)[-1:] == "*" else []
        if str(name) in place:
            matches = [place[str(name)]]
        if not matches:
            hint = did_you_mean(name, place, f"its features are {', '.join(place)[:200]}")
            raise InputError(
                f"sensor {entry['name']!r} names {str(name)[:80]!r}, which is not a feature of the model; {hint}"
            )
        places += [k for k in matches if k not in places]
    if not places:
        raise InputError(f"the sensor {entry['name']!r} has no feature; name at least one")
    return places


def _cost(what: str, value: float) -> float:
    if not 0 <= value <= MAX_COST:
        raise InputError(f"{what} is {str(value)[:40]}; give a cost from 0 to {MAX_COST:g}")
    if value and not to_micro(value):
        raise InputError(
            f"{what} is {value:g}, which six decimals round to nothing: give all costs in a smaller unit, or 0 if it "
            "is free"
        )
    return float(value)


def _ranges(section: dict[str, Any], place: dict[str, int]) -> NDArray[np.float64]:
    """Lowest and highest reading per feature, (n_features, 2); NaN for features that the section does not name."""
    ranges = np.full((len(place), 2), np.nan)
    for name, ends in section.items():
        if name not in place:
            raise InputError(f"[range] names {name[:80]!r}, which is not a feature of the model; correct or remove it")
        is_pair = isinstance(ends, list) and len(ends) == 2 and all(type(e) in NUMBER for e in ends)
        if not is_pair or not ends[0] <= ends[1]:
            raise InputError(f"[range] {name} is {str(ends)[:80]}; write it as [lowest, highest]")
        ranges[place[name]] = ends
    return ranges
