# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/maturity.md, from what methods, drivers and targets say of themselves.

python tests/house/maturity.py    writes them
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from hardcase_edge.drivers.channel import DRIVERS
from hardcase_edge.hooks import MATURITY
from hardcase_export.targets import targets
from hardcase_train.methods import METHODS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "maturity.md"
BEGIN, END = "<!-- maturity -->\n", "<!-- /maturity -->"


def said() -> dict[str, list[tuple[str, str, str]]]:
    """Name, maturity and what is known against it, of each part, by the heading of its table."""
    drivers = {name: import_module(f"hardcase_edge.drivers.{name}") for name in DRIVERS}
    return {
        "Methods": [(name, cls.method.maturity, cls.method.against) for name, cls in METHODS.items()],
        "Drivers": [(name, driver.MATURITY, driver.AGAINST) for name, driver in drivers.items()],
        "Targets": [(name, target.maturity, target.against) for name, target in targets().items()],
    }


def table(rows: Iterable[tuple[str, str, str]]) -> str:
    """Markdown: the most mature parts first."""
    order = list(MATURITY)
    lines = [f"| `{name}` | {mature} | {against} |" for name, mature, against in
             sorted(rows, key=lambda row: (order.index(row[1]), row[0]))]  # fmt: skip
    return "\n".join(["| name | maturity | known against it |", "|---|---|---|", *lines]) + "\n"


def page() -> str:
    """docs/maturity.md as it should be."""
    words = "\n".join(f"- **{word}**: {meaning}." for word, meaning in MATURITY.items())
    tables = f"{words}\n\n" + "\n".join(f"## {heading}\n\n{table(rows)}" for heading, rows in said().items())
    return re.sub(
        f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{tables}\n{END}", PAGE.read_text(encoding="utf-8"), flags=re.S
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
