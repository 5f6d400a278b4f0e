# SPDX-License-Identifier: Apache-2.0
"""The file of a run's settings, ``run.toml``: read, and written from them. Every key of the table is a key of it."""

from __future__ import annotations

from typing import Any

from ..base.files import read_bounded
from ..base.hints import did_you_mean
from ..base.toml import parse_toml, toml_text
from ..errors import InputError
from .config import RunConfig
from .table import DEFAULTS, SETTINGS, Setting

MAX_CONFIG_BYTES = 65_536


def read_settings(path: str) -> dict[str, Any]:
    """The keys and values of a file, as the flags would give them.

    Raises
    ------
    InputError
        The file cannot be read or is not TOML, or a key in it is unknown or has a value of another type.
    """
    data = read_bounded(path, MAX_CONFIG_BYTES, "file of settings", remedy="name a run.toml")
    settings = dict[str, Any]()
    for key, value in parse_toml(path, data).items():
        if key not in SETTINGS:
            nearest = did_you_mean(key, SETTINGS, "each key is a flag of hardcase-edge run, with _ for -")
            raise InputError(f"{path}: there is no key {key[:60]!r}; {nearest}")
        settings[key] = _checked(f"{path}: {key}", SETTINGS[key], value)
    return settings


def text_of(config: RunConfig) -> str:
    """The text of a file with the settings that are not the defaults.

    Raises
    ------
    InputError
        One is not UTF-8.
    """
    given = {key: value for key in SETTINGS if (value := getattr(config, key)) != getattr(DEFAULTS, key)}
    return toml_text({key: list(value) if isinstance(value, tuple) else value for key, value in given.items()})


def _checked(what: str, setting: Setting, value: Any) -> Any:
    """A value as the flag would give it."""
    if setting.type is bool:
        if type(value) is not bool:
            raise _wrong(what, value, "true or false")
        return value
    if setting.flag_value is not None and type(value) is bool:
        return setting.flag_value if value else None
    if setting.type is list:
        values = [value] if type(value) is str else value
        if type(values) is not list or not values or not all(type(v) is str for v in values):
            raise _wrong(what, value, "text, or a list of texts")
        return tuple(values)
    if setting.type is float:
        if type(value) not in (int, float):
            raise _wrong(what, value, "a number")
        return float(value)
    if setting.type is int:
        if type(value) is not int:
            raise _wrong(what, value, "a whole number")
        return value
    if type(value) is not str:
        raise _wrong(what, value, "text")
    if setting.words and value not in setting.words:
        raise InputError(f"{what} is {value[:40]!r}; use {' or '.join(setting.words)}")
    return value


def _wrong(what: str, value: Any, wanted: str) -> InputError:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list"}
    return InputError(f"{what} is {names.get(type(value), 'a table or a date')}; give {wanted}")
