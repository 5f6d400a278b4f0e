# SPDX-License-Identifier: Apache-2.0
"""The report of a simulated fleet: decisions a second by route, latencies, and what was done to it meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hardcase_edge.base.escape import markup as safe

from ...reports.front_chart import Frame, linear_scale, log_scale
from ...reports.page import STYLE, figure, render

WIDTH, HEIGHT = 880, 300
ROUTES = (("local", "var(--local)"), ("cloud", "var(--cloud)"), ("degraded", "var(--late)"))
LEAST_MS = 0.01
Second = dict[str, Any]  # n by route; p50 and p99 of those that were not local, None if there are none


def latencies(times: Iterable[tuple[int, float, float]]) -> dict[str, dict[str, float]]:
    """The median and the 99th percentile of the latencies of each route that a decision took, in milliseconds.

    >>> latencies([(0, 0.0, 1.0), (0, 0.1, 3.0), (0, 0.2, 2.0)])
    {'local': {'p50': 2.0, 'p99': 3.0}}
    """
    waits: dict[int, list[float]] = {}
    for route, _, latency_ms in times:
        waits.setdefault(route, []).append(latency_ms)
    ordered = {ROUTES[route][0]: sorted(wait) for route, wait in sorted(waits.items())}
    return {name: {f"p{q}": round(wait[q * len(wait) // 100], 4) for q in (50, 99)} for name, wait in ordered.items()}


def per_second(times: Iterable[tuple[int, float, float]], began: float, n_seconds: int) -> list[Second]:
    """What happened in each second.

    Parameters
    ----------
    times : number of the route (0 local, 1 cloud, 2 degraded), beginning and latency (ms) of each decision
    began : the first second's beginning, on the same clock
    """
    counts = [[0, 0, 0] for _ in range(n_seconds)]
    waits: list[list[float]] = [[] for _ in range(n_seconds)]
    for route, at, latency_ms in times:
        k = int(at - began)
        if 0 <= k < n_seconds:
            counts[k][route] += 1
            if route:
                waits[k].append(latency_ms)
    seconds = []
    for count, wait in zip(counts, waits, strict=True):
        wait.sort()
        p50, p99 = (wait[int(q * len(wait))] if wait else None for q in (0.5, 0.99))
        seconds.append({**{name: n for (name, _), n in zip(ROUTES, count, strict=True)}, "p50": p50, "p99": p99})
    return seconds


def fleet_page(values: Mapping[str, Any]) -> str:
    """The whole page, from the values that ``hardcase fleet simulate --json`` prints."""
    seconds: Sequence[Second] = values["seconds"]
    n = max(1, sum(values["routes"].values()))
    counted = {**values["counters"], **{f"link: {name}": n for name, n in values["link"].items()}}
    return render(
        "fleet",
        heading=f"A fleet of {values['devices']:,} devices",
        n=n,
        rate=f"{n / max(1, len(seconds)):,.0f}",
        rates=figure(_rates(seconds, values["steps"])),
        latencies=figure(_latencies(seconds, values["steps"])),
        told=[[f"{step['at_s']:.1f}", step["what"]] for step in values["steps"]],
        messages=[[name, f"{n:,}"] for name, n in sorted(counted.items())],
        **{key: values[key] for key in ("connected", "connect_s", "devices", "problems", "routes", "us_per_decision")},
    )


def _rates(seconds: Sequence[Second], steps: Sequence[Mapping[str, Any]]) -> str:
    most = max((sum(s[name] for name, _ in ROUTES) for s in seconds), default=1)
    frame = _frame(len(seconds), linear_scale(0.0, max(1.0, most * 1.1), 6))
    out = _begin("Decisions a second by route", frame, "second", "decisions a second", steps)
    bottom = [0.0] * len(seconds)
    for name, colour in ROUTES:
        top = [b + s[name] for b, s in zip(bottom, seconds, strict=True)]
        up = " ".join(f"{frame.x(k + 0.5)},{frame.y(v)}" for k, v in enumerate(top))
        down = " ".join(f"{frame.x(k + 0.5)},{frame.y(v)}" for k, v in reversed(list(enumerate(bottom))))
        out.append(f'<polygon points="{up} {down}" fill="{colour}" fill-opacity=".7"/>')
        bottom = top
    return "\n".join([*out, *_legend(ROUTES), "</svg>\n"])


def _latencies(seconds: Sequence[Second], steps: Sequence[Mapping[str, Any]]) -> str:
    most = max((s["p99"] for s in seconds if s["p99"] is not None), default=1.0)
    frame = _frame(len(seconds), log_scale(LEAST_MS * 10, max(1.0, most * 1.3)))
    lines = (("p50", "var(--cloud)"), ("p99", "var(--late)"))
    out = _begin("Latency of decisions that asked the cloud", frame, "second", "ms", steps)
    for name, colour in lines:
        points = " ".join(
            f"{frame.x(k + 0.5)},{frame.y(s[name])}" for k, s in enumerate(seconds) if s[name] is not None
        )
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
    return "\n".join([*out, *_legend(lines), "</svg>\n"])


def _frame(n_seconds: int, ys: Any) -> Frame:
    return Frame(64, 20, WIDTH - 84, HEIGHT - 96, linear_scale(0.0, float(max(1, n_seconds)), 8), ys)


def _begin(label: str, frame: Frame, x: str, y: str, steps: Sequence[Mapping[str, Any]]) -> list[str]:
    marks = [
        f'<path d="M{frame.x(step["at_s"])} {frame.top}V{frame.top + frame.height}" stroke="var(--soft)" '
        f'stroke-dasharray="3 3"><title>{safe(step["what"])}</title></path>'
        for step in steps
    ]
    return [
        f'<svg class="hc" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-label="{safe(label)}">\n<style>{STYLE}</style>',
        *frame.draw(x, y),
        *marks,
    ]


def _legend(names: Sequence[tuple[str, str]]) -> list[str]:
    y = HEIGHT - 12
    return [
        f'<circle cx="{69 + 120 * k}" cy="{y - 4}" r="5" fill="{colour}"/>'
        f'<text x="{80 + 120 * k}" y="{y}">{name}</text>'
        for k, (name, colour) in enumerate(names)
    ]
