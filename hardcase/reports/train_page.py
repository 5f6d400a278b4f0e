# SPDX-License-Identifier: Apache-2.0
"""``report.html`` of a build: what was asked, the data, f0, the front, and the policy that an export would pick.

Figures of the front are those of ``front.json``, of drafts in floats. Figures of the picked policy are those of its
integers on test rows, and equal ``hardcase evaluate``'s; ``picked`` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from hardcase_edge.errors import HardcaseError
from hardcase_edge.more.batch.intervals import wilson
from hardcase_edge.more.fronts.front import staircase
from hardcase_export.drafts.costs import costs_of
from hardcase_export.drafts.front import Front, Point
from hardcase_export.integers.point import Build
from hardcase_export.picking.pick import mixes_halfway
from hardcase_train.data.problem import Rows
from hardcase_train.tasks.task import Task, cost_origins

from ..measuring.measure import seen_rows_lines
from ..measuring.picked import Picked, Wish, measure_pick
from . import picked_part as part
from .front_chart import front_svg
from .page import amount, cut, data, figure, percent, render

__all__ = ["asked_values", "mix_table", "over_seeds", "train_report"]

Mixes = tuple[Sequence[str], Sequence[Sequence[str]]]  # head and rows of a table
NEAR = 6  # points on each side of the picked one in the table of the front
HPC = "hpc"
STRONG = Markup("<strong>{}</strong>")


def train_report(
    build: Build, task: Task, front: Mapping[str, Any], mixes: Mixes, *, command: str = "", wish: Wish | None = None
) -> tuple[str, str, Picked | None]:
    """The page, the picture of the front with the picked point marked, and that point, None if there is none.

    Parameters
    ----------
    build : complete but for this page and picture
    front : the contents of front.json
    mixes : as ``mix_table`` gives them
    command : the command line that asked for the build, without its folders
    wish : which point to pick; None: the one that ``hardcase export`` picks without a wish
    """
    points = build.front
    picked: Picked | str
    try:
        picked = measure_pick(build, wish or {})
    except HardcaseError as error:
        picked = str(error)
    svg = _picture(task, points, front["points"], picked)
    f0 = next(p for p in points.points if p.method == HPC)
    found = picked if isinstance(picked, Picked) else None
    html = render(
        "train",
        heading=f"{task.config.file.name}: {task.config.target}",
        command=command,
        task=task,
        points=points,
        picture=figure(svg),
        limits=part.limit_words(points),
        mixes=dict(zip(("head", "rows"), mixes, strict=True)),
        **asked_values(task, task.problem.quality.name),
        **_data(task),
        **_f0(task, front, points, picked),
        **_front(task, points, picked, front["points"]),
        **over_seeds(front),
        picked=found,
        nothing=picked,
        **({"cards": part.cards_of(found, f0, points), **part.picked_values(found, points)} if found else {}),
    )
    return html, svg, found


def _picture(task: Task, points: Front, entries: Sequence[Mapping[str, Any]], picked: Picked | str) -> str:
    f0 = next(k for k, p in enumerate(points.points) if p.method == HPC)
    intervals = {f0: _test_interval(task, points, points.points[f0])}
    if isinstance(picked, Picked):
        intervals |= {f0: picked.f0_95, picked.number: picked.measured.quality_95}
    return front_svg(
        points.unit,
        entries,
        f"{task.config.file.name}: {task.config.target}",
        picked=picked.number if isinstance(picked, Picked) else None,
        max_loss=part.allowed_loss(picked, points) if isinstance(picked, Picked) else None,
        quality=points.quality,
        intervals={k: interval for k, interval in intervals.items() if interval is not None},
    )


def _test_interval(task: Task, points: Front, point: Point) -> tuple[float, float] | None:
    """The 95 % interval of an accuracy on test rows, of weighted rows by their effective number (Kish).

    None for other measures and for rows in groups, whose intervals need the answers to single rows.
    """
    if points.measure.kind != "accuracy" or task.problem.test.group is not None:
        return None
    weight = task.problem.test.weight
    n = float(weight.sum() ** 2 / (weight**2).sum())
    return wilson(point.test.quality * n, n)


def _with_interval(quality: float, interval: tuple[float, float] | None) -> str:
    return data(quality, f"{quality:.4f}") + (f" ({interval[0]:.4f} to {interval[1]:.4f})" if interval else "")


# ---------------------------------------------------------------- what was asked, and the data


def asked_values(task: Task, quality: str) -> dict[str, Any]:
    """What was asked for, of every kind of policy; ``quality``: the name of what is measured."""
    config = task.config
    unit = f" in {config.target_unit}" if config.target_unit else ""
    rows = [
        ("table", config.file.name),
        ("target", f"{config.target}{config.kind.shown}{unit}"),
        ("split, seed", f"{config.split}, {config.seed}"),
        *([("group", config.group)] if config.group is not None else []),
        *([("weight", config.weight)] if config.weight is not None else []),
        ("quality", _quality(task, quality)),
        ("f0", _f0_words(task)),
        *([("model of your own", config.own_model.name)] if config.own_model is not None else []),
        ("methods", ", ".join(config.methods)),
        ("effort, size of models", f"{config.effort}, {config.size}"),
        ("cost of a request", _request(task)),
        *([("cost of waking up", _start(task))] if config.per_decision else []),
    ]
    origins = costs_of(cost_origins(config, task.sensors), "the configuration")
    costs = task.problem.sensor_costs().tolist()
    return {
        "asked": rows,
        "sensors": [
            [name, len(s.features), amount(cost), origins.of_sensor(name)]
            for name, s, cost in zip(task.sensors, task.problem.sensors, costs, strict=True)
        ],
        "sensor_cost": f"{'cost' if config.item_size is None else 'mean cost'}, {config.unit}",
    }


def _f0_words(task: Task) -> str:
    config = task.config
    if config.legacy is not None:
        return f"{config.legacy_name}, a legacy system, by the table {config.legacy.name}"
    if config.model is not None:
        return f"{config.model.name}, a fitted model"
    params = ", ".join(f"{k} = {v}" for k, v in sorted(config.params.items()))
    return config.hpc_name + (f" ({params})" if params else "")


def _quality(task: Task, name: str) -> str:
    """The measure, and what errors cost."""
    quality = task.problem.quality
    if quality.kind != "errors":
        return name
    costs = [c for row in quality.costs for c in row if c]
    words = f"costs of errors from {amount(min(costs))} to {amount(max(costs))} {task.config.unit}"
    return (
        f"{words}; quality is 1 less their mean as a share of {amount(quality.scale)}, that of the best constant answer"
    )


def _request(task: Task) -> str:
    config, uplink = task.config, task.problem.uplink
    return (
        f"{amount(config.per_request)} + {amount(config.per_byte)} for each of {uplink.request_bytes:,} bytes "
        f"+ {amount(config.cloud_per_request)} in the cloud, {config.unit} ({config.uplink_origin}, and of the "
        f"cloud {config.cloud_origin})"
    )


def _start(task: Task) -> str:
    config = task.config
    return f"{amount(config.per_decision)} {config.unit} for each decision ({config.decision_origin})"


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


def _classes_by_part(task: Task, parts: Mapping[str, Rows]) -> list[list[str]]:
    """Rows of each class."""
    counts = [np.bincount(rows.y, minlength=task.problem.n_classes) for rows in parts.values()]
    return [
        [cut(label, 60), *(f"{c[k]:,}" for c in counts), f"{sum(c[k] for c in counts):,}"]
        for k, label in enumerate(task.classes)
    ]


def _values_by_part(task: Task, parts: Mapping[str, Rows]) -> list[list[str]]:
    """Lowest, mean and highest value."""
    each = [task.problem.in_unit(rows.y) for rows in parts.values()]
    columns = [*each, np.concatenate(each)]
    return [
        [word, *(amount(float(of(y))) for y in columns)]
        for word, of in (("lowest", np.min), ("mean", np.mean), ("highest", np.max))
    ]


# ---------------------------------------------------------------- f0 and the front


def _f0(task: Task, front: Mapping[str, Any], points: Front, picked: Picked | str) -> dict[str, Any]:
    f0 = next(p for p in points.points if p.method == HPC)
    interval = picked.f0_95 if isinstance(picked, Picked) else _test_interval(task, points, f0)
    return {
        "f0_words": _f0_words(task),
        "seen_rows": seen_rows_lines(front["hpc"]),
        "f0_rows": [
            ["judged rows", data(f0.valid.quality, f"{f0.valid.quality:.4f}"), amount(f0.valid.cost)],
            ["test rows", _with_interval(f0.test.quality, interval), amount(f0.test.cost)],
        ],
        "used_cost": next(p for p in front["points"] if p["method"] == HPC)["test"].get("used_cost"),
    }


def _front(task: Task, points: Front, picked: Picked | str, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    marked = picked.number if isinstance(picked, Picked) else None
    best = staircase([(p.valid.cost, p.valid.quality) for p in points.points])
    numbers = sorted({*best, *([] if marked is None else [marked])}, key=lambda k: points.points[k].valid.cost)
    at = 0 if marked is None else numbers.index(marked)
    near = numbers[max(0, at - NEAR) : at + NEAR + 1] if len(numbers) > 2 * NEAR + 1 else numbers
    return {
        "hard_budgets": _hard_budgets(task, points, entries),
        "front_head": (
            "policy", f"{points.quality}, judged (± 95 %)", f"cost, judged (± 95 %, {points.unit})", "worst cost",
            f"{points.quality}, test (95 %)", "cost, test", "forwarded",
        ),
        "near": _points_table(task, points, near, marked, _caption(len(near), len(numbers))),
        "every": _points_table(task, points, range(len(points.points)), marked, "in the order of front.json"),
    }  # fmt: skip


def _hard_budgets(task: Task, points: Front, entries: Sequence[Mapping[str, Any]]) -> str:
    """The points at the most that a decision costs; empty for an older build, which does not say."""
    known = [p for p in entries if p.get("worst_cost") is not None]
    if not known:
        return ""
    at_worst = [{**p, **{rows: {**p[rows], "cost": p["worst_cost"]} for rows in ("valid", "test")}} for p in known]
    svg = front_svg(
        points.unit, at_worst, f"{task.config.file.name}: hard budgets", quality=points.quality,
        axis="the most that a decision costs, as proved",
    )  # fmt: skip
    return figure(svg)


def mix_table(build: Build) -> Mixes:
    """Head and rows of what a coin gives half-way between each two neighbours; no rows where export mixes none."""
    quality = build.front.quality
    head = ("a coin of", "for means of", "half-way, judged", f"{quality}, judged", "cost, test", f"{quality}, test")
    rows = [
        [
            " and ".join("f0" if p.method == HPC else p.method for p in (mix.cheap, mix.dear)),
            f"{mix.cheap.valid.cost:.2f} to {mix.dear.valid.cost:.2f}",
            f"{mixed.valid.cost:.2f}", f"{mixed.valid.quality:.4f}",
            f"{mixed.test.cost:.2f}", f"{mixed.test.quality:.4f}",
        ]
        for mix, mixed in mixes_halfway(build)
    ]  # fmt: skip
    return head, rows


def _caption(n_shown: int, n: int) -> str:
    front = "the front of all methods on judged rows"
    return front if n_shown == n else f"{front}: {n_shown} of its {n} points, around the picked one"


def _points_table(
    task: Task, points: Front, numbers: Sequence[int], marked: int | None, caption: str
) -> dict[str, Any]:
    rows = []
    for k in numbers:
        p = points.points[k]
        rows.append(
            [
                ("f0" if p.method == HPC else cut(p.method, 40)) + (" (picked)" if k == marked else ""),
                f"{p.valid.quality:.4f} ± {1.96 * p.valid.loss_se:.4f}",
                f"{amount(p.valid.cost)} ± {amount(1.96 * p.valid.cost_se)}",
                "" if p.worst_cost is None else amount(p.worst_cost),
                _with_interval(p.test.quality, _test_interval(task, points, p)),
                amount(p.test.cost),
                percent(p.test.forward_rate),
            ]
        )
    best = list(numbers).index(marked) if marked is not None and marked in numbers else None
    return {"rows": rows, "caption": caption, "best": best}


def over_seeds(front: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of front.md: what is picked of each method, on test rows, as means over seeds; none of one seed."""
    n, tables = len(front["seeds"]["seeds"]), []
    for wish, picks in front["seeds"]["max_loss"].items() if n > 1 else ():
        rows = [
            [
                cut(name, 40),
                *(f"{r[key]:.4f} ± {r[f'{key}_pm']:.4f}" for key in ("quality", "loss")),
                *(f"{amount(r[key])} ± {amount(r[f'{key}_pm'])}" for key in ("cost", "total")),
                percent(r["forward_rate"]),
            ]
            for name, r in picks.items()
        ]
        reference = "the best policy" if front.get("joint") else "f0"
        tables.append((f"at most {wish} below {reference}" if wish[0].isdigit() else wish, rows))
    return {"n_seeds": n, "seeds": tables}
