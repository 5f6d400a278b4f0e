# SPDX-License-Identifier: Apache-2.0
"""Reports read back: sections, rows of tables with their exact values, elements; and a table of hostile names."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

import numpy as np

HOSTILE = (
    "<script>document.title = 'owned'</script>",
    "'\"><img src=x onerror=\"document.title = 'owned'\">",
    "</title></style></svg><script>document.title = 'owned'</script>",
    "{{7*7}}${7*7}&lt;b&gt;\u202eevil",
)
VOID = {"meta", "path", "rect", "circle", "img", "br"}


@dataclass
class Row:
    """Cells of a table's row: texts, and exact values where a cell has one."""

    texts: list[str] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass
class Page:
    """``rows``: of all tables, by the heading above; ``elements``: (tag, attributes) in order."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text: str = ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page, self.open, self.heading = Page(), list[str](), ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.page.elements.append((tag, values))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "h2":
            self.heading = ""
        elif tag == "tr":
            self.page.rows.setdefault(self.heading, []).append(Row())
        elif tag in ("td", "th"):
            self._row().texts.append("")
        elif tag == "data":
            self._row().values.append(float(values["value"] or ""))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, text: str) -> None:
        if "style" in self.open:
            return
        self.page.text += text
        if self.open and self.open[-1] == "h2":
            self.heading += text
        if {"td", "th"} & set(self.open):
            self._row().texts[-1] += text

    def _row(self) -> Row:
        return self.page.rows[self.heading][-1]


def read_page(html: str) -> Page:
    """The page, every element of which must be closed in order."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open
    return reader.page


def hostile_table(n: int = 240) -> dict[str, object]:
    """Columns and classes with hostile names; the second column tells most of the class."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    features = {name.replace('"', '""'): y * k + rng.normal(size=n) for k, name in enumerate(HOSTILE[:3])}
    quoted = {f'"{name}"': np.round(values, 3) for name, values in features.items()}
    classes = [f'"{name}"'.replace('"', '""').join(['"', '"']) for name in HOSTILE[1:]]
    return {**quoted, "y": [classes[k] for k in y]}


def hostile_toml() -> str:
    """The rest of a hardcase.toml for it: a hostile unit, sensors named as their columns, a dear request."""
    unit = HOSTILE[0].replace("'", "\\u0027")
    return f'[policy]\nmethods = ["static", "cascade"]\n[cost]\nunit = "{unit}"\n[cost.uplink]\nper_request = 6\n'
