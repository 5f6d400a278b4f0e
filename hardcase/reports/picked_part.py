# SPDX-License-Identifier: Apache-2.0
"""The part of a report about the picked policy: its figures, classes, sensors, picture, and sensors that fail."""

from __future__ import annotations

import json
from typing import Any

from hardcase_edge.more.fronts.pick import DEFAULT_MAX_LOSS, nearest_local
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_export.drafts.front import Front, Point

from ..measuring.picked import Picked
from ..measuring.warn import picked_warnings
from .class_table import classes_table
from .markup import amount, data, percent, safe
from .page import bar, card, details, figure, section, table
from .policy_picture import policy_svg

__all__ = ["allowed_loss", "limit_words", "sections", "summary"]


def allowed_loss(picked: Picked, points: Front) -> float | None:
    """The loss of quality against f0 that the wish allows; None if it does not look at the loss."""
    loss, has_costs = picked.wish.get("max_loss"), points.measure.kind == "errors"
    if loss is not None:
        return loss / points.measure.scale if has_costs else loss
    is_other = has_costs or bool(points.limits) or picked.wish.get("budget") is not None
    return None if is_other else DEFAULT_MAX_LOSS


def summary(picked: Picked, f0: Point, points: Front) -> str:
    """The figures at the head of the page, as cards."""
    m, unit = picked.measured.figures, safe(points.unit)
    share = f"{percent(m.cost / f0.test.cost)} of f0's {amount(f0.test.cost)}" if f0.test.cost else "f0 is free"
    sensors = sum(picked.measured.bought) / m.n
    cards = [
        card(
            f"{m.quality:.4f}",
            f"{safe(points.quality)} of the picked policy on {m.n:,} test rows; f0 has {picked.f0:.4f}",
        ),
        card(f"{amount(m.cost)} {unit}", f"mean cost of a decision, {share}"),
        *_cut_cards(picked),
        card(percent(m.forward_rate), "of the cases go to f0 in the cloud"),
        card(f"{sensors:.1f} of {len(picked.manifest.sensors)}", "sensors bought for a decision, on the mean"),
    ]
    if m.errors is not None:
        cards.insert(2, card(f"{amount(m.errors)} {unit}", "mean cost of errors, beside the cost of the decision"))
    return f'<div class="cards">{"".join(cards)}</div>'


def _cut_cards(picked: Picked) -> list[str]:
    """How much cheaper it is than f0 for every case and than every sensor, and the range if placeholders are others."""
    cuts = picked.cuts
    if cuts.cut is None:
        return []
    every = "" if cuts.cut_every is None else f"; {percent(cuts.cut_every)} less than reading every sensor"
    spans = [span for span in (cuts.if_sensors, cuts.if_request) if span is not None]
    span = ""
    if spans:
        low, high = min(low for low, _ in spans), max(high for _, high in spans)
        span = (
            f", which is {percent(low)} to {percent(high)} if the placeholder costs of hardcase init are a tenth or "
            "ten times as large"
        )
    return [card(percent(cuts.cut), f"less than f0 for every case{span}{every}")]


def sections(picked: Picked, points: Front) -> list[str]:
    """The sections below the front."""
    values = picked.measured.to_json(picked.manifest)
    return [
        section("The picked policy", *_figures(picked, values, points)),
        *([section("Classes", *_classes(picked, values))] if values["classes"] else []),
        section("Sensors bought", *_sensors(picked, values, points)),
        section("The policy as a flow", *_flow(picked)),
        section("If a sensor is dead", *_dead(picked, values)),
    ]


