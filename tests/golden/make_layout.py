# SPDX-License-Identifier: Apache-2.0
"""Makes ``hc_layout.h`` and the tables of docs/SPEC-image-v1.md from ``kernel/layout.py``, the one layout of an image.

    python -m tests.golden.make_layout        writes both (make golden ONLY=layout)

A test makes them again and compares, so neither is ever older than the table.
"""

from __future__ import annotations

import re
import textwrap

from hardcase_edge.kernel.layout import CONSTANTS, KINDS, RECORDS, Kinds, Record
from hardcase_edge.kernel.sources import FOLDER
from tests.helpers.places import ROOT

HEADER_FILE = FOLDER / "hc_layout.h"
PAGE = ROOT / "docs" / "SPEC-image-v1.md"
TOP = """\
/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of an image: its kinds, and the words of its records by name (docs/SPEC-image-v1.md).
 * Made of kernel/layout.py by make golden; edit that table. */
#ifndef HARDCASE_LAYOUT_H
#define HARDCASE_LAYOUT_H

"""
WIDTH = 120
TYPES = {"B": "u8", "H": "u16", "I": "u32", "q": "i64"}


def c_header() -> str:
    """The text of ``hc_layout.h``."""
    large = [(name, value, doc.replace("`", "")) for name, value, doc in CONSTANTS if value > 0xFF]
    constants = [f"#define {name} {value:#x}u /* {doc} */\n" for name, value, doc in large]
    small = ", ".join(f"{name} = {value}" for name, value, _ in CONSTANTS if value <= 0xFF)
    enums = [*map(_kinds, KINDS), "\n", *map(_words, RECORDS)]
    return TOP + "".join([*constants, f"enum {{ {small} }};\n\n", *enums, "\n#endif\n"])


def _kinds(kinds: Kinds) -> str:
    names = [name for name, _ in kinds.members]
    if kinds.first:
        names[0] += f" = {kinds.first}"
    return _enum(kinds.name, kinds.doc, names)


def _words(record: Record) -> str:
    """The enum of a record: its fields, and how many words or bytes it has; a number stands where they do not go on."""
    names, expected = [], 0
    for field, at in record.at.items():
        name, place = f"{record.prefix}_{field.upper()}", at // record.unit
        if place != expected:
            name += f" = {record.behind.prefix}_WORDS" if record.behind and not names else f" = {place}"
        names.append(name)
        expected = place + 1
    total, last = record.n_bytes // record.unit, "BYTES" if record.unit == 1 else "WORDS"
    names.append(f"{record.prefix}_{last}" + ("" if total == expected else f" = {total}"))
    return _enum(record.name, record.doc, names)


def _enum(name: str, doc: str, names: list[str]) -> str:
    line = f"enum {name} {{ {', '.join(names)} }};"
    comment = f"/* {doc[0].upper()}{doc[1:]}. */\n"
    if len(line) <= WIDTH:
        return comment + line + "\n"
    whole = [name.replace(" ", "\N{NO-BREAK SPACE}") for name in names]  # a name stays with its number
    body = "\n".join(textwrap.wrap(", ".join(whole), WIDTH, initial_indent="    ", subsequent_indent="    "))
    body = body.replace("\N{NO-BREAK SPACE}", " ")
    return f"{comment}enum {name} {{\n{body}\n}};\n"


def page() -> str:
    """The text of the page of the image, with its tables made anew."""
    text = PAGE.read_text(encoding="utf-8")
    for table in (*KINDS, *RECORDS):
        begin, end = f"<!-- {table.name} -->\n", f"<!-- /{table.name} -->"
        rows = _kinds_table(table) if isinstance(table, Kinds) else _words_table(table)
        text, n = re.subn(f"{begin}.*?{end}", lambda _, r=begin + rows + end: r, text, flags=re.S)
        if n != 1:
            raise ValueError(f"{PAGE} has {n} places for the table {table.name}")
    return text


def _kinds_table(kinds: Kinds) -> str:
    rows = [f"| {number} | {name} | {doc} |" for number, (name, doc) in enumerate(kinds.members, kinds.first)]
    return "\n".join([f"| {kinds.name.replace('_', ' ')} | name | meaning |", "|---|---|---|", *rows, ""])


def _words_table(record: Record) -> str:
    is_bytes = record.unit == 1
    rows = []
    for (field, doc), code in zip(record.docs.items(), record.codes, strict=True):
        at = record.at[field] // record.unit
        place = f"{at}, {at + 1}" if code == "q" and not is_bytes else f"{at}"
        rows.append(f"| {place} | {field.upper()} | {TYPES[code] + ': ' if is_bytes else ''}{doc} |")
    head = f"| {'byte' if is_bytes else 'word'} | {record.prefix}_... | meaning |"
    return "\n".join([head, "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    HEADER_FILE.write_text(c_header(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
