# SPDX-License-Identifier: Apache-2.0
"""The file of a run's settings, ``run.toml``: read as defaults of the flags of ``run``, and written from them.

Every flag of ``hardcase-edge run`` is a key: the flag's name without its first dashes, and with underscores for the
others. So the parser's own actions are the one table of both. A flag on the command line overrides its key.
"""

from __future__ import annotations

import argparse
from typing import Any

from ..base.files import read_bounded
from ..base.hints import did_you_mean
from ..base.toml import parse_toml, toml_text
from ..errors import InputError

__all__ = ["MAX_CONFIG_BYTES", "RUN_TOML", "keys_of", "settings_from", "text_of", "with_settings"]

RUN_TOML = "/etc/hardcase/run.toml"  # where flashing puts it
MAX_CONFIG_BYTES = 65_536


def keys_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """The keys of the file by their names: every argument of ``run`` but ``--help`` and ``--config`` itself."""
    return {a.dest: a for a in parser._actions if a.dest not in ("help", "config")}


def with_settings(parser: argparse.ArgumentParser, path: str) -> dict[str, list[str]]:
    """Make the keys of a file the parser's defaults; returns its lists, which one on the command line replaces.

    Raises
    ------
    InputError
        The file cannot be read, or a key in it is unknown or has a value of another type.
    """
    data = read_bounded(path, MAX_CONFIG_BYTES, "file of settings", remedy="name a run.toml")
    settings, keys = settings_from(parser, data, path), keys_of(parser)
    for key, value in settings.items():
        if not isinstance(value, list):
            keys[key].default = value
    return {key: value for key, value in settings.items() if isinstance(value, list)}


def settings_from(parser: argparse.ArgumentParser, data: bytes, where: str) -> dict[str, Any]:
    """The keys and values of a file's bytes; ``where`` names the file in messages.

    Raises
    ------
    InputError
        It is not TOML, or a key in it is unknown or has a value of another type.
    """
    keys, settings = keys_of(parser), dict[str, Any]()
    for key, value in parse_toml(where, data).items():
        if key not in keys:
            nearest = did_you_mean(key, keys, "each key is a flag of hardcase-edge run, with _ for -")
            raise InputError(f"{where}: there is no key {key[:60]!r}; {nearest}")
        settings[key] = _checked(f"{where}: {key}", keys[key], value)
    return settings


def text_of(parser: argparse.ArgumentParser, args: argparse.Namespace) -> str:
    """The text of a file with the arguments of a run that are not the defaults; ``parser`` is that of all verbs.

    Raises
    ------
    InputError
        An argument is not UTF-8.
    """
    (verbs,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    keys = keys_of(verbs.choices["run"])
    return toml_text({key: getattr(args, key) for key, a in keys.items() if getattr(args, key) != a.default})


def _checked(what: str, action: argparse.Action, value: Any) -> Any:
    """A value as the parser would give it."""
    if action.nargs == 0:
        if type(value) is not bool:
            raise _wrong(what, value, "true or false")
        return value
    if action.nargs == "?" and action.const is not None and type(value) is bool:
        return action.const if value else None
    if isinstance(action, argparse._AppendAction):
        values = [value] if type(value) is str else value
        if type(values) is not list or not values or not all(type(v) is str for v in values):
            raise _wrong(what, value, "text, or a list of texts")
        return values
    if action.type is float:
        if type(value) not in (int, float):
            raise _wrong(what, value, "a number")
        return float(value)
    if action.type is int:
        if type(value) is not int:
            raise _wrong(what, value, "a whole number")
        return value
    if type(value) is not str:
        raise _wrong(what, value, "text")
    if action.choices is not None and value not in action.choices:
        raise InputError(f"{what} is {value[:40]!r}; use {' or '.join(map(str, action.choices))}")
    return value


def _wrong(what: str, value: Any, wanted: str) -> InputError:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list"}
    return InputError(f"{what} is {names.get(type(value), 'a table or a date')}; give {wanted}")
