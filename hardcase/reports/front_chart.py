# SPDX-License-Identifier: Apache-2.0
"""The picture of a Pareto front: quality against mean cost, on judged rows and on test rows.

Choices are made on judged rows, so only there a front is a line: the best quality that a method reaches up to a cost.
Test figures are drawn as single points; joined in the order of the choice they would be needles that mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hardcase_edge.more.fronts.front import staircase
from hardcase_train.methods import METHODS

from .axes import Frame, cost_scale, linear_scale
from .markup import STYLE, amount, dark, safe, title

__all__ = ["front_svg"]

Z = 1.96  # standard errors on each side of a 95 % interval
WIDTH = 880
LEFT, TOP, PLOT_HEIGHT = 64, 46, 352
PER_ROW = 6  # methods in a row of the legend
DEPTH = 0.12  # of quality below the best that is shown
HPC = "hpc"
OTHERS = {HPC: "#222222", "own": "#00838f", "structured": "#6a1b9a", "gap": "#ef6c00"}  # not in the registry
OTHER = "#5d6d7e"  # colour of a method that has none of its own
LEGEND_COLUMN = 138
Point = Mapping[str, Any]


def front_svg(
    unit: str,
    points: Sequence[Point],
    heading: str = "",
    *,
    picked: int | None = None,
    max_loss: float | None = None,
    quality: str = "accuracy",
    intervals: Mapping[int, tuple[float, float]] | None = None,
    axis: str = "mean cost of a decision",
) -> str:
    """The picture, an SVG document that loads nothing; the same points give the same bytes.

    Parameters
    ----------
    points : as in front.json
    picked : number of the point to mark
    max_loss : loss of quality against f0 that the pick allows; drawn as a band
    quality : name of the measure
    intervals : 95 % intervals of points' quality on test rows, by number
    axis : what the costs are
    """
    colours = _colours(points)
    frame = _frame(points)
    out = [_head(colours), *frame.draw(f"{axis} ({unit})", quality)]
    out.append(f'<text x="{LEFT}" y="22" style="font-size:15px;font-weight:600">{safe(heading, 90)}</text>')
    out += _band(frame, points, max_loss)
    for number, (method, colour) in enumerate(colours.items()):
        own = [(k, p) for k, p in enumerate(points) if p["method"] == method]
        out.append(f'<g class="m{number}" stroke="{colour}" fill="{colour}">')
        out += _method(frame, own, method == HPC, intervals or {}, unit)
        out.append("</g>")
    if picked is not None:
        out += _mark(frame, points[picked], unit)
    out += _legend(colours, picked is not None, bool(intervals))
    hidden = sum(p[rows]["quality"] < frame.ys.low for p in points for rows in ("valid", "test"))
    if hidden:
        note = f"{hidden} figures below {frame.ys.low:.2f} lie on the lower edge"
        out.append(f'<text class="soft" x="{WIDTH - 20}" y="22" text-anchor="end">{note}</text>')
    return "\n".join([*out, "</svg>\n"])


def _colours(points: Sequence[Point]) -> dict[str, str]:
    """The colour of each method, in the order of the points."""
    colour_of = {name: METHODS[name].method.colour for name in METHODS} | OTHERS
    methods = dict.fromkeys(str(p["method"]) for p in points)
    colours = {m: colour_of.get(m, OTHER) for m in methods}
    return {m: c if re.fullmatch("#[0-9a-fA-F]{6}", c) else OTHER for m, c in colours.items()}


def _head(colours: Mapping[str, str]) -> str:
    rules = "".join(
        f"svg.front .m{k} {{ stroke: {dark(c)}; fill: {dark(c)} }} " for k, c in enumerate(colours.values())
    )
    label = "Quality against mean cost of all policies"
    height = TOP + PLOT_HEIGHT + 88 + 20 * _n_rows(colours)
    return (
        f'<svg class="hc front" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{label}">\n'
        f"<style>{STYLE}svg.front .open {{ fill: var(--paper) }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ {rules}}}</style>"
    )


def _frame(points: Sequence[Point]) -> Frame:
    figures = [p[rows] for p in points for rows in ("valid", "test")]
    best = max(f["quality"] for f in figures)
    low = max(min(f["quality"] for f in figures) - 0.01, best - DEPTH)
    width = WIDTH - LEFT - 20
    costs = cost_scale([f["cost"] for f in figures], width)
    return Frame(LEFT, TOP, width, PLOT_HEIGHT, costs, linear_scale(low, min(1.0, best + 0.01) + 1e-9, 7))


def _band(frame: Frame, points: Sequence[Point], max_loss: float | None) -> list[str]:
    """f0's quality on judged rows, and the loss that is allowed below it."""
    f0 = next((p for p in points if p["method"] == HPC), None)
    if f0 is None:
        return []
    y = frame.y(f0["valid"]["quality"])
    right = frame.left + frame.width
    out = [f'<path d="M{frame.left} {y}H{right}" stroke="var(--soft)" stroke-dasharray="5 4"/>']
    if max_loss is not None:
        below = frame.y(f0["valid"]["quality"] - max_loss)
        out.append(
            f'<rect x="{frame.left}" y="{y}" width="{frame.width}" height="{round(below - y, 1)}" fill="var(--soft)" '
            f'fill-opacity=".12">{title(f"at most {max_loss:g} below f0 on judged rows")}</rect>'
        )
    return out


