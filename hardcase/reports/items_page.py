# SPDX-License-Identifier: Apache-2.0
"""``report.html`` of a build of items: the front, and a picture of one item before and after its purchases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hardcase_edge.joint.session import JointDecision
from hardcase_export.drafts.costs import costs_of, origin_words
from hardcase_train.tasks.items import Items
from hardcase_train.tasks.task import Task

from .front_chart import front_svg
from .page import STYLE, amount, bar, cut, figure, percent, render, safe
from .train_page import asked_values, over_seeds

__all__ = ["item_svg", "items_report"]

CELL, LEFT, TOP, ROW = 52, 96, 34, 40
MOST_SHOWN = 24  # parts of the item in the picture


def items_report(
    task: Task,
    front: Mapping[str, Any],
    decided: Sequence[Sequence[JointDecision]],
    test: Items,
    command: str,
    picked: int,
) -> tuple[str, str]:
    """The page and the picture of the front.

    Parameters
    ----------
    front : the contents of front.json, whose first point is f0
    decided : of each other point, its decisions on the test items
    command : the command line that asked for the build, without its folders
    picked : number of the point that an export picks
    """
    unit, points = front["unit"], front["points"]
    title = f"{task.config.file.name}: {task.config.target}"
    svg = front_svg(unit, points, title, picked=picked, quality=front["quality"])
    rows = [
        [
            "f0, asked about every part" if p["method"] == "hpc" else cut(p["method"], 40), _policy(p["params"]),
            f"{p['valid']['quality']:.4f}", f"{p['test']['quality']:.4f}",
            "" if "items_right" not in p["test"] else f"{p['test']['items_right']:.4f}", amount(p["test"]["cost"]),
            _cut(p),
            percent(p["test"]["bought"]) + bar(p["test"]["bought"]), percent(p["test"]["forward_rate"]),
        ]
        for p in points
    ]  # fmt: skip
    head = (
        "method", "policy", "parts right, judged", "parts right, test", "items right, test",
        f"cost of an item ({unit})", "cut against f0", f"{task.sensors[1]} bought", "asked",
    )  # fmt: skip
    page = render(
        "items",
        heading=title,
        command=command,
        task=task,
        n=front["items"],
        max_parts=front["max_parts"],
        costs=origin_words(costs_of(front["costs"], "front.json: costs"), task.sensors),
        picture=figure(svg),
        head=head,
        rows=rows,
        picked=picked,
        quality=front["quality"],
        unit=unit,
        **asked_values(task, front["quality"]),
        **over_seeds(front),
        one=_one_item(task, front, decided, test),
    )
    return page, svg


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
