# SPDX-License-Identifier: Apache-2.0
"""What policies of single decisions have for a report: rows by class, figures, sensors, picture, sensors that fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from markupsafe import Markup

from hardcase_edge.errors import HardcaseError
from hardcase_edge.more.batch.intervals import wilson
from hardcase_edge.more.fronts.front import HPC_METHOD
from hardcase_edge.more.fronts.pick import nearest_local
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_export.drafts.front import Front, Point
from hardcase_export.integers.point import Build
from hardcase_train.data.problem import Rows as TaskRows
from hardcase_train.tasks.task import Task

from ..measuring.measure import some_classes
from ..measuring.picked import Picked, Wish, measure_pick, picked_warnings
from .page import NO_PLAYGROUND, amount, bar, cut, data, figure, percent, strip
from .policy_picture import policy_svg
from .train_page import Interval, Told

Rows = list[list[str]]  # of cells
MAX_CLASSES = 24  # in a table that is not folded away
WORST = 10  # shown of more classes
STRONG = Markup("<strong>{}</strong>")


def told_of_cases(build: Build, task: Task, wish: Wish, warnings: Sequence[str]) -> Told:
    """The pick of an export with this wish, measured as integers, and the data; ``warnings``: what comes first."""
    points, numbered = build.front, enumerate(build.front.points)
    intervals = {k: i for k, p in numbered if (i := _test_interval(points, task, p)) is not None}
    n_test = f"{len(task.problem.test.y):,} test rows"
    told = Told(("a decision", "case"), n_test, intervals, _data(task), warnings=warnings)
    try:
        picked = measure_pick(build, wish)
    except HardcaseError as error:
        return replace(told, nothing=str(error))
    m = picked.measured.figures
    bought = f"{sum(picked.measured.bought) / m.n:.1f} of {len(picked.manifest.sensors)}"
    cards = [[bought, "sensors bought for a decision, on the mean"]]
    if m.errors is not None:
        cards.append([f"{amount(m.errors)} {points.unit}", "mean cost of errors, beside the cost of the decision"])
    f0 = next(k for k, p in enumerate(points.points) if p.method == HPC_METHOD)
    return replace(
        told,
        picked=points.points[picked.number],
        test=m,
        cuts=picked.cuts,
        f0=picked.f0,
        warnings=[*warnings, *picked_warnings(picked)],
        cards=cards,
        intervals=intervals | {f0: picked.f0_95, picked.number: picked.measured.quality_95},
        values={**told.values, **_picked_values(picked, points)},
    )


def _data(task: Task) -> dict[str, Any]:
    problem = task.problem
    named = {name: getattr(problem, name) for name in ("train", "valid", "calibration", "test")}
    parts = {name: rows for name, rows in named.items() if rows is not None}
    totals = [len(rows.y) for rows in parts.values()]
    rows = _classes_by_part(task, parts) if task.classes else _values_by_part(task, parts)
    rows.append([STRONG.format("all" if task.classes else "rows"), *map("{:,}".format, [*totals, sum(totals)])])
    if problem.test.group is not None:
        groups = [len(np.unique(part.group)) for part in parts.values() if part.group is not None]
        rows.append([STRONG.format("groups"), *map("{:,}".format, [*groups, sum(groups)])])
    return {
        "n": sum(totals),
        "of_rows": f"in {len(task.classes)} classes" if task.classes else "with a value each",
        "parts": {"head": (problem.kind.answer, *parts, "all"), "rows": rows},
    }


def _classes_by_part(task: Task, parts: Mapping[str, TaskRows]) -> list[list[str]]:
    """Rows of each class."""
    counts = [np.bincount(rows.y, minlength=task.problem.n_classes) for rows in parts.values()]
    return [
        [cut(label, 60), *(f"{c[k]:,}" for c in counts), f"{sum(c[k] for c in counts):,}"]
        for k, label in enumerate(task.classes)
    ]


def _values_by_part(task: Task, parts: Mapping[str, TaskRows]) -> list[list[str]]:
    """Lowest, mean and highest value."""
    each = [task.problem.in_unit(rows.y) for rows in parts.values()]
    columns = [*each, np.concatenate(each)]
    return [
        [word, *(amount(float(of(y))) for y in columns)]
        for word, of in (("lowest", np.min), ("mean", np.mean), ("highest", np.max))
    ]


def _test_interval(points: Front, task: Task, point: Point) -> Interval | None:
    """The 95 % interval of an accuracy on test rows, of weighted rows by their effective number (Kish).

    None for other measures and for rows in groups, whose intervals need the answers to single rows.
    """
    if points.measure.kind != "accuracy" or task.problem.test.group is not None:
        return None
    weight = task.problem.test.weight
    n = float(weight.sum() ** 2 / (weight**2).sum())
    return wilson(point.test.quality * n, n)


def _picked_values(picked: Picked, points: Front) -> dict[str, Any]:
    """What ``picked.html.jinja`` shows of single decisions alone."""
    values = picked.measured.to_json(picked.manifest)
    n_bought = sum(1 for rows in picked.measured.bought if rows)
    return {
        "figures": _figures(picked, values, points),
        "n_test": values["n"],
        "nearest": nearest_local(points, points.points[picked.number]),
        "passed_over": picked.passed_over,
        "refusal": picked.refusal,
        "by_class": class_rows(values["classes"], [count.recall for count in picked.f0_classes]),
        "bought": _bought(picked, values),
        "n_sensors": len(picked.manifest.sensors),
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
