"""Which sensors give an imported model's readings, and what they cost: a small TOML, or all from one sensor at no cost.

[model]                     # all of it optional
name = "bearing"            # what the bundle decides
target = "state"            # what it answers
features = ["rms", "peak"]  # names in the model's order, where the model has none
classes = ["calm", "worn"]  # names in the model's order, instead of its own labels
type = "f32"                # of readings: i32, f32 or f64

[cost]
unit = "mJ"
default_sensor = 1          # of a feature that no sensor names: it is a sensor of its own

[[sensor]]
name = "accelerometer"
features = ["rms", "peak"]  # "a*": all that begin so
cost = 2.5
type = "i32"                # of its readings

[range]                     # for linear models: from where to where readings go
rms = [0, 40]
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import MAX_NAME, Label
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import Feature, Sensor

from ..sources.source import Source

__all__ = ["Layout", "make_layout", "read_layout"]

MAX_BYTES = 1_000_000
MAX_COST = 1e9
NUMBER = (int, float)
KEYS: dict[str, dict[str, Any]] = {
    "the top level": {"model": dict, "cost": dict, "sensor": list, "range": dict},
    "[model]": {"name": str, "target": str, "features": list, "classes": list, "type": str},
    "[cost]": {"unit": str, "default_sensor": NUMBER},
    "[[sensor]]": {"name": str, "features": list, "cost": NUMBER, "type": str},
}
WIDER = {"f32": ("f32", "i32"), "f64": ("f64", "f32", "i32")}  # what a source that compares in this type may be given


@dataclass(frozen=True)
class Layout:
    """Names and costs of a model's readings, in its order. ``ranges``: (n_features, 2), NaN where not said."""

    name: str
    target: str
    unit: str
    names: tuple[str, ...]
    classes: tuple[Label, ...]
    features: tuple[Feature, ...]
    sensor_names: tuple[str, ...]
    sensors: tuple[Sensor, ...]
    ranges: NDArray[np.float64]


