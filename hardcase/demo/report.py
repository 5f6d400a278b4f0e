# SPDX-License-Identifier: Apache-2.0
"""The report of the demonstration: one self-contained HTML file with its pictures inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..reports.class_table import classes_table
from ..reports.markup import safe
from ..reports.page import figure, page, section, table

__all__ = ["make_html"]

QUALITY = "quality"
COLUMNS = (
    ("name", "", "{}"),
    ("policy", "policy", "{}"),
    (QUALITY, QUALITY, "{:.4f}"),
    ("cost", "mean cost", "{:.2f}"),
    ("uplink_bytes", "uplink bytes", "{:,}"),
    ("p50_ms", "p50 ms", "{:.2f}"),
    ("p99_ms", "p99 ms", "{:.2f}"),
    ("degraded", "degraded", "{}"),
    ("n", "decisions", "{:,}"),
)


def make_html(values: Mapping[str, Any], front_svg: str, routes_svg: str) -> str:
    """The HTML page.

    Parameters
    ----------
    values : as printed by ``hardcase demo --json``
    front_svg, routes_svg : pictures as SVG documents
    """
    rows = [[safe(form.format(r[key])) for key, _, form in COLUMNS] for r in values["rows"]]
    problems = [f'<p class="bad">{safe(p)}</p>' for p in values["problems"]]
    titles = [values["quality"] if key == QUALITY else title for key, title, _ in COLUMNS]
    classes = values["classes"]
    fine = "<p>Every case was decided exactly once; both routes worked before and after the kill.</p>"
    body = [
        f"<p>Costs in {safe(values['unit'])} per decision, on test rows, which no choice has used. The last row is "
        f"what an export picks. The kill test runs {safe(values['kill_test'])}.</p>",
        table(titles, rows, words=2, best=len(rows) - 1),
        *(problems or [fine]),
        *([section("The classes of the last row", classes_table(classes))] if classes else []),
        section(f"{values['quality'][:1].upper()}{values['quality'][1:]} over cost", figure(front_svg)),
        section("The worker is killed and restarted", figure(routes_svg)),
    ]
    return page("hardcase: easy cases on the device, hard cases to the cloud", body)
