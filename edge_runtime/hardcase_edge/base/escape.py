# SPDX-License-Identifier: Apache-2.0
"""Text from outside on its way out: one function for each medium, and no other place escapes anything.

Names of columns, classes, sensors and units, messages of other software and a bundle's manifest may hold anything. On
a terminal they must not move its cursor, and in a page they must not be markup; nowhere may they turn the direction of
what follows them, or begin a line of their own.
"""

from __future__ import annotations

import json
from typing import Any

MAX_CHARACTERS = 400
NO_BREAK = "\xa0"  # a space that may stand anywhere
UNSEEN = "\ufffd"
STRANGE = {"Cc", "Cs", "Co", "Cn"}  # controls, surrogates, private and unassigned characters
TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
PUNCTUATION = frozenset("\\`*_{}[]#|~$@:!^=\"'+")  # what Markdown, or a site that shows it, gives a meaning


def terminal(text: object) -> str:
    """A line for a terminal or a log: whatever is not printed is a question mark, line breaks too.

    >>> terminal("class " + chr(27) + "[31mred" + chr(10))
    'class ?[31mred?'
    """
    return "".join(c if c.isprintable() or c == NO_BREAK else "?" for c in str(text))


def json_line(value: Any) -> str:
    """A value as JSON on one line, with every character in it that is not printed as an escape of JSON.

    >>> json_line({"class": "k\xfchl" + chr(0x9b) + "2J"})
    '{"class": "k\xfchl\\\\u009b2J"}'
    """
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def markdown(text: object, limit: int = MAX_CHARACTERS) -> str:
    """Text of Markdown within a line, also in a cell of a table; at most ``limit`` characters of it.

    >>> markdown("a|b<i>"), markdown("www.x.org")
    ('a\\\\|b&lt;i&gt;', 'www\\\\.x.org')
    """
    out = ""
    for c in _seen(text, limit):
        is_link = c == "." and out[-3:].lower() == "www"
        out += ENTITIES.get(c) or (f"\\{c}" if c in PUNCTUATION or is_link else c)
    return out


def markup(text: object, limit: int = MAX_CHARACTERS) -> str:
    """Text of HTML or SVG, also inside an attribute; at most ``limit`` characters of it.

    >>> markup("<script>"), markup("a" + chr(0) + "b"), markup("sensor " * 3, 10)
    ('&lt;script&gt;', 'a\ufffdb', 'sensor se\u2026')
    """
    from html import escape

    return escape(_seen(text, limit))


def _seen(text: object, limit: int) -> str:
    """The first characters, with a mark for each that cannot be shown or turns the direction of text."""
    import unicodedata  # imported here: a device shows no pages

    whole = str(text)
    cut = whole if len(whole) <= limit else whole[: limit - 1] + "\u2026"
    is_strange = (unicodedata.category(c) in STRANGE or c in TURNING or ord(c) & 0xFFFE == 0xFFFE for c in cut)
    return "".join(UNSEEN if bad else c for c, bad in zip(cut, is_strange, strict=True))