def _figures(picked: Picked, values: dict[str, Any], points: Front) -> list[str]:
    point, n = points.points[picked.number], values["n"]
    flags = "".join(f" --{key.replace('_', '-')} {value:g}" for key, value in picked.wish.items() if value is not None)
    wishes = ("max-loss", "budget", "hard-budget", *(("risk",) if values["classes"] else ()), "method")
    rows = [
        [safe(points.quality), data(values["quality"], f"{values['quality']:.4f}"), _interval(values["quality_95"])],
        ["loss against f0", data(picked.loss, f"{picked.loss:.4f}"), _interval(picked.loss_95)],
        [f"mean cost, {safe(points.unit)}", data(values["cost"], amount(values["cost"])), ""],
        [
            "forwarded",
            data(values["forward_rate"], percent(values["forward_rate"])),
            _interval(values["forward_rate_95"]),
        ],
    ]
    if "errors" in values:
        rows.insert(
            3, [f"mean cost of errors, {safe(points.unit)}", data(values["errors"], amount(values["errors"])), ""]
        )
    for key, name in (("rmse", "root mean square error"), ("mae", "mean absolute error")):
        if key in values:
            rows.append([f"{name} {safe(values['target_unit'])}", data(values[key], amount(values[key])), ""])
    ranking = values.get("ranking", {})
    for key, name in (("precision", "Precision"), ("average_precision", "AP")):
        if key in ranking:
            rows.append([f"{name}@{ranking['at']}", data(ranking[key], f"{ranking[key]:.4f}"), ""])
    out = [
        f"<p><code>hardcase export build{flags} --out model.hcb</code> writes this policy: "
        f"<strong>{'f0' if point.method == 'hpc' else safe(point.method)}</strong>, {_why(picked, points)}. "
        f"Another wish picks another point: {', '.join(f'<code>--{wish}</code>' for wish in wishes)}.</p>",
        "<p>The figures below are those of its integers, as they go to devices, on the test rows, each of which counts "
        "once: <code>hardcase evaluate model.hcb build/test.npz</code> prints the same.</p>",
        table(("figure", "on test rows", "95 %"), rows, caption=f"{n:,} test rows"),
        "<p class=\"soft\">Intervals of shares are Wilson's, that of a loss of accuracy is Bonett and Price's, and "
        "those of other measures are normal. Rows of one group count for as many as they are independent.</p>",
    ]
    out = [*(f'<p class="bad">{safe(warning, 400)}</p>' for warning in picked_warnings(picked)), *out]
    nearest = nearest_local(points, point)
    if nearest is not None:
        out.append(
            f"<p>It asks f0 in every case, and the device decides nothing itself. {safe(nearest.method)} does, at "
            f"{amount(nearest.cost)} {safe(points.unit)} on judged rows; it needs <code>--max-loss "
            f"{nearest.max_loss:g}</code>: its loss of {nearest.loss:.4f} there, and one standard error.</p>"
        )
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


def _why(picked: Picked, points: Front) -> str:
    budget, loss = picked.wish.get("budget"), picked.wish.get("max_loss")
    if budget is not None:
        spare = "with one standard error to spare"
        return f"the best point on judged rows that costs at most {amount(budget)} {safe(points.unit)} there, {spare}"
    if loss is None and points.measure.kind == "errors":
        return "the point of the least mean cost on judged rows, that of its errors included"
    if loss is None and points.limits:
        return f"the best point on judged rows within the limits of training: {limit_words(points)}"
    if points.measure.kind == "errors" and loss is not None:
        allowed = f"whose errors cost at most {amount(loss)} {safe(points.unit)} more than f0's"
    else:
        allowed = f"at most {allowed_loss(picked, points):g} below f0"
    return f"the cheapest point {allowed} on judged rows, with one standard error to spare"


def limit_words(points: Front) -> str:
    """The limits of training, with their units."""
    units = {"budget": f" {safe(points.unit)} a decision", "max_ms": " ms", "max_bytes": " bytes"}
    return ", ".join(f"{safe(key)} {value:,.10g}{units.get(key, '')}" for key, value in points.limits.items())


def _interval(pair: Any) -> str:
    return f"{pair[0]:.4f} to {pair[1]:.4f}"


# ---------------------------------------------------------------- classes, sensors


def _classes(picked: Picked, values: dict[str, Any]) -> list[str]:
    words = (
        "<p>Recall is the share of a class's rows that are answered with it; precision is the share of the answers "
        "with a class that are right.</p>"
    )
    return [words, classes_table(values["classes"], [count.recall for count in picked.f0_classes])]


def _sensors(picked: Picked, values: dict[str, Any], points: Front) -> list[str]:
    n, total = values["n"], values["cost"] * values["n"]
    used = sorted(
        (k for k, rows in enumerate(picked.measured.bought) if rows), key=lambda k: -picked.measured.bought[k]
    )
    sizes = [1] * n if picked.rows.sizes is None else picked.rows.sizes.tolist()
    meters = {size: Meter(picked.program, size) for size in set(sizes)}
    spent = dict.fromkeys(used, 0)
    for decision, size in zip(picked.measured.decisions, sizes, strict=True):
        for k in decision.sensors:
            spent[k] += meters[size].sensor_costs[k]
    costs = [
        (safe(picked.manifest.sensors[k], 60), spent[k] / picked.measured.bought[k], picked.measured.bought[k])
        for k in used
    ]
    requests = round(values["forward_rate"] * n)
    if requests:
        costs.append(("request: radio and cloud", Meter(picked.program).request_cost, requests))
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
        picked.program, picked.manifest, picked.measured.decisions, picked.rows.y.tolist(), note=f"{n:,} test rows",
        sizes=() if picked.rows.sizes is None else picked.rows.sizes.tolist(),
    )  # fmt: skip
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
    head = ("dead sensor", values["measure"], "loss", f"mean cost, {picked.manifest.unit}", "forwarded")
    left = sum(1 for rows_bought in picked.measured.bought if rows_bought) - len(picked.dead)
    more = f"<p>{left} sensors that fewer rows buy were not tried, because rows are many.</p>" if left else ""
    return [
        "<p>One sensor at a time never answers, on all test rows: the policy decides without it. "
        "<code>hardcase evaluate model.hcb build/test.npz --each-dead</code> prints the same.</p>",
        table(head, rows),
        more,
    ]
