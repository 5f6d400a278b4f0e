# SPDX-License-Identifier: Apache-2.0
"""The part of a report about the picked policy: its figures, classes, sensors, picture, and sensors that fail."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hardcase_edge.more.fronts.pick import DEFAULT_MAX_LOSS, nearest_local
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_export.drafts.front import Front, Point

from ..measuring.measure import some_classes
from ..measuring.picked import Picked, picked_warnings
from .page import NO_PLAYGROUND, amount, bar, cut, data, figure, percent, strip
from .policy_picture import policy_svg

__all__ = ["allowed_loss", "cards_of", "class_rows", "limit_words", "picked_values"]

Rows = list[list[str]]  # of cells
MAX_CLASSES = 24  # in a table that is not folded away
WORST = 10  # shown of more classes


def allowed_loss(picked: Picked, points: Front) -> float | None:
    """The loss of quality against f0 that the wish allows; None if it does not look at the loss."""
    loss, has_costs = picked.wish.get("max_loss"), points.measure.kind == "errors"
    if loss is not None:
        return loss / points.measure.scale if has_costs else loss
    is_other = has_costs or bool(points.limits) or picked.wish.get("budget") is not None
    return None if is_other else DEFAULT_MAX_LOSS


def cards_of(picked: Picked, f0: Point, points: Front) -> Rows:
    """The figures at the head of the page: a number and a few words each."""
    m, unit = picked.measured.figures, points.unit
    share = f"{percent(m.cost / f0.test.cost)} of f0's {amount(f0.test.cost)}" if f0.test.cost else "f0 is free"
    sensors = sum(picked.measured.bought) / m.n
    of = f"{points.quality} of the picked policy on {m.n:,} test rows; f0 has {picked.f0:.4f}"
    cards = [
        [f"{m.quality:.4f}", of],
        [f"{amount(m.cost)} {unit}", f"mean cost of a decision, {share}"],
        *_cuts(picked),
        [percent(m.forward_rate), "of the cases go to f0 in the cloud"],
        [f"{sensors:.1f} of {len(picked.manifest.sensors)}", "sensors bought for a decision, on the mean"],
    ]
    if m.errors is not None:
        cards.insert(2, [f"{amount(m.errors)} {unit}", "mean cost of errors, beside the cost of the decision"])
    return cards


def _cuts(picked: Picked) -> Rows:
    """How much cheaper it is than f0 for every case and than every sensor, and the range if placeholders are others."""
    cuts = picked.cuts
    if cuts.cut is None:
        return []
    every = cuts.cut_every
    of_every = "" if every is None else f"; {percent(abs(every))} {'more' if every < 0 else 'less'} than every sensor's"
    spans = [span for span in (cuts.if_sensors, cuts.if_request) if span is not None]
    span = ""
    if spans:
        low, high = min(low for low, _ in spans), max(high for _, high in spans)
        span = (
            f", which is {percent(low)} to {percent(high)} if the placeholder costs of hardcase init are a tenth or "
            "ten times as large"
        )
    return [[percent(cuts.cut), f"less than f0 for every case{span}{of_every}"]]


def picked_values(picked: Picked, points: Front) -> dict[str, Any]:
    """What ``picked.html.jinja`` shows beside ``picked`` and ``points``."""
    point, values = points.points[picked.number], picked.measured.to_json(picked.manifest)
    n_bought = sum(1 for rows in picked.measured.bought if rows)
    return {
        "warnings": picked_warnings(picked),
        "flags": "".join(f" --{k.replace('_', '-')} {v:g}" for k, v in picked.wish.items() if v is not None),
        "method": "f0" if point.method == "hpc" else point.method,
        "why": _why(picked, points),
        "wishes": ["max-loss", "budget", "hard-budget", *(["risk"] if values["classes"] else []), "method"],
        "figures": _figures(picked, values, points),
        "n_test": values["n"],
        "nearest": nearest_local(points, point),
        "params": json.dumps(point.params, sort_keys=True, ensure_ascii=False, indent=1),
        "by_class": class_rows(values["classes"], [count.recall for count in picked.f0_classes]),
        "bought": _bought(picked, values),
        "unused": len(picked.manifest.sensors) - n_bought,
        "flow": _flow(picked),
        "touch": NO_PLAYGROUND,
        "measure": values["measure"],
        "dead": _dead(picked, values),
        "untried": n_bought - len(picked.dead),
    }


def _figures(picked: Picked, values: dict[str, Any], points: Front) -> Rows:
    def row(name: str, key: str, text: str) -> list[str]:
        return [name, data(values[key], text), _interval(values[f"{key}_95"]) if f"{key}_95" in values else ""]

    rows = [
        row(points.quality, "quality", f"{values['quality']:.4f}"),
        ["loss against f0", data(picked.loss, f"{picked.loss:.4f}"), _interval(picked.loss_95)],
        row(f"mean cost, {points.unit}", "cost", amount(values["cost"])),
    ]
    if "errors" in values:
        rows.append(row(f"mean cost of errors, {points.unit}", "errors", amount(values["errors"])))
    rows.append(row("forwarded", "forward_rate", percent(values["forward_rate"])))
    for key, name in (("rmse", "root mean square error"), ("mae", "mean absolute error")):
        if key in values:
            rows.append(row(f"{name} {values['target_unit']}", key, amount(values[key])))
    ranking = values.get("ranking", {})
    for key, name in (("precision", "Precision"), ("average_precision", "AP")):
        if key in ranking:
            rows.append([f"{name}@{ranking['at']}", data(ranking[key], f"{ranking[key]:.4f}"), ""])
    return rows


def _why(picked: Picked, points: Front) -> str:
    budget, loss = picked.wish.get("budget"), picked.wish.get("max_loss")
    if budget is not None:
        spare = "with one standard error to spare"
        return f"the best point on judged rows that costs at most {amount(budget)} {points.unit} there, {spare}"
    if loss is None and points.measure.kind == "errors":
        return "the point of the least mean cost on judged rows, that of its errors included"
    if loss is None and points.limits:
        return f"the best point on judged rows within the limits of training: {limit_words(points)}"
    if points.measure.kind == "errors" and loss is not None:
        allowed = f"whose errors cost at most {amount(loss)} {points.unit} more than f0's"
    else:
        allowed = f"at most {allowed_loss(picked, points):g} below f0"
    return f"the cheapest point {allowed} on judged rows, with one standard error to spare"


def limit_words(points: Front) -> str:
    """The limits of training, with their units; empty without limits."""
    units = {"budget": f" {points.unit} a decision", "max_ms": " ms", "max_bytes": " bytes"}
    return ", ".join(f"{key} {value:,.10g}{units.get(key, '')}" for key, value in points.limits.items())


def _interval(pair: Any) -> str:
    return f"{pair[0]:.4f} to {pair[1]:.4f}"


def _bought(picked: Picked, values: dict[str, Any]) -> Rows:
    """What is bought on test rows, the most frequent first, and requests."""
    n, total = values["n"], values["cost"] * values["n"]
    bought = picked.measured.bought
    used = sorted((k for k, rows in enumerate(bought) if rows), key=lambda k: -bought[k])
    sizes = [1] * n if picked.rows.sizes is None else picked.rows.sizes.tolist()
    meters = {size: Meter(picked.program, size) for size in set(sizes)}
    spent = dict.fromkeys(used, 0)
    for decision, size in zip(picked.measured.decisions, sizes, strict=True):
        for k in decision.sensors:
            spent[k] += meters[size].sensor_costs[k]
    costs: list[tuple[str, float, int]] = [
        (cut(picked.manifest.sensors[k], 60), spent[k] / bought[k], bought[k]) for k in used
    ]
    if start := Meter(picked.program).start():
        costs.append(("waking up", start, n))
    requests = round(values["forward_rate"] * n)
    if requests:
        costs.append(("request: radio and cloud", Meter(picked.program).request_cost, requests))
    return [
        [
            name,
            amount(to_unit(cost)),
            data(count / n, percent(count / n)) + bar(count / n),
            percent(to_unit(cost) * count / total) if total else "-",
        ]
        for name, cost, count in costs
    ]


def _flow(picked: Picked) -> str:
    svg = policy_svg(
        picked.program, picked.manifest, picked.measured.decisions, picked.rows.y.tolist(),
        note=f"{picked.measured.figures.n:,} test rows",
        sizes=() if picked.rows.sizes is None else picked.rows.sizes.tolist(),
    )  # fmt: skip
    return figure(svg)


def _dead(picked: Picked, values: dict[str, Any]) -> Rows:
    """Figures without one sensor."""
    return [
        [
            cut(picked.manifest.sensors[sensor], 60),
            data(f.quality, f"{f.quality:.4f}"),
            f"{values['quality'] - f.quality:+.4f}",
            data(f.cost, amount(f.cost)),
            data(f.forward_rate, percent(f.forward_rate)),
        ]
        for sensor, f in picked.dead.items()
    ]


# ---------------------------------------------------------------- the table of classes in a page
# The table of classes in a page: rows, recall and precision of each class, with intervals.


def class_rows(classes: Sequence[Mapping[str, Any]], f0_recall: Sequence[float | None] = ()) -> dict[str, Any]:
    """What the macro ``classes`` of the templates shows: head, rows, and of many classes those of the least recall.

    Parameters
    ----------
    classes : a label under ``class``, and the values of ``hardcase_edge.more.batch.per_class.ClassCount.to_json``
    f0_recall : f0's recall of each class, for a column of its own
    """
    head = ["class", "rows", "recall", "(95 %)", "", "answered", "precision", "(95 %)", ""]
    if f0_recall:
        head.append("f0's recall")
        classes = [{**c, "f0": recall} for c, recall in zip(classes, f0_recall, strict=True)]
    least = some_classes(classes, WORST) if len(classes) > MAX_CLASSES else []
    return {"head": head, "rows": [_row(c) for c in classes], "least": [_row(c) for c in least]}


def _row(c: Mapping[str, Any]) -> list[str]:
    f0 = [] if "f0" not in c else ["-" if c["f0"] is None else f"{c['f0']:.4f}"]
    return [
        cut(c["class"], 60),
        data(c["n"], f"{c['n']:,}"),
        *_share(c, "recall"),
        data(c["answered"], f"{c['answered']:,}"),
        *_share(c, "precision"),
        *f0,
    ]


def _share(count: Mapping[str, Any], key: str) -> list[str]:
    value, (low, high) = count[key], count[f"{key}_95"]
    if value is None:
        return ["-", "", ""]
    return [data(value, f"{value:.4f}"), f"{low:.4f} to {high:.4f}", strip(value, low, high)]