def _method(
    frame: Frame, own: Sequence[tuple[int, Point]], is_f0: bool, intervals: Mapping[int, tuple[float, float]], unit: str
) -> list[str]:
    """One method: its front on judged rows as steps, its points on judged rows, its points on test rows."""
    judged = [(p["valid"]["cost"], p["valid"]["quality"]) for _, p in own]
    steps = [judged[k] for k in staircase(judged)]
    out = []
    if not is_f0 and len(steps) > 1:
        (x, y), *rest = [(frame.x(c), frame.y(q)) for c, q in steps]
        path = f"M{x} {y}" + "".join(f"H{x}V{y}" for x, y in rest)
        out.append(f'<path d="{path}" fill="none" stroke-width="1.6" stroke-opacity=".85"/>')
    for k, p in own:
        valid, test = p["valid"], p["test"]
        if (valid["cost"], valid["quality"]) in steps and valid.get("loss_se"):
            half = Z * valid["loss_se"]
            out.append(_whisker(frame, valid["cost"], valid["quality"] - half, valid["quality"] + half, ".35"))
        if k in intervals:
            out.append(_whisker(frame, test["cost"], *intervals[k], ".6"))
        words = f"{'f0' if is_f0 else p['method']}: {amount(test['cost'])} {unit}, {test['quality']:.4f} on test rows"
        out.append(_circle(frame, valid, 6 if is_f0 else 3, "", f"{words}; {valid['quality']:.4f} on judged rows"))
        out.append(_circle(frame, test, 6 if is_f0 else 3.4, "open", words))
    return out


def _whisker(frame: Frame, cost: float, low: float, high: float, opacity: str) -> str:
    x = frame.x(cost)
    return f'<path d="M{x} {frame.y(low)}V{frame.y(high)}" stroke-width="1.2" stroke-opacity="{opacity}"/>'


def _circle(frame: Frame, f: Mapping[str, float], radius: float, kind: str, words: str) -> str:
    place = f'cx="{frame.x(f["cost"])}" cy="{frame.y(f["quality"])}" r="{radius}"'
    look = 'class="open" stroke-width="1.4"' if kind else 'stroke="none"'
    return f"<circle {place} {look}>{title(words)}</circle>"


def _mark(frame: Frame, point: Point, unit: str) -> list[str]:
    """A ring around the picked point, and a line to its figures on test rows."""
    (x, y), (tx, ty) = ((frame.x(point[r]["cost"]), frame.y(point[r]["quality"])) for r in ("valid", "test"))
    words = f"picked: {point['method']}, {point['valid']['quality']:.4f} at {amount(point['valid']['cost'])} {unit}"
    is_left = x < frame.left + frame.width / 2
    end, shift = ("start", 34) if is_left else ("end", -34)
    below = min(y + 78, frame.top + frame.height - 12)  # there is room below the front, never above it
    return [
        '<g stroke="var(--accent)" fill="none" stroke-width="2">',
        f'<path d="M{x} {y}L{tx} {ty}" stroke-dasharray="2 3" stroke-width="1.4"/>',
        f'<path d="M{x} {y + 9}L{x + shift * 0.9:.1f} {below - 12:.1f}" stroke-width="1"/>',
        f'<circle cx="{x}" cy="{y}" r="9"/><circle cx="{tx}" cy="{ty}" r="6" stroke-width="1.4"/></g>',
        f'<text x="{x + shift}" y="{below:.1f}" text-anchor="{end}" style="fill:var(--accent);font-weight:600;'
        f'paint-order:stroke;stroke:var(--paper);stroke-width:4px">{safe(words, 80)}</text>',
    ]


def _n_rows(colours: Mapping[str, str]) -> int:
    return -(-len(colours) // PER_ROW)


def _legend(colours: Mapping[str, str], is_marked: bool, has_intervals: bool) -> list[str]:
    y = TOP + PLOT_HEIGHT + 62
    out = []
    for k, (method, colour) in enumerate(colours.items()):
        row, column = divmod(k, PER_ROW)
        x = LEFT + column * LEGEND_COLUMN
        name = "f0 for every case" if method == HPC else method
        out.append(
            f'<rect class="m{k}" fill="{colour}" stroke="none" x="{x}" y="{y + 20 * row - 9}" width="12" height="12" '
            'rx="3"/>'
            f'<text x="{x + 18}" y="{y + 20 * row + 1}">{safe(name, 18)}</text>'
        )
    y += 20 * _n_rows(colours) + 6
    kinds = [
        ('<path d="M{0} {1}h7v-6h7" fill="none" stroke="var(--ink)" stroke-width="1.6"/>', "front on judged rows", 164),
        ('<circle cx="{0}" cy="{1}" r="3" fill="var(--ink)"/>', "judged rows, by which choices are made", 286),
        ('<circle class="open" cx="{0}" cy="{1}" r="3.4" stroke="var(--ink)" stroke-width="1.4"/>', "test rows", 96),
        ('<path d="M{0} {1}v-9" stroke="var(--ink)" stroke-opacity=".6"/>', "95 % intervals", 124),
    ]
    if is_marked:
        kinds.append(
            ('<circle cx="{0}" cy="{1}" r="6" fill="none" stroke="var(--accent)" stroke-width="2"/>', "picked", 60)
        )
    x = LEFT
    for shape, words, width in kinds:
        if words.startswith("95") and not has_intervals:
            continue
        out.append(shape.format(x + 4, y - 3) + f'<text class="soft" x="{x + 22}" y="{y + 1}">{words}</text>')
        x += width + 8
    return out
