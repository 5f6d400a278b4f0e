# SPDX-License-Identifier: Apache-2.0
"""The picture of accuracy against the budget, a panel for items of each size and a line for each method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hardcase_edge.base.escape import markup as safe

from .front_chart import OTHER, Frame, linear_scale, log_scale
from .page import STYLE, title

WIDTH, PANEL, LEFT, TOP, BETWEEN = 880, 200, 64, 40, 64
PER_ROW = 4  # methods in a row of the legend


def budgets_svg(figures: Mapping[str, Any]) -> str:
    """The picture, an SVG document that loads nothing; ``figures``: as in budgets.json."""
    from hardcase_train.methods import METHODS  # when it is drawn: they are all learners

    accuracy, budgets = figures["accuracy"], [max(b, 1e-6) for b in figures["budgets"]]
    colours = {m: METHODS[m].method.colour if m in METHODS else OTHER for m in accuracy}
    values = [v for groups in accuracy.values() for line in groups for v in line]
    xs, ys = log_scale(min(budgets), max(budgets)), linear_scale(min(values), max(values) + 1e-9, 5)
    n, legend = len(figures["sizes"]), 24 * (1 + len(colours) // PER_ROW)
    height = TOP + n * (PANEL + BETWEEN) + legend
    out = [
        f'<svg class="hc budgets" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="Accuracy against the budget">',
        f"<style>{STYLE}</style>",
    ]
    for g, ((low, high), rows) in enumerate(zip(figures["sizes"], figures["rows"], strict=True)):
        frame = Frame(LEFT, TOP + g * (PANEL + BETWEEN), WIDTH - LEFT - 20, PANEL, xs, ys)
        sizes = f"size {low}" if low == high else f"sizes {low} to {high}"
        out.append(f'<text x="{LEFT}" y="{frame.top - 12}" style="font-weight:600">{sizes}, {rows:,} test rows</text>')
        out += frame.draw(f"budget of a decision ({figures['unit']})", "accuracy")
        for method, groups in accuracy.items():
            places = [(frame.x(b), frame.y(v)) for b, v in zip(budgets, groups[g], strict=True)]
            path = "M" + "L".join(f"{x} {y}" for x, y in places)
            line = f'<path d="{path}" fill="none" stroke="{colours[method]}" stroke-width="1.8">'
            out.append(f"{line}{title(method)}</path>")
    for k, (method, colour) in enumerate(colours.items()):
        row, column = divmod(k, PER_ROW)
        x, y = LEFT + column * 200, height - legend + 24 * row + 8
        out.append(f'<rect fill="{colour}" x="{x}" y="{y - 10}" width="12" height="12" rx="3"/>')
        out.append(f'<text x="{x + 18}" y="{y}">{safe(method, 24)}</text>')
    return "\n".join([*out, "</svg>\n"])
