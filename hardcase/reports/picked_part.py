# SPDX-License-Identifier: Apache-2.0
"""The part of a report about the picked policy: its figures, classes, sensors, picture, and sensors that fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .class_table import classes_table
from .markup import amount, data, percent, safe
from .page import bar, card, details, figure, section, table
from .policy_picture import policy_svg

if TYPE_CHECKING:
    from hardcase_export.drafts.front import Front, Point

    from ..measuring.picked import Picked

__all__ = ["sections", "summary"]


def summary(picked: Picked, f0: Point, quality: str) -> str:
    """The figures at the head of the page, as cards."""
    m = picked.measured.figures
    unit = safe(picked.manifest.unit)
    share = f"{percent(m.cost / f0.test.cost)} of f0's {amount(f0.test.cost)}" if f0.test.cost else "f0 is free"
    sensors = sum(picked.measured.bought) / m.n
    f0_right = sum(count.right for count in picked.f0) / m.n
    cards = (
        card(f"{m.quality:.4f}", f"{safe(quality)} of the picked policy on {m.n:,} test rows; f0 has {f0_right:.4f}"),
        card(f"{amount(m.cost)} {unit}", f"mean cost of a decision, {share}"),
        card(percent(m.forward_rate), "of the cases go to f0 in the cloud"),
        card(f"{sensors:.1f} of {len(picked.manifest.sensors)}", "sensors bought for a decision, on the mean"),
    )
    return f'<div class="cards">{"".join(cards)}</div>'


def sections(picked: Picked, f0: Point, points: Front) -> list[str]:
    """The sections below the front."""
    values = picked.measured.to_json(picked.manifest)
    return [
        section("The picked policy", *_figures(picked, values, f0, points)),
        section("Classes", *_classes(picked, values)),
        section("Sensors bought", *_sensors(picked, values, points)),
        section("The policy as a flow", *_flow(picked)),
        section("If a sensor is dead", *_dead(picked, values)),
    ]


def _figures(picked: Picked, values: dict[str, Any], f0: Point, points: Front) -> list[str]:
    from hardcase_edge.batch.per_class import loss_interval

    point, n = points.points[picked.number], values["n"]
    flag, amount_wished = next((key, value) for key, value in picked.wish.items() if value is not None)
    wish = f"--{flag.replace('_', '-')} {amount_wished:g}"
    loss = (picked.worse - picked.better) / n
    low, high = loss_interval(picked.worse, picked.better, n)
    rows = [
        [safe(points.quality), data(values["quality"], f"{values['quality']:.4f}"), _interval(values["quality_95"])],
        ["loss against f0", data(loss, f"{loss:.4f}"), _interval((low, high))],
        [f"mean cost, {safe(points.unit)}", data(values["cost"], amount(values["cost"])), ""],
        [
            "forwarded",
            data(values["forward_rate"], percent(values["forward_rate"])),
            _interval(values["forward_rate_95"]),
        ],
    ]
    out = [
        f"<p><code>hardcase export build {wish} --out model.hcb</code> writes this policy: "
        f"<strong>{'f0' if point.method == 'hpc' else safe(point.method)}</strong>, "
        f"{_why(flag, amount_wished, points)}. Another wish picks another point: <code>--max-loss</code>, "
        "<code>--budget</code>, <code>--risk</code>, <code>--method</code>.</p>",
        "<p>The figures below are those of its integers, as they go to devices, on the test rows, each of which counts "
        "once: <code>hardcase evaluate model.hcb build/test.npz</code> prints the same.</p>",
        table(("figure", "on test rows", "95 %"), rows, caption=f"{n:,} test rows"),
        f'<p class="soft">f0 alone is right on {picked.worse} rows and the policy alone on {picked.better}. Intervals '
        "are Wilson's; that of the loss is Bonett and Price's, for figures of the same rows.</p>",
    ]
    if picked.passed_over:
        out.append(
            f"<p>{picked.passed_over} points fit the wish better; they were passed over, because their integers decide "
            "otherwise than their floats on too many rows.</p>"
        )
    if picked.refusal:
        out.append(f'<p class="bad">hardcase export refuses this policy: {safe(picked.refusal)}</p>')
    params = json.dumps(point.params, sort_keys=True, ensure_ascii=False, indent=1)
    out.append(details("its parameters", f"<pre><code>{safe(params, 20_000)}</code></pre>"))
    return out


def _why(flag: str, value: float, points: Front) -> str:
    if flag == "budget":
        return f"the best point on judged rows that costs at most {amount(value)} {safe(points.unit)} there"
    return f"the cheapest point at most {value:g} below f0 on judged rows, with one standard error to spare"


def _interval(pair: Any) -> str:
    return f"{pair[0]:.4f} to {pair[1]:.4f}"


# ---------------------------------------------------------------- classes, sensors


def _classes(picked: Picked, values: dict[str, Any]) -> list[str]:
    words = (
        "<p>Recall is the share of a class's rows that are answered with it; precision is the share of the answers "
        "with a class that are right.</p>"
    )
    return [words, classes_table(values["classes"], [count.recall for count in picked.f0])]


def _sensors(picked: Picked, values: dict[str, Any], points: Front) -> list[str]:
    from hardcase_edge.program.cost import Meter, to_unit

    meter, n, total = Meter(picked.program), values["n"], values["cost"] * values["n"]
    used = sorted(
        (k for k, rows in enumerate(picked.measured.bought) if rows), key=lambda k: -picked.measured.bought[k]
    )
    costs = [(safe(picked.manifest.sensors[k], 60), meter.sensor_costs[k], picked.measured.bought[k]) for k in used]
    requests = round(values["forward_rate"] * n)
    if requests:
        costs.append(("request: radio and cloud", meter.request_cost, requests))
    rows = [
        [
            name,
            amount(to_unit(cost)),
            data(count / n, percent(count / n)) + bar(count / n),
            percent(to_unit(cost) * count / total) if total else "-",
        ]
        for name, cost, count in costs
    ]
    head = ("bought", f"cost, {points.unit}", "share of rows", "share of the cost")
    unused = len(picked.manifest.sensors) - len(used)
    words = (
        f"<p>{unused} of {len(picked.manifest.sensors)} sensors are never bought on test rows.</p>" if unused else ""
    )
    return [table(head, rows) if rows else "<p>The policy buys nothing.</p>", words]


def _flow(picked: Picked) -> list[str]:
    n = picked.measured.figures.n
    svg = policy_svg(
        picked.program, picked.manifest, picked.measured.decisions, picked.rows.y.tolist(), note=f"{n:,} test rows"
    )
    return [
        "<p>From top to bottom: what is bought, what is asked, and where cases end, with the share of the rows that "
        "pass, their mean cost so far, and the error of those that end there. Arrows are as wide as their share. "
        "<code>hardcase inspect model.hcb --svg policy.svg --rows build/test.npz</code> draws it for any rows.</p>",
        figure(svg),
    ]


def _dead(picked: Picked, values: dict[str, Any]) -> list[str]:
    if not picked.dead:
        return ["<p>The policy buys no sensor, so none can fail.</p>"]
    rows = []
    for sensor, f in picked.dead.items():
        loss = values["quality"] - f.quality
        rows.append(
            [
                safe(picked.manifest.sensors[sensor], 60),
                data(f.quality, f"{f.quality:.4f}"),
                f"{loss:+.4f}",
                data(f.cost, amount(f.cost)),
                data(f.forward_rate, percent(f.forward_rate)),
            ]
        )
    head = ("dead sensor", "accuracy", "loss", f"mean cost, {picked.manifest.unit}", "forwarded")
    left = sum(1 for rows_bought in picked.measured.bought if rows_bought) - len(picked.dead)
    more = f"<p>{left} sensors that fewer rows buy were not tried, because rows are many.</p>" if left else ""
    return [
        "<p>One sensor at a time never answers, on all test rows: the policy decides without it. "
        "<code>hardcase evaluate model.hcb build/test.npz --each-dead</code> prints the same.</p>",
        table(head, rows),
        more,
    ]