def read_layout(path: str | Path) -> dict[str, Any]:
    """The TOML at this path; ``make_layout`` checks it.

    Raises
    ------
    InputError
        It cannot be read, or is no TOML.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InputError(f"{path} is larger than {MAX_BYTES} bytes")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; name a TOML of sensors") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {error}") from error


def make_layout(source: Source, said: dict[str, Any] | None = None, names: tuple[str, ...] = ()) -> Layout:
    """The layout of a checked source's readings.

    Parameters
    ----------
    said : what ``read_layout`` gave; without it one sensor, "inputs", gives all readings at no cost
    names : of the features, in the model's order, where neither the source nor ``said`` has them

    Raises
    ------
    InputError
        A key is not known, a value is out of range, or a feature is named that the model does not read.
    """
    said = {} if said is None else said
    _check(said, "the top level")
    model, cost = (_checked(said.get(key, {}), f"[{key}]") for key in ("model", "cost"))
    names = _names(source, model.get("features"), names)
    classes = _classes(source, model.get("classes"))
    entries = [_checked(entry, "[[sensor]]") for entry in said.get("sensor", [])]
    types = [_type(source, model.get("type", source.dtype))] * len(names)
    place = {name: k for k, name in enumerate(names)}
    found: list[tuple[str, list[int], float]] = []
    taken: dict[int, str] = {}
    for entry in entries:
        if "name" not in entry or "cost" not in entry:
            raise InputError(f"the sensor {entry.get('name', '?')!r} has no {'cost' if 'name' in entry else 'name'}")
        mine = _features(entry, place)
        for f in mine:
            if f in taken:
                raise InputError(f"the feature {names[f]!r} is given by the sensors {taken[f]!r} and {entry['name']!r}")
            taken[f] = entry["name"]
            types[f] = _type(source, entry["type"]) if "type" in entry else types[f]
        found.append((entry["name"], mine, _cost(f"the cost of sensor {entry['name']!r}", entry["cost"])))
    rest = [k for k in range(len(names)) if k not in taken]
    if rest and not entries and "default_sensor" not in cost:
        found.append(("inputs", rest, 0.0))
    else:
        each = _cost("[cost] default_sensor", cost.get("default_sensor", 1.0))
        found += [(names[k], [k], each) for k in rest]
    if len({name for name, *_ in found}) != len(found):
        raise InputError("two sensors have one name; a feature that no sensor names is a sensor of its own")
    return Layout(
        name=model.get("name", source.name),
        target=model.get("target", "target"),
        unit=cost.get("unit", "unit"),
        names=names,
        classes=classes,
        features=tuple(Feature(t, source.is_nullable) for t in types),
        sensor_names=tuple(name for name, *_ in found),
        sensors=tuple(Sensor(tuple(mine), (to_micro(price),)) for _, mine, price in found),
        ranges=_ranges(said.get("range", {}), place),
    )


# ---------------------------------------------------------------- checks


def _checked(section: Any, where: str) -> dict[str, Any]:
    _check(section, where)
    return dict(section)


def _check(section: Any, where: str) -> None:
    if not isinstance(section, dict):
        raise InputError(f"{where} is not a table")
    for key, value in section.items():
        known = KEYS[where]
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise InputError(f"{where} has the unknown key {key!r}; {hint}")
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise InputError(f"{where} {key} is {str(value)[:80]!r}, which is of the wrong kind")
        if isinstance(value, str) and not 1 <= len(value) <= MAX_NAME:
            raise InputError(f"{where} {key} has {len(value)} characters, 1 to {MAX_NAME} are expected")


def _names(source: Source, said: list[Any] | None, names: tuple[str, ...]) -> tuple[str, ...]:
    n = len(source.features)
    own = source.features if all(source.features) else ()
    found = tuple(map(str, said)) if said is not None else own or names or tuple(f"x{k}" for k in range(n))
    if len(found) != n or len(set(found)) != n or not all(0 < len(name) <= MAX_NAME for name in found):
        raise InputError(f"{len(set(found))} different names of features are given, the model reads {n}")
    return found


def _classes(source: Source, said: list[Any] | None) -> tuple[Label, ...]:
    if said is None:
        return source.classes
    if len(said) != len(source.classes) or len(set(map(str, said))) != len(said):
        raise InputError(f"[model] classes has {len(said)} names, the model has {len(source.classes)} classes")
    if not all(type(c) in (str, int, float) for c in said):
        raise InputError("[model] classes holds something else than text and numbers")
    return tuple(said)


def _type(source: Source, dtype: str) -> str:
    if dtype not in WIDER[source.dtype]:
        raise InputError(
            f"readings of type {dtype!r} are asked for, the model compares in {source.dtype}; "
            f"{', '.join(WIDER[source.dtype])} can be given"
        )
    return dtype


def _features(entry: dict[str, Any], place: dict[str, int]) -> list[int]:
    out: list[int] = []
    for name in entry.get("features", [entry["name"]]):
        some = [k for n, k in place.items() if n.startswith(str(name)[:-1])] if str(name)[-1:] == "*" else []
        if str(name) in place:
            some = [place[str(name)]]
        if not some:
            near = difflib.get_close_matches(str(name), place, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"sensor {entry['name']!r} names {str(name)[:80]!r}, which the model does not read{hint}")
        out += [k for k in some if k not in out]
    if not out:
        raise InputError(f"the sensor {entry['name']!r} gives no feature")
    return out


def _cost(what: str, value: float) -> float:
    if not 0 <= value <= MAX_COST:
        raise InputError(f"{what} is {str(value)[:40]}, a cost from 0 to {MAX_COST:g} is expected")
    return float(value)


def _ranges(said: dict[str, Any], place: dict[str, int]) -> NDArray[np.float64]:
    out = np.full((len(place), 2), np.nan)
    for name, ends in said.items():
        if name not in place:
            raise InputError(f"[range] names {name[:80]!r}, which the model does not read")
        is_pair = isinstance(ends, list) and len(ends) == 2 and all(type(e) in NUMBER for e in ends)
        if not is_pair or not ends[0] <= ends[1]:
            raise InputError(f"[range] {name} is {str(ends)[:80]}, [lowest, highest] is expected")
        out[place[name]] = ends
    return out
