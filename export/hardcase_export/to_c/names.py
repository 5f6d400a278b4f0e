# SPDX-License-Identifier: Apache-2.0
"""Names and numbers in C: identifiers from any text, string literals without special characters, constants.

A user's names may hold quotes, line ends, comment marks, trigraphs and keywords. An identifier holds only ASCII
letters, digits and underscores, and begins with a fixed prefix, so it is neither a keyword nor a macro. The text itself
goes only into string literals, never into a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MAX_NAME = 40  # with its prefix below the 63 characters that every C99 compiler distinguishes
MAX_LINE = 110
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-+*/=<>()[]{},.;:!#$%&'^`|~@")


def identifiers(prefix: str, names: Sequence[str]) -> list[str]:
    """One identifier per name, all different even if case is ignored.

    >>> identifiers("x_", ["int", "a*/b", "A b", "", "9°"])
    ['x_int', 'x_a_b', 'x_A_b_2', 'x_3', 'x_9']
    """
    chosen: list[str] = []
    taken: set[str] = set()
    for k, name in enumerate(names):
        identifier = prefix + (re.sub(r"[^A-Za-z0-9]+", "_", name)[:MAX_NAME].strip("_") or str(k))
        while identifier.lower() in taken:
            identifier = f"{identifier}_{k}"
        taken.add(identifier.lower())
        chosen.append(identifier)
    return chosen


def literal(text: str) -> str:
    r"""A string literal; characters with a meaning to a compiler or an editor are written as octal digits.

    >>> print(literal('a"b\n??/é'))
    "a\042b\012\077\077/\303\251"
    """
    escaped = (c if c in PLAIN else "".join(f"\\{b:03o}" for b in c.encode("utf-8", "surrogatepass")) for c in text)
    return '"' + "".join(escaped) + '"'


def int64(value: int) -> str:
    """A constant of type int64_t.

    >>> int64(7), int64(-(2**63))
    ('INT64_C(7)', '(-INT64_C(9223372036854775807) - 1)')
    """
    return f"INT64_C({value})" if value > -(2**63) else "(-INT64_C(9223372036854775807) - 1)"


def array(items: Iterable[str]) -> str:
    """The lines between the braces of an initialiser."""
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > MAX_LINE:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join([*lines, line])
