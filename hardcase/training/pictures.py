# SPDX-License-Identifier: Apache-2.0
"""Plots of Pareto fronts and of latencies, as reproducible SVG by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardcase_cloud.fleet.threads import Outcome

__all__ = ["front_svg", "routes_svg"]


def front_svg(unit: str, points: Sequence[dict[str, Any]], title: str = "") -> bytes:
    """Accuracy over mean cost on test rows, one line per method.

    Parameters
    ----------
    points : as in front.json
    """
    import matplotlib

    from hardcase_train.methods import METHODS

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "hardcase", "font.size": 10, "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
    for method in dict.fromkeys(p["method"] for p in points):
        line = sorted((p["test"]["cost"], p["test"]["quality"]) for p in points if p["method"] == method)
        colour = METHODS[method].method.colour if method in METHODS else "#111111"
        style = "*" if method == "hpc" else "o-"
        size = 12 if method == "hpc" else 3.5
        label = "f0 for every case" if method == "hpc" else method
        axes.plot(*zip(*line, strict=True), style, label=label, color=colour, markersize=size, linewidth=1)
    axes.set_xscale("symlog", linthresh=max(1e-6, _smallest(points)))
    best = max(p["test"]["quality"] for p in points)
    axes.set_ylim(bottom=max(0.0, best - 0.25), top=min(1.0, best + 0.02))
    axes.set_xlabel(f"mean cost of a decision ({unit})")
    axes.set_ylabel("accuracy on test rows")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    return out.getvalue()


def _smallest(points: Sequence[dict[str, Any]]) -> float:
    costs = [p["test"]["cost"] for p in points if p["test"]["cost"] > 0]
    return float(min(costs, default=1.0))


def routes_svg(outcomes: Sequence[Outcome], outage: tuple[float, float]) -> str:
    """Latency of every decision over time, by route; the interval without a worker is grey."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    start = min((o.began for o in outcomes), default=outage[0])
    figure, axes = pyplot.subplots(figsize=(7.2, 3.2), layout="constrained")
    axes.axvspan(outage[0] - start, outage[1] - start, color="#dddddd", label="no worker")
    for route, colour in (("local", "#27ae60"), ("cloud", "#2471a3"), ("degraded", "#c0392b")):
        decisions = [(o.began - start, max(o.latency_ms, 0.01)) for o in outcomes if o.route == route]
        if decisions:
            x, y = zip(*decisions, strict=True)
            axes.scatter(x, y, s=8, color=colour, label=f"{route} ({len(decisions)})")
    axes.set_yscale("log")
    axes.set_xlabel("seconds")
    axes.set_ylabel("latency (ms)")
    axes.legend(loc="upper right")
    out = io.StringIO()
    figure.savefig(out, format="svg")
    pyplot.close(figure)
    return out.getvalue()
