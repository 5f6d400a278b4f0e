# SPDX-License-Identifier: Apache-2.0
"""``report.html`` of a build: what was asked, the data, f0, the front, and the policy that an export would pick.

``Told`` is what a kind of policies has for it: ``cases_part`` of single decisions, ``items_part`` of items of several
parts. Figures of the front are those of ``front.json``. Figures of the picked policy are those of its integers on test
rows, and equal ``hardcase evaluate``'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hardcase_edge.more.batch.quality import Figures
from hardcase_edge.more.fronts.front import HPC_METHOD as HPC
from hardcase_edge.more.fronts.front import staircase
from hardcase_edge.more.fronts.pick import DEFAULT_MAX_LOSS
from hardcase_export.drafts.costs import costs_of
from hardcase_export.drafts.front import Front, Point
from hardcase_export.integers.decide import Figures as Decided
from hardcase_export.integers.point import Build
from hardcase_export.picking.pick import mixes_halfway
from hardcase_train.tasks.task import Task, cost_origins

from ..measuring.headline import Headline
from ..measuring.measure import seen_rows_lines
from ..measuring.picked import Wish
from .front_chart import front_svg
from .page import amount, cut, data, figure, percent, render

Interval = tuple[float, float]
Mixes = tuple[Sequence[str], Sequence[Sequence[str]]]  # head and rows of a table
NEAR = 6  # points on each side of the picked one in the table of the front


@dataclass(frozen=True)
class Told:
    """What the kind of a build's policies has for its report.

    of : what a cost is of, and what is forwarded
    n_test : number of test rows or items, in words
    intervals : 95 % intervals of qualities on test rows, by number of a point
    values : what templates show of this kind alone
    columns : further ones of the tables of points: of each title a cell for each point
    picked : the point that an export picks; None: none can be exported, and ``nothing`` says why
    test, cuts : its figures on test rows, and how much cheaper it is than f0 for everything, and than every sensor
    f0 : f0's quality on the same rows
    warnings : what must not be overlooked
    cards : further ones, each a number and a few words
    """

    of: tuple[str, str]
    n_test: str
    intervals: Mapping[int, Interval]
    values: Mapping[str, Any]
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    picked: Point | None = None
    nothing: str = ""
    test: Figures | Decided | None = None
    cuts: Headline | None = None
    f0: float = 0.0
    warnings: Sequence[str] = ()
    cards: Sequence[Sequence[str]] = ()


def train_report(
    points: Front, task: Task, front: Mapping[str, Any], told: Told, mixes: Mixes, command: str, wish: Wish
) -> tuple[str, str]:
    """The page, and the picture of the front with the picked point marked.

    Parameters
    ----------
    points : of the build
    front : the contents of front.json
    mixes : as ``mix_table`` gives them
    command : the command line that asked for the build, without its folders
    wish : that picked the point
    """
    f0 = next(k for k, p in enumerate(points.points) if p.method == HPC)
    marked = None if told.picked is None else points.points.index(told.picked)
    heading = f"{task.config.file.name}: {task.config.target}"
    svg = front_svg(
        points.unit,
        front["points"],
        heading,
        picked=marked,
        max_loss=None if marked is None or points.is_joint else _allowed_loss(wish, points),
        quality=points.quality,
        intervals={k: interval for k, interval in told.intervals.items() if k in (f0, marked)},
    )
    html = render(
        "train",
        heading=heading,
        command=command,
        task=task,
        points=points,
        picture=figure(svg),
        limits=_limit_words(points),
        mixes=dict(zip(("head", "rows"), mixes, strict=True)),
        one_of=told.of[0].split()[-1],
        each=told.of[1],
        **_asked(task, points.quality),
        **_f0(task, front, points.points[f0], told.intervals.get(f0)),
        **_front(task, points, told, marked, front["points"]),
        **_over_seeds(front),
        picked=told.picked,
        nothing=told.nothing,
        **({} if told.picked is None else _picked(task, points, points.points[f0], told.picked, told, wish)),
        **told.values,
    )
    return html, svg


def _with_interval(quality: float, interval: Interval | None) -> str:
    return data(quality, f"{quality:.4f}") + (f" ({interval[0]:.4f} to {interval[1]:.4f})" if interval else "")


# ---------------------------------------------------------------- what was asked


def _asked(task: Task, quality: str) -> dict[str, Any]:
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
    service = task.config.service
    return _learnt_words(task) + (f"; in service the large model at {service} answers" if service else "")


def _learnt_words(task: Task) -> str:
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


# ---------------------------------------------------------------- f0 and the front


def _f0(task: Task, front: Mapping[str, Any], f0: Point, interval: Interval | None) -> dict[str, Any]:
    return {
        "f0_words": _f0_words(task),
        "seen_rows": seen_rows_lines(front["hpc"]),
        "f0_rows": [
            ["judged rows", data(f0.valid.quality, f"{f0.valid.quality:.4f}"), amount(f0.valid.cost)],
            ["test rows", _with_interval(f0.test.quality, interval), amount(f0.test.cost)],
        ],
        "used_cost": next(p for p in front["points"] if p["method"] == HPC)["test"].get("used_cost"),
    }


def _front(
    task: Task, points: Front, told: Told, marked: int | None, entries: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    best = staircase([(p.valid.cost, p.valid.quality) for p in points.points])
    numbers = sorted({*best, *([] if marked is None else [marked])}, key=lambda k: points.points[k].valid.cost)
    at = 0 if marked is None else numbers.index(marked)
    near = numbers[max(0, at - NEAR) : at + NEAR + 1] if len(numbers) > 2 * NEAR + 1 else numbers
    return {
        "hard_budgets": _hard_budgets(task, points, entries),
        "front_head": (
            "policy", f"{points.quality}, judged (± 95 %)", f"cost, judged (± 95 %, {points.unit})", "worst cost",
            f"{points.quality}, test (95 %)", "cost, test", "forwarded", *told.columns,
        ),
        "near": _points_table(points, near, marked, told, _caption(len(near), len(numbers))),
        "every": _points_table(points, range(len(points.points)), marked, told, "in the order of front.json"),
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
    points: Front, numbers: Sequence[int], marked: int | None, told: Told, caption: str
) -> dict[str, Any]:
    rows = []
    for k in numbers:
        p = points.points[k]
        rows.append(
            [
                ("f0" if p.method == HPC else cut(p.method, 40)) + (" (picked)" if k == marked else ""),
                f"{p.valid.quality:.4f}" + (f" ± {1.96 * p.valid.loss_se:.4f}" if p.valid.loss_se else ""),
                amount(p.valid.cost) + (f" ± {amount(1.96 * p.valid.cost_se)}" if p.valid.cost_se else ""),
                "" if p.worst_cost is None else amount(p.worst_cost),
                _with_interval(p.test.quality, told.intervals.get(k)),
                amount(p.test.cost),
                percent(p.test.forward_rate),
                *(cells[k] for cells in told.columns.values()),
            ]
        )
    best = list(numbers).index(marked) if marked is not None and marked in numbers else None
    return {"rows": rows, "caption": caption, "best": best}


def _over_seeds(front: Mapping[str, Any]) -> dict[str, Any]:
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


# ---------------------------------------------------------------- the picked policy


def _picked(task: Task, points: Front, f0: Point, picked: Point, told: Told, wish: Wish) -> dict[str, Any]:
    """What the head of the page and its section say of every kind of policy."""
    has_risk = bool(task.classes) and not points.is_joint
    return {
        "cards": _cards(points, f0, told),
        "warnings": told.warnings,
        "flags": "".join(f" --{k.replace('_', '-')} {v:g}" for k, v in wish.items() if v is not None),
        "method": "f0" if picked.method == HPC else picked.method,
        "why": _why(wish, points),
        "wishes": ["max-loss", "budget", "hard-budget", *(["risk"] if has_risk else []), "method"],
        "params": json.dumps(picked.params, sort_keys=True, ensure_ascii=False, indent=1),
    }


def _cards(points: Front, f0: Point, told: Told) -> list[Sequence[str]]:
    """The figures at the head of the page: a number and a few words each."""
    assert told.test is not None
    m, (whole, each) = told.test, told.of
    share = f"{percent(m.cost / f0.test.cost)} of f0's {amount(f0.test.cost)}" if f0.test.cost else "f0 is free"
    return [
        [f"{m.quality:.4f}", f"{points.quality} of the picked policy on {told.n_test}; f0 has {told.f0:.4f}"],
        [f"{amount(m.cost)} {points.unit}", f"mean cost of {whole}, {share}"],
        *_cuts(told),
        [percent(m.forward_rate), f"of the {each}s go to f0 in the cloud"],
        *told.cards,
    ]


def _cuts(told: Told) -> list[list[str]]:
    """How much cheaper it is than f0 for everything and than every sensor, and the range if placeholders are others."""
    cuts = told.cuts
    if cuts is None or cuts.cut is None:
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
    return [[percent(cuts.cut), f"less than f0 for every {told.of[1]}{span}{of_every}"]]


def _allowed_loss(wish: Wish, points: Front) -> float | None:
    """The loss of quality that the wish allows; None if it does not look at the loss."""
    loss, has_costs = wish.get("max_loss"), points.measure.kind == "errors"
    if loss is not None:
        return loss / points.measure.scale if has_costs else loss
    is_other = has_costs or bool(points.limits) or wish.get("budget") is not None
    return None if is_other else DEFAULT_MAX_LOSS


def _why(wish: Wish, points: Front) -> str:
    budget, loss = wish.get("budget"), wish.get("max_loss")
    if budget is not None:
        spare = "with one standard error to spare"
        return f"the best point on judged rows that costs at most {amount(budget)} {points.unit} there, {spare}"
    if loss is None and points.measure.kind == "errors":
        return "the point of the least mean cost on judged rows, that of its errors included"
    if loss is None and points.limits:
        return f"the best point on judged rows within the limits of training: {_limit_words(points)}"
    if points.measure.kind == "errors" and loss is not None:
        allowed = f"whose errors cost at most {amount(loss)} {points.unit} more than f0's"
    else:
        allowed = f"at most {_allowed_loss(wish, points):g} below {'the best policy' if points.is_joint else 'f0'}"
    return f"the cheapest point {allowed} on judged rows, with one standard error to spare"


def _limit_words(points: Front) -> str:
    """The limits of training, with their units; empty without limits."""
    units = {"budget": f" {points.unit} a decision", "max_ms": " ms", "max_bytes": " bytes"}
    return ", ".join(f"{key} {value:,.10g}{units.get(key, '')}" for key, value in points.limits.items())
