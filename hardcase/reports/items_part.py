# SPDX-License-Identifier: Apache-2.0
"""What policies for items of several parts have for a report, and a picture of one item before and after purchases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hardcase_edge.base.escape import markup as safe
from hardcase_edge.errors import HardcaseError
from hardcase_edge.joint.session import JointDecision
from hardcase_export.drafts.costs import costs_of, origin_words
from hardcase_export.integers.point import Build
from hardcase_export.picking.pick import pick
from hardcase_train.tasks.items import Items
from hardcase_train.tasks.task import Task

from ..measuring.picked import Wish, f0_warning, item_headline
from .page import STYLE, bar, figure, percent
from .train_page import Told

CELL, LEFT, TOP, ROW = 52, 96, 34, 40
MOST_SHOWN = 24  # parts of the item in the picture
Z = 1.96  # standard errors on each side of a 95 % interval


def told_of_items(
    build: Build,
    task: Task,
    front: Mapping[str, Any],
    decided: Sequence[Sequence[JointDecision]],
    test: Items,
    wish: Wish,
    warnings: Sequence[str],
) -> Told:
    """The pick of an export with this wish, and what an item is; ``warnings``: what comes first.

    Parameters
    ----------
    front : the contents of front.json, whose first point is f0
    decided : of each other point, its decisions on the test items
    """
    entries, n_test = front["points"], f"{front['items']['test']:,} test items"
    values = {
        "n": front["items"],
        "max_parts": front["max_parts"],
        "costs": origin_words(costs_of(front["costs"], "front.json: costs"), task.sensors),
        "one": _one_item(task, front, decided, test),
    }
    columns: dict[str, list[str]] = {
        "policy": [_policy(p["params"]) for p in entries],
        "items right": [f"{p['test']['items_right']:.4f}" if "items_right" in p["test"] else "" for p in entries],
        "cut against f0": [_cut(p) for p in entries],
        f"{task.sensors[1]} bought": [percent(b) + bar(b) for b in (p["test"]["bought"] for p in entries)],
    }
    intervals = {k: _interval(p["test"]) for k, p in enumerate(entries) if "quality_se" in p["test"]}
    told = Told(("an item", "part"), n_test, intervals, values, columns=columns, warnings=warnings)
    try:
        point = pick(build.front, **dict[str, Any](wish))
    except HardcaseError as error:
        return replace(told, nothing=str(error))
    cuts, lines = item_headline(build, point, task.classes)
    f0, counts = entries[0]["test"]["quality"], np.bincount(np.concatenate(test.y), minlength=len(task.classes))
    of_f0 = f0_warning(f0, build.front.measure, counts.tolist(), other="") or ""
    bought = entries[build.front.points.index(point)]["test"]["bought"]
    return replace(
        told,
        picked=point,
        test=point.test,
        cuts=cuts,
        f0=f0,
        warnings=[*warnings, *[of_f0] * bool(of_f0), *lines],
        cards=[[percent(bought), f"of the parts get {task.sensors[1]}"]],
    )


def _interval(test: Mapping[str, Any]) -> tuple[float, float]:
    half = Z * test["quality_se"]
    return max(0.0, test["quality"] - half), min(1.0, test["quality"] + half)


def _cut(point: Mapping[str, Any]) -> str:
    """How much cheaper an item is than with f0 for every part; empty for f0 itself."""
    cut = point.get("headline", {}).get("cut")
    return "" if cut is None else percent(cut)


def _policy(params: Mapping[str, Any]) -> str:
    if not params:
        return ""
    return f"{params['release']}, {params['share']:.0%}{', asks' if params['asks'] else ''}"


def _one_item(
    task: Task, front: Mapping[str, Any], decided: Sequence[Sequence[JointDecision]], test: Items
) -> dict[str, object]:
    """The test item that gains the most right parts by purchases of the policy of the middle share.

    Nothing if no policy buys never, or none for some of the parts.
    """
    of = {k: p["params"] for k, p in enumerate(front["points"][1:])}
    never = next((k for k, p in of.items() if p["share"] == 0), None)
    some = [k for k, p in of.items() if 0 < p["share"] < 1 and not p["asks"]]
    if never is None or not some:
        return {}
    after = some[len(some) // 2]
    gains = [
        sum(int(b == t) - int(a == t) for a, b, t in zip(one.labels, two.labels, truth.tolist(), strict=True))
        for one, two, truth in zip(decided[never], decided[after], test.y, strict=True)
    ]
    best = max(range(len(gains)), key=lambda k: (gains[k], len(test.y[k]) <= MOST_SHOWN))
    names = [str(c) for c in task.classes]
    picture = item_svg(
        [names[k] for k in test.y[best]], [names[k] for k in decided[never][best].labels],
        [names[k] for k in decided[after][best].labels], [1 in p.sensors for p in decided[after][best].parts],
    )  # fmt: skip
    point = front["points"][after + 1]
    return {"method": point["method"], "policy": _policy(point["params"]), "picture": figure(picture)}


def item_svg(truth: Sequence[str], before: Sequence[str], after: Sequence[str], bought: Sequence[bool]) -> str:
    """The labels of one item before and after purchases, and the true ones below; a frame around what was bought."""
    n = min(len(truth), MOST_SHOWN)
    height = TOP + 3 * ROW
    out = [
        f'<svg class="hc item" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + n * CELL} {height}" '
        f'width="{LEFT + n * CELL}" height="{height}" role="img" aria-label="One item, before and after purchases">'
        f"<style>{STYLE}</style>"
    ]
    lines = (("cheap", before), ("with purchases", after), ("true", truth))
    for r, (name, labels) in enumerate(lines):
        y = TOP + r * ROW
        out.append(f'<text class="soft" x="4" y="{y}">{name}</text>')
        for k in range(n):
            x = LEFT + k * CELL + CELL // 2
            changed = r == 1 and before[k] != after[k]
            style = "font-size:18px" + (";font-weight:700;fill:var(--accent)" if changed else "")
            out.append(f'<text x="{x}" y="{y}" text-anchor="middle" style="{style}">{safe(labels[k], 6)}</text>')
    out += [
        f'<rect x="{LEFT + k * CELL + 3}" y="6" width="{CELL - 6}" height="{2 * ROW}" rx="6" fill="none" '
        'stroke="var(--buy)" stroke-width="2"/>'
        for k in range(n)
        if bought[k]
    ]
    return "".join([*out, "</svg>"])
