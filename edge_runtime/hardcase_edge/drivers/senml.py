# SPDX-License-Identifier: Apache-2.0
"""Measurement lists of RFC 8428 (SenML) in JSON: a pack resolved into readings, and a decision written as a pack.

A pack is an array of records. Base fields (``bn``, ``bt``, ``bv``, ``bver``) hold for their own record and all behind
it; they are added to names, times and values, which makes each record readable alone. A pack that breaks a rule of the
RFC is refused as a whole, because a wrong base would make every reading behind it wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

from ..base.record import record
from ..errors import SensorError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:./_-]{0,254}")  # RFC 8428, section 4.5.1; the length is ours
VERSION = 10  # the highest that the RFC defines
RELATIVE_S = 2**28  # a time below this is seconds from now, not from 1970
TYPES: dict[str, type | tuple[type, ...]] = {
    "bn": str, "n": str, "bt": (int, float), "t": (int, float), "bv": (int, float), "v": (int, float),
    "vs": str, "vd": str, "vb": bool, "bs": (int, float), "s": (int, float),
    "bu": str, "u": str, "bver": int, "ut": (int, float),
}  # fmt: skip
VALUES = ("v", "vs", "vb", "vd")


@record(frozen=True, slots=True)
class Measurement:
    """One resolved record that has a value: its name, its Unix time in seconds, and a number or a text."""

    name: str
    time: float
    value: float | int | str | None  # None: data in base64, which are no reading


def resolve(text: str, now: float) -> list[Measurement]:
    """The measurements of one pack, in the order of time; of records without a value none.

    Parameters
    ----------
    text : JSON of the whole pack; the caller bounds its length
    now : Unix time in seconds, from which relative times count

    Raises
    ------
    SensorError
        The text is not a pack; ``reason`` is ``bad_row``.

    Examples
    --------
    >>> pack = '[{"bn":"roof/","bt":1.7e9,"n":"heat","v":21.5},{"n":"rain","vb":true,"t":-5}]'
    >>> [(m.name, m.time - 1.7e9, m.value) for m in resolve(pack, now=0.0)]
    [('roof/rain', -5.0, 1), ('roof/heat', 0.0, 21.5)]
    """
    try:
        pack = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise SensorError("bad_row", "a line is not JSON") from error
    if not isinstance(pack, list) or not all(isinstance(r, dict) for r in pack):
        raise SensorError("bad_row", "a pack is not an array of objects")
    measurements = []
    base: dict[str, Any] = {"bn": "", "bt": 0.0, "bv": 0, "bver": VERSION}
    for fields in pack:
        _check(fields)
        base |= {key: fields[key] for key in base if key in fields}
        if base["bver"] != pack[0].get("bver", VERSION) or not 1 <= base["bver"] <= VERSION:
            raise SensorError("bad_row", f"a pack has version {base['bver']}; 1 to {VERSION} are known")
        measurement = _measurement(fields, base, now)
        measurements += [measurement] if measurement is not None else []
    return sorted(measurements, key=lambda m: m.time)


def _measurement(fields: Mapping[str, Any], base: Mapping[str, Any], now: float) -> Measurement | None:
    value_keys = [key for key in VALUES if key in fields]
    if len(value_keys) > 1:
        raise SensorError("bad_row", f"a record has both {value_keys[0]} and {value_keys[1]}")
    if not value_keys and "bv" not in fields:
        return None  # base fields or a sum alone
    name = base["bn"] + fields.get("n", "")
    if not NAME.fullmatch(name):
        raise SensorError("bad_row", f"{name[:40]!r} is not a name of SenML")
    time = float(base["bt"]) + float(fields.get("t", 0))
    value = fields[value_keys[0]] if value_keys else 0
    if value_keys in ([], ["v"]):
        value = value + base["bv"]
    return Measurement(
        name, now + time if time < RELATIVE_S else time, None if value_keys == ["vd"] else _as_number(value)
    )


def _as_number(value: float | int | str) -> float | int | str:
    return int(value) if isinstance(value, bool) else value


def _check(fields: Mapping[str, Any]) -> None:
    """Refuse a record with a field of another type, or with an unknown field that its sender wants understood."""
    for key, value in fields.items():
        type_ = TYPES.get(key)
        if type_ is None:
            if key.endswith("_"):
                raise SensorError("bad_row", f"field {key[:40]!r} must be understood and is unknown")
        elif not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):
            raise SensorError("bad_row", f"field {key!r} has a value of another type")
        elif isinstance(value, int | float) and not (abs(value) < 1e300):  # NaN and numbers that no sum may reach
            raise SensorError("bad_row", f"field {key!r} is out of range")


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def pack_of_decision(decision: Mapping[str, Any], device: str) -> list[dict[str, Any]]:
    """A decision line as a pack: its time as ``bt``, ``hardcase/DEVICE/`` as ``bn``, and a record for each value.

    SenML has no lists, so the sensors that were bought, those that failed and the features out of range are counted.

    Examples
    --------
    >>> line = {"t": 1.7e9, "label": "ok", "confidence": None, "cost": 2.0, "sensors": ["a", "b"], "latency_ms": 8.0}
    >>> pack_of_decision(line, "pi-1")[0]
    {'bn': 'hardcase/pi-1/', 'bt': 1700000000.0, 'n': 'label', 'vs': 'ok'}
    >>> [r.get("v") for r in pack_of_decision(line, "pi-1")[1:]]
    [2.0, 2, 0.008]
    """
    pack: list[dict[str, Any]] = []
    for key, value in decision.items():
        if key == "interval" and value is not None:
            pack += [{"n": f"interval_{end}", "v": x} for end, x in zip(("low", "high"), value, strict=True)]
        elif key == "latency_ms":
            pack.append({"n": "latency", "u": "s", "v": value / 1000})
        elif key == "confidence" and value is not None:
            pack.append({"n": key, "u": "/", "v": value})
        elif isinstance(value, bool):
            pack.append({"n": key, "vb": value})
        elif isinstance(value, str):
            pack.append({"n": key, "vs": value})
        elif isinstance(value, list) and key != "interval":
            pack.append({"n": key, "v": len(value)})
        elif isinstance(value, int | float) and key != "t" and isfinite(value):
            pack.append({"n": key, "v": value})
    return [{"bn": f"hardcase/{device}/", "bt": decision["t"], **pack[0]}, *pack[1:]] if pack else pack
