# SPDX-License-Identifier: Apache-2.0
"""The tables of what keys of lines and records mean, in four pages, from ``hardcase_edge.record_keys``.

python tests/house/record_tables.py    writes them
"""

from __future__ import annotations

import re
from pathlib import Path

from hardcase_edge.record_keys import AUDIT, KEYS, LINE, OF_ONE, OF_PARTS, RECORD, STORE

DOCS = Path(__file__).resolve().parents[2] / "docs"
BEGIN, END = "<!-- keys -->\n", "<!-- /keys -->"
ORIGINS = {
    "devices.md": (LINE, OF_ONE),
    "labels.md": (LINE, OF_PARTS),
    "SPEC-wire-v1.md": (RECORD, AUDIT),
    "fleet-store.md": (STORE,),
}  # whose keys a page explains


def table(name: str) -> str:
    """Markdown: a row for each key that this page explains, in the table's order."""
    origins = ORIGINS[name]
    keys = [key for key in KEYS if key.origin in origins or (key.name == "t" and LINE in origins)]
    said = [(key.of_parts or key.doc if OF_PARTS in origins else key.doc).replace(f"]({name}#", "](#") for key in keys]
    rows = [f"| `{key.name}` | {doc} |" for key, doc in zip(keys, said, strict=True)]
    return "\n".join(["| key | meaning |", "|---|---|", *rows]) + "\n"


def page(name: str) -> str:
    """A page as it should be."""
    text = (DOCS / name).read_text(encoding="utf-8")
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}{table(name)}{END}", text, count=1, flags=re.S)


if __name__ == "__main__":
    for name in ORIGINS:
        (DOCS / name).write_text(page(name), encoding="utf-8")
