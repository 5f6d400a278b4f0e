# SPDX-License-Identifier: Apache-2.0
"""The file of a gate's server: the gate's folder and name, times, and which back end stands behind each API.

A key never stands in it, but the name of the environment variable that holds it.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hardcase_edge.base.files import read_bounded
from hardcase_edge.base.hints import check_keys
from hardcase_edge.base.toml import parse_toml
from hardcase_edge.errors import InputError

from ..gate.file import NAME

MAX_BYTES = 262_144
MAX_MS = 600_000.0
SHAPES = ("json", "kserve", "openai")
KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
SECRET = re.compile(r"[!-~]+")  # what a header may hold: the library that sends one prints what it refuses


@dataclass(frozen=True)
class BackEnd:
    """What answers for one API: its address, what it speaks, the model asked for there, and who has its key."""

    url: str
    shape: str = "json"
    model: str = ""  # of the shape openai
    prompt: str = ""  # of the shape openai: the first message; empty: asks for one of the classes
    key_env: str = ""  # the environment variable with the key, sent as Authorization: Bearer


@dataclass(frozen=True)
class Settings:
    """What the file says; ``apis`` by the names of the gate."""

    name: str
    folder: Path
    apis: Mapping[str, BackEnd]
    deadline_ms: float = 10_000.0  # of a whole request
    call_ms: float = 5_000.0  # of the calls of one step
    budget_per_hour: float | None = None  # of all requests together
    audit: float = 0.0  # share of the requests about which the gate's reference is asked, too
    drift: str = "watch"  # or "act"
    on_broken: str = "alarm"  # or "forward"
    fallback: str = ""  # the label if every API that was asked failed; empty: what the policy says


def read_settings(path: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read and check the file.

    Raises
    ------
    InputError
        It cannot be read, or a value in it cannot be used.
    """
    data = read_bounded(path, MAX_BYTES, "server file", remedy="write one as docs/gate-server.md shows")
    tree = parse_toml(str(path), data)
    apis = tree.get("apis")
    if not isinstance(apis, dict) or not all(isinstance(one, dict) for one in apis.values()):
        raise InputError(f"{path} has no tables [apis.NAME]; add one for each API of the gate")
    known = {name: _made(f"{path}: [apis.{name[:40]}]", BackEnd, one) for name, one in apis.items()}
    for name, one in known.items():
        _check_back_end(f"{path}: [apis.{name[:40]}]", one, environment)
    folder = tree.get("folder")
    if not isinstance(folder, str):
        raise InputError(f'{path} names no folder; add folder = "gate", as hardcase gate wrote it')
    made: Settings = _made(str(path), Settings, {**tree, "folder": path.parent / folder, "apis": known})
    if not NAME.fullmatch(made.name):
        raise InputError(f"{path}: the name {made.name[:40]!r} is none; use letters, digits, _ and -, at most 40")
    for key in ("deadline_ms", "call_ms"):
        if not 1 <= getattr(made, key) <= MAX_MS:
            raise InputError(f"{path}: {key} is {getattr(made, key)}; expected 1 to {MAX_MS:g}")
    return made


def _made(where: str, record: type, given: Mapping[str, Any]) -> Any:
    """A record of a table, of which every value has the type of its field."""
    own = {field.name: field for field in fields(record)}
    check_keys(where, given, own)
    for key, value in given.items():
        kind = str(own[key].type)
        if kind.startswith("float") and not (type(value) in (int, float) and abs(value) < math.inf):
            raise InputError(f"{where}: {key} is no number; correct it")
        if kind == "str" and not isinstance(value, str):
            raise InputError(f"{where}: {key} is no text; correct it")
    lacking = [name for name, field in own.items() if field.default is MISSING and name not in given]
    if lacking:
        raise InputError(f"{where} has no {lacking[0]}; add it")
    return record(**given)


def _check_back_end(where: str, one: BackEnd, environment: Mapping[str, str]) -> None:
    try:
        url = urlsplit(one.url)
        host, is_plain = url.hostname or "", url.scheme == "http"
        has_address = url.scheme in ("http", "https") and bool(host) and url.port != 0 and one.url.isprintable()
    except ValueError:
        has_address = False
    if not has_address or url.username is not None or url.fragment:
        raise InputError(f"{where}: url is no address of a back end; give http:// or https:// and no user or key in it")
    if one.shape not in SHAPES:
        raise InputError(f"{where}: shape is {one.shape[:40]!r}; expected {', '.join(SHAPES)}")
    if not one.key_env:
        return
    if not KEY.fullmatch(one.key_env) or not environment.get(one.key_env):
        what = f"the variable {one.key_env} is not set" if KEY.fullmatch(one.key_env) else "key_env names no variable"
        raise InputError(f"{where}: {what}; the file has the name of a variable that holds the key")
    if not SECRET.fullmatch(environment[one.key_env]):
        raise InputError(
            f"{where}: the key in {one.key_env} has a space, a line end or a letter beyond ASCII; correct it"
        )
    if is_plain and not _is_loopback(host):
        raise InputError(f"{where}: a key would go to {host[:80]} unencrypted; use https://")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
