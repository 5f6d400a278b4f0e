# SPDX-License-Identifier: Apache-2.0
"""Plain values as bytes for another process: numbers, texts, bytes, numpy's arrays; lists, tuples and dicts of them.

    length of the head (4 bytes), head (JSON), then the bytes of all arrays and byte strings, one behind the other

No value of another kind goes or comes, so unpacking runs no code; numpy is imported where an array comes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

KINDS = "biuf"  # of numpy's types: truth values, whole numbers with a sign and without, floats


def pack(value: object) -> bytes:
    """A value as bytes.

    Raises
    ------
    TypeError
        The value is, or holds, an object of another kind.

    Examples
    --------
    >>> unpack(pack({"crop": b"1234", "side": 2, "at": (0.5, None)}))
    {'crop': b'1234', 'side': 2, 'at': (0.5, None)}
    """
    parts: list[bytes] = []
    head = json.dumps(_plain(value, parts)).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, *parts])


def unpack(data: bytes | bytearray) -> Any:
    """The value; an array is a copy that may be written to. Raises ValueError or another error for other bytes."""
    end = 4 + int.from_bytes(data[:4], "little")
    at = end

    def take(length: int) -> bytes:
        nonlocal at
        at += length
        return bytes(data[at - length : at])

    return _value(json.loads(data[4:end]), take)


def _plain(value: Any, parts: list[bytes]) -> Any:
    """The value in JSON's terms; what is more than a number, a text or None is an object that names its kind."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (bytes, bytearray):
        parts.append(bytes(value))
        return {"bytes": len(value)}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_plain(v, parts) for v in value]}
    if type(value) is dict:
        return {"dict": [[_plain(k, parts), _plain(v, parts)] for k, v in value.items()]}
    if type(value).__module__ == "numpy" and getattr(value.dtype, "kind", "") in KINDS:
        parts.append(value.tobytes())
        return {"array": [value.dtype.str, list(value.shape), len(parts[-1])]}
    raise TypeError(f"a {type(value).__name__} cannot go to another process; give numbers, texts, bytes or arrays")


def _value(plain: Any, take: Callable[[int], bytes]) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "bytes":
        return take(content)
    if kind == "array":
        import numpy as np

        dtype, shape, length = content
        return np.frombuffer(take(length), dtype).reshape(shape).copy()[()]  # of no dimension: a number
    if kind == "dict":
        return {_value(k, take): _value(v, take) for k, v in content}
    values = [_value(v, take) for v in content]
    return values if kind == "list" else tuple(values)
