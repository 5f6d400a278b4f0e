# SPDX-License-Identifier: Apache-2.0
"""The report of the demonstration: one self-contained HTML file with its plots inlined."""

from __future__ import annotations

from html import escape
from typing import Any

__all__ = ["make_html"]

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem }
th, td { text-align: right; padding: 0.3rem 0.6rem; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
tr:last-child { font-weight: 600 }
svg { max-width: 100%; height: auto }
.bad { color: #c0392b; font-weight: 600 }
"""
COLUMNS = (
    ("name", "", "{}"),
    ("policy", "policy", "{}"),
    ("accuracy", "accuracy", "{:.4f}"),
    ("cost", "mean cost", "{:.2f}"),
    ("uplink_bytes", "uplink bytes", "{:,}"),
    ("p50_ms", "p50 ms", "{:.2f}"),
    ("p99_ms", "p99 ms", "{:.2f}"),
    ("degraded", "degraded", "{}"),
    ("n", "decisions", "{:,}"),
)


def make_html(values: dict[str, Any], front_svg: str, routes_svg: str) -> str:
    """The HTML page.

    Parameters
    ----------
    values : as printed by ``hardcase demo --json``
    front_svg, routes_svg : plots as SVG documents
    """
    head = "".join(f"<th>{escape(title)}</th>" for _, title, _ in COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(form.format(r[key]))}</td>" for key, _, form in COLUMNS) + "</tr>"
        for r in values["rows"]
    )
    problems = "".join(f'<p class="bad">{escape(p)}</p>' for p in values["problems"])
    verdict = problems or "<p>Every case was decided exactly once; both routes worked before and after the kill.</p>"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>hardcase demo</title><style>{STYLE}</style></head><body>
<h1>hardcase: easy cases on the device, hard cases to the cloud</h1>
<p>Costs in {escape(values["unit"])} per decision, on test rows, which no choice has used. The row hardcase is
{escape(values["hardcase"])}.</p>
<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
{verdict}
<h2>Accuracy over cost</h2>
{_inline(front_svg)}
<h2>The worker is killed and restarted</h2>
{_inline(routes_svg)}
</body></html>
"""


def _inline(svg: str) -> str:
    """The <svg> element without the XML prologue."""
    return svg[svg.index("<svg") :]
