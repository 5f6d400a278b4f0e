# SPDX-License-Identifier: Apache-2.0
"""``gate.json``: the APIs of a gate, their prices, the classes, and the bundle that it goes with. Hostile when read."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from hardcase_edge.base.files import read_bounded, write_whole
from hardcase_edge.errors import InputError

__all__ = ["BUNDLE", "FILE", "MAX_APIS", "NAME", "Api", "GateFile", "is_share", "read_gate_file", "write_gate_file"]

FILE, BUNDLE = "gate.json", "model.hcb"
FORMAT = 1
MAX_BYTES = 1024 * 1024
MAX_APIS = 50
MAX_PRICE = 1e9
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
ROUNDING = 1e-6  # beyond 0 and 1, as sums of 32-bit numbers have it


def is_share(x: float) -> bool:
    """Whether it can be a confidence: from 0 to 1, but for rounding; of NaN it is false.

    >>> is_share(1.0000001), is_share(87.0), is_share(float("nan"))
    (True, False, False)
    """
    return -ROUNDING <= x <= 1 + ROUNDING


@dataclass(frozen=True)
class Api:
    """One model or API: its name, the mean price of a call in the gate's unit, and its mean milliseconds if known."""

    name: str
    price: float
    ms: float | None = None


@dataclass(frozen=True)
class GateFile:
    """What the file says.

    bundle : the SHA-256 of ``model.hcb`` beside it
    reference : the API that audits ask; None: nobody
    agreement : share of the gate's answers with which the reference agrees at least; None: not measured
    """

    unit: str
    bundle: str
    classes: tuple[str | int, ...]
    apis: tuple[Api, ...]
    reference: str | None = None
    agreement: float | None = None


def write_gate_file(folder: Path, gate: GateFile) -> None:
    """Write ``gate.json`` whole."""
    text = json.dumps({"format": FORMAT, **asdict(gate)}, indent=1) + "\n"
    write_whole(folder / FILE, text.encode())


def read_gate_file(folder: Path) -> GateFile:
    """Read and check ``gate.json``.

    Raises
    ------
    InputError
        The file cannot be read, or something in it is not as ``write_gate_file`` writes it.
    """
    path = folder / FILE
    remedy = "make the gate again with hardcase gate"
    data = read_bounded(path, MAX_BYTES, "gate file", remedy=remedy)
    try:
        said = json.loads(data)
        _check(isinstance(said, dict), "it is no object")
        keys = {"format", "unit", "bundle", "classes", "apis"}
        audits = {"reference", "agreement"}  # which files of earlier versions do not have
        _check(keys <= said.keys() <= keys | audits, f"its keys are not {', '.join(sorted(keys))}")
        _check(said["format"] == FORMAT, f"its format is not {FORMAT}")
        _check(_is_text(said["unit"]), "unit is no text")
        bundle = said["bundle"]
        _check(isinstance(bundle, str) and bool(re.fullmatch(r"[0-9a-f]{64}", bundle)), "bundle is no SHA-256")
        classes, apis = said["classes"], said["apis"]
        _check(isinstance(classes, list) and 2 <= len(classes) <= 200, "classes are not 2 to 200")
        _check(all(_is_text(c) or type(c) is int for c in classes), "a class is neither text nor a whole number")
        _check(isinstance(apis, list) and 2 <= len(apis) <= MAX_APIS, f"apis are not 2 to {MAX_APIS}")
        made = tuple(_api(one) for one in apis)
        _check(len({api.name for api in made}) == len(made), "two apis have one name")
        reference, agreement = said.get("reference"), said.get("agreement")
        _check(reference is None or reference in [api.name for api in made], "the reference is none of the apis")
        is_share = type(agreement) is float and 0 < agreement < 1
        _check(agreement is None or is_share, "the agreement is no share")
    except (ValueError, RecursionError) as error:
        raise InputError(f"gate file {path} cannot be used: {str(error)[:120]}; {remedy}") from error
    return GateFile(said["unit"], bundle, tuple(classes), made, reference, agreement)


def _api(said: Any) -> Api:
    _check(isinstance(said, dict) and said.keys() == {"name", "price", "ms"}, "an api has not name, price and ms alone")
    name = said["name"]
    _check(isinstance(name, str) and bool(NAME.fullmatch(name)), "an api has no plain name")
    _check(_is_amount(said["price"]), f"the price of {name} is no amount")
    _check(said["ms"] is None or _is_amount(said["ms"]), f"the ms of {name} are no amount")
    return Api(**said)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 1000


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= MAX_PRICE and isfinite(value)


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)
