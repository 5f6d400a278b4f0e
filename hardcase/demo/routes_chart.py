# SPDX-License-Identifier: Apache-2.0
"""The picture of the demonstration's kill test: the latency of every decision over time, by route."""

from __future__ import annotations

from collections.abc import Sequence

from hardcase_cloud.sim.fleet.journal import Outcome

from ..reports.front_chart import Frame, linear_scale, log_scale
from ..reports.page import STYLE

WIDTH, HEIGHT = 880, 380
LEAST_MS = 0.01
ROUTES = (("local", "var(--local)"), ("cloud", "var(--cloud)"), ("degraded", "var(--late)"))


def routes_svg(outcomes: Sequence[Outcome], outage: tuple[float, float]) -> str:
    """The picture, an SVG document; the time without a worker is grey.

    Parameters
    ----------
    outage : when the worker was killed, and when one was back, on the clock of ``Outcome.began``
    """
    start = min((o.began for o in outcomes), default=outage[0])
    last = max((o.began for o in outcomes), default=outage[1]) - start
    slowest = max((o.latency_ms for o in outcomes), default=1.0)
    frame = Frame(64, 20, WIDTH - 84, HEIGHT - 96, linear_scale(0.0, last, 8), log_scale(LEAST_MS, slowest * 1.3))
    from_x, to_x = (frame.x(t - start) for t in outage)
    out = [
        f'<svg class="hc" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-label="Latency of every decision by route">\n<style>{STYLE}</style>',
        f'<rect x="{from_x}" y="{frame.top}" width="{to_x - from_x:.1f}" height="{frame.height}" fill="var(--soft)" '
        'fill-opacity=".25"/>',
        *frame.draw("seconds", "latency (ms)"),
    ]
    x, y = frame.left, HEIGHT - 12
    for route, colour in ROUTES:
        decided = [o for o in outcomes if o.route == route]
        out.append(f'<g fill="{colour}" fill-opacity=".75">')
        out += [
            f'<circle cx="{frame.x(o.began - start)}" cy="{frame.y(max(o.latency_ms, LEAST_MS))}" r="2.4"/>'
            for o in decided
        ]
        out.append(
            f'<circle cx="{x + 5}" cy="{y - 4}" r="5"/></g><text x="{x + 16}" y="{y}">{route} ({len(decided)})</text>'
        )
        x += 150
    out.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="var(--soft)" fill-opacity=".25"/>')
    out.append(f'<text x="{x + 18}" y="{y}">no worker</text>')
    return "\n".join([*out, "</svg>\n"])
