# SPDX-License-Identifier: Apache-2.0
"""The report of the demonstration: one self-contained HTML file with its pictures inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..reports.class_table import class_rows
from ..reports.page import figure, render

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
    return render(
        "demo",
        heading="hardcase: easy cases on the device, hard cases to the cloud",
        head=[values["quality"] if key == QUALITY else title for key, title, _ in COLUMNS],
        rows=[[form.format(r[key]) for key, _, form in COLUMNS] for r in values["rows"]],
        by_class=class_rows(values["classes"]),
        front=figure(front_svg),
        routes=figure(routes_svg),
        **{key: values[key] for key in ("unit", "kill_test", "problems", QUALITY)},
    )
