# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/maturity.md and of drivers in docs/sensors.md, from what these parts say of themselves.

python tests/house/maturity.py    writes them
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from hardcase_edge.drivers.channel import DRIVERS
from hardcase_edge.hooks import MATURITY
from hardcase_export.targets import targets
from hardcase_train.methods import METHODS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, SENSORS = DOCS / "maturity.md", DOCS / "sensors.md"


def said() -> dict[str, list[tuple[str, str, str]]]:
    """Name, maturity and what is known against it, of each part, by the heading of its table."""
    return {
        "Methods": [(name, cls.method.maturity, cls.method.against) for name, cls in METHODS.items()],
        "Drivers": [(name, driver.MATURITY, driver.AGAINST) for name, driver in drivers().items()],
        "Targets": [(name, target.maturity, target.against) for name, target in targets().items()],
    }


def drivers() -> dict[str, ModuleType]:
    """The drivers by name."""
    return {name: import_module(f"hardcase_edge.drivers.{name}") for name in DRIVERS}


def table(rows: Iterable[tuple[str, str, str]]) -> str:
    """Markdown: the most mature parts first."""
    order = list(MATURITY)
    lines = [f"| `{name}` | {mature} | {against} |" for name, mature, against in
             sorted(rows, key=lambda row: (order.index(row[1]), row[0]))]  # fmt: skip
    return "\n".join(["| name | maturity | known against it |", "|---|---|---|", *lines]) + "\n"


def page() -> str:
    """docs/maturity.md as it should be."""
    words = "\n".join(f"- **{word}**: {meaning}." for word, meaning in MATURITY.items())
    tables = (f"## {heading}\n\n{table(rows)}" for heading, rows in said().items() if heading != "Drivers")
    return put(PAGE, "maturity", f"\n{words}\n\n" + "\n".join(tables) + "\n")


def sensors() -> str:
    """docs/sensors.md as it should be."""
    rows = [f"| `{name}:` | {' | '.join(driver.SAID)} |" for name, driver in drivers().items()]
    lines = ["| source | device | channels | what it reads |", "|---|---|---|---|", *rows, "", table(said()["Drivers"])]
    return put(SENSORS, "drivers", "\n".join(lines))


def put(path: Path, name: str, text: str) -> str:
    """A page with this text in its place of that name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    return re.sub(f"{begin}.*{end}", lambda _: begin + text + end, path.read_text(encoding="utf-8"), flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    SENSORS.write_text(sensors(), encoding="utf-8")
