# SPDX-License-Identifier: Apache-2.0
"""The picture of a Pareto front: quality against mean cost, on judged rows and on test rows.

Choices are made on judged rows, so only there a front is a line: the best quality that a method reaches up to a cost.
Test figures are drawn as single points; joined in the order of the choice they would be needles that mean nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hardcase_edge.base.escape import markup as safe
from hardcase_edge.more.fronts.front import staircase

from .page import STYLE, amount, dark, title

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
MARKS = (1, 2, 5)


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
    numbered: Sequence[int] = (),
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
    numbered : points whose circles have their number, by which a page's script finds them
    """
    colours = _colours(points)
    frame = _frame(points)
    out = [_head(colours), *frame.draw(f"{axis} ({unit})", quality)]
    out.append(f'<text x="{LEFT}" y="22" style="font-size:15px;font-weight:600">{safe(heading, 90)}</text>')
    out += _band(frame, points, max_loss)
    for number, (method, colour) in enumerate(colours.items()):
        own = [(k, p) for k, p in enumerate(points) if p["method"] == method]
        out.append(f'<g class="m{number}" stroke="{colour}" fill="{colour}">')
        out += _method(frame, own, method == HPC, intervals or {}, unit, numbered)
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
    from hardcase_train.methods import METHODS  # all learners, which pictures of anything else do without

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
    frame: Frame, own: Sequence[tuple[int, Point]], is_f0: bool, intervals: Mapping[int, tuple[float, float]],
    unit: str, numbered: Sequence[int],
) -> list[str]:  # fmt: skip
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
        circles = [
            _circle(frame, valid, 6 if is_f0 else 3, "", f"{words}; {valid['quality']:.4f} on judged rows"),
            _circle(frame, test, 6 if is_f0 else 3.4, "open", words),
        ]
        out += [f'<g data-point="{k}">', *circles, "</g>"] if k in numbered else circles
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


# Axes of charts in SVG: scales from values to pixels, ticks at round numbers, a grid and labels.


@dataclass(frozen=True)
class Scale:
    """Values from ``low`` to ``high``, whose transformed values lie evenly; ``ticks`` are round values between them."""

    low: float
    high: float
    transform: Callable[[float], float]
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Where a value lies, from 0 to 1; values beyond the ends lie on them."""
        low, high = self.transform(self.low), self.transform(self.high)
        return (self.transform(min(max(value, self.low), self.high)) - low) / (high - low)


def linear_scale(low: float, high: float, n_ticks: int = 6) -> Scale:
    """An even scale; its ends need not be round.

    >>> linear_scale(0.9, 1.0, 5).ticks
    (0.9, 0.92, 0.94, 0.96, 0.98, 1.0)
    """
    if not high > low:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / n_ticks
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((m * power for m in (*MARKS, 10)), key=lambda s: abs(s - rough))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Scale(low, high, float, tuple(round(k * step, 12) for k in range(first, last + 1)))


def log_scale(low: float, high: float) -> Scale:
    """A logarithmic scale of positive values, with a tick at each power of ten.

    >>> log_scale(0.02, 30).ticks
    (0.1, 1.0, 10.0)
    """
    high = max(high, low * 10)
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    return Scale(low, high, math.log10, tuple(10.0**k for k in powers))


def cost_scale(costs: Sequence[float], width: int) -> Scale:
    """A scale from 0 on that is even up to the least positive cost and logarithmic from there on.

    Parameters
    ----------
    costs : at least 0, in any order
    width : pixels, in which ticks need room

    >>> cost_scale([0, 1.2, 980], 400).ticks
    (0.0, 1.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
    """
    positive = [c for c in costs if c > 0] or [1.0]
    least, most = min(positive), max(positive) * 1.15
    scale = Scale(0.0, most, lambda c: math.log1p(c / least), ())
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [0.0]
    for value in sorted({m * 10.0**k for k in powers for m in MARKS}):
        if value <= most and (scale.place(value) - scale.place(ticks[-1])) * width > 34:
            ticks.append(value)
    return Scale(0.0, most, scale.transform, tuple(ticks))


@dataclass(frozen=True)
class Frame:
    """The rectangle of a chart in pixels, and its two scales."""

    left: float
    top: float
    width: float
    height: float
    xs: Scale
    ys: Scale

    def x(self, value: float) -> float:
        """The horizontal pixel of a value."""
        return round(self.left + self.width * self.xs.place(value), 1)

    def y(self, value: float) -> float:
        """The vertical pixel of a value."""
        return round(self.top + self.height * (1 - self.ys.place(value)), 1)

    def draw(self, x_title: str, y_title: str) -> list[str]:
        """Grid, ticks and titles."""
        right, bottom = self.left + self.width, self.top + self.height
        out = [f'<path class="grid" fill="none" d="M{self.left} {self.top}V{bottom}H{right}"/>']
        for value in self.xs.ticks:
            x = self.x(value)
            out.append(f'<path class="grid" stroke-opacity=".5" d="M{x} {self.top}V{bottom}"/>')
            out.append(f'<text class="soft" x="{x}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>')
        for value in self.ys.ticks:
            y = self.y(value)
            out.append(f'<path class="grid" stroke-opacity=".5" d="M{self.left} {y}H{right}"/>')
            out.append(f'<text class="soft" x="{self.left - 8}" y="{y + 4}" text-anchor="end">{value:g}</text>')
        middle = self.top + self.height / 2
        out.append(
            f'<text x="{self.left + self.width / 2}" y="{bottom + 36}" text-anchor="middle">{safe(x_title)}</text>'
        )
        out.append(f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{safe(y_title)}</text>')
        return out
