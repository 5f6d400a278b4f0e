# SPDX-License-Identifier: Apache-2.0
"""TOML of users: parsed, with every whole number within 64 bits, as TOML itself asks."""

from __future__ import annotations

from typing import Any

from ..errors import InputError, one_line

__all__ = ["parse_toml"]

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
    import tomllib  # imported here: a device reads no TOML

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
