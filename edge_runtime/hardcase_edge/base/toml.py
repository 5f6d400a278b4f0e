# SPDX-License-Identifier: Apache-2.0
"""TOML of users: parsed, with every whole number within 64 bits, as TOML itself asks; and keys and values written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import InputError, one_line

LARGEST = 2**63


def parse_toml(where: str, data: bytes) -> dict[str, Any]:
    """The tree in these bytes; ``where`` names the file in messages.

    >>> parse_toml("x.toml", b"[data]\\nseed = 1")
    {'data': {'seed': 1}}

    Raises
    ------
    InputError
        They are not TOML, or a whole number has more than 64 bits.
    """
    import tomllib  # imported here: a device without run.toml reads no TOML

    try:
        tree = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # Python refuses to read a number of more than 4,300 digits
        raise InputError(f"{where} is not TOML ({one_line(error)}); correct it") from error
    todo: list[tuple[str, Any]] = list(tree.items())
    while todo:
        key, value = todo.pop()
        if isinstance(value, int) and not -LARGEST <= value < LARGEST:
            raise InputError(f"{where}: {key[:60]!r} has a whole number of more than 64 bits; use a smaller one")
        parts = (
            value.items() if isinstance(value, dict) else [(key, v) for v in value] if isinstance(value, list) else ()
        )
        todo += parts
    return tree


def toml_text(values: Mapping[str, Any]) -> str:
    """A line for each key: texts, whole and other numbers, true and false, and lists of these.

    >>> toml_text({"sensors": ["thermal:"], "interval": 0.5, "isolate": True})
    'sensors = ["thermal:"]\\ninterval = 0.5\\nisolate = true\\n'

    Raises
    ------
    InputError
        A text is not UTF-8.
    """
    return "".join(f"{key} = {toml_value(value, key)}\n" for key, value in values.items())


def toml_value(value: Any, key: str = "a key") -> str:
    """A value as TOML has it, on one line; ``key`` names it in messages. No other function writes a text of TOML.

    JSON would not do: TOML has no halves of a character, and escapes DEL, too. What is not printed is an escape here.

    >>> print(toml_value(["k\xfchl", "a" + chr(0x202e)]))
    ["k\xfchl", "a\\U0000202e"]

    Raises
    ------
    InputError
        A text is not UTF-8.
    """
    if isinstance(value, list):
        return f"[{', '.join(toml_value(v, key) for v in value)}]"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"the value of {key} is not UTF-8; leave out what is not") from error
        text = json.dumps(value, ensure_ascii=False)
        return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
