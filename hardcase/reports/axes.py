# SPDX-License-Identifier: Apache-2.0
"""Axes of charts in SVG: scales from values to pixels, ticks at round numbers, a grid and labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .markup import safe

__all__ = ["Frame", "Scale", "cost_scale", "linear_scale", "log_scale"]

MARKS = (1, 2, 5)


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
