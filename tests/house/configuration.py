# SPDX-License-Identifier: Apache-2.0
"""The table of docs/configuration.md, from what is stated of each setting.

python tests/house/configuration.py    writes it
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hardcase_train.settings.statement import REQUIRED, Statement
from hardcase_train.settings.toml import STATED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
BEGIN, END = "<!-- settings -->\n", "<!-- /settings -->"


def shown(one: Statement) -> str:
    """The default of a setting, as the page has it."""
    value: Any = one.default
    if one.absent or value is REQUIRED:
        return one.absent or "needed"
    if isinstance(value, tuple) and value:
        return ", ".join(f"`{v}`" for v in value)
    if value is None or value in ("", (), {}):
        return "none"
    return f"`{value}`" if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else f"{value:g}"


def table() -> str:
    """Markdown: a row for each key, in the order of the records."""
    lines = ["| section | key | meaning | default |", "|---|---|---|---|"]
    for section, known in STATED.items():
        place = f"`[[{section}]]`" if section == "sensor" else f"`[{section}]`"
        for key, (_, one) in known.items():
            more = f" ([more]({one.page}))" if one.page else ""
            lines.append(f"| {place} | `{key}` | {one.sentence}{more} | {shown(one)} |")
            place = ""
    return "\n".join(lines) + "\n"


def page() -> str:
    """docs/configuration.md as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{table()}\n{END}", text, flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
