# SPDX-License-Identifier: Apache-2.0
"""Figures of joint programs: of a bundle on labelled items of a CSV file, and of one whose readings are all known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, replace
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.device.device import Device
from hardcase_edge.device.machine import RuntimeConfig
from hardcase_edge.device.parts import PartReplay, open_part_bank
from hardcase_edge.errors import InputError
from hardcase_edge.joint.session import JointDecision, JointMachine
from hardcase_edge.more.batch.per_class import gaps_between
from hardcase_edge.program.cost import start_of, to_unit, with_start
from hardcase_export.drafts.costs import Origins
from hardcase_export.joint.decide import decide_rows

from ..options import plain
from .headline import Headline, headline

if TYPE_CHECKING:  # inspect needs no scikit-learn
    from hardcase_train.tasks.items import Items
    from hardcase_train.tasks.task import Task

BOOLEANS = {"true": 1.0, "false": 0.0}


def measure_items(loaded: Loaded, path: Path, budget: float | None = None, dead: Sequence[str] = ()) -> dict[str, Any]:
    """Shares of parts and items that are right, costs and purchases; nothing is forwarded.

    Parameters
    ----------
    path : CSV file with a column ``item``, one with the target's name, and those of the sensors
    budget : of each item, in the bundle's unit; None: no limit
    dead : names of sensors that do not work

    Raises
    ------
    InputError
        It is not a file, a column is missing, a row is broken, or there is no item that the bundle decides.
    """
    program, manifest = loaded.machine.program, loaded.manifest
    assert loaded.joint is not None
    if str(path) == "-" or (path.exists() and not path.is_file()):
        raise InputError(f"{path} cannot be read twice, for readings and for labels; name a CSV file")
    labels = PartReplay(path)
    if not labels.has(manifest.target):
        labels.close()
        raise InputError(f"{path} has no column {manifest.target!r} with the labels; add it")
    specs = [f"replay:{path}", *(f"{name}=none" for name in dead)]
    right: list[int] = []
    parts: list[int] = []
    costs: list[float] = []
    bought: Counter[str] = Counter()
    why = ""
    with open_part_bank(specs, program, manifest, loaded.joint.inner) as bank:
        device = Device(loaded, bank, None, RuntimeConfig(budget=budget))
        while bank.next_item() and labels.next_item():
            record = device.decide()
            if record["labels"] is None:
                why = why or record["why"]
                continue
            cells = [labels.cell_of(manifest.target, p) for p in range(labels.parts)]
            truth = [_label_in(cell, manifest.classes, path) for cell in cells]
            right.append(sum(t == label for t, label in zip(truth, record["labels"], strict=True)))
            parts.append(len(truth))
            costs.append(record["cost"])
            bought.update({name: len(places) for name, places in record["bought"].items()})
    labels.close()
    if not parts:
        raise InputError(f"{path} has no item that this bundle decides; {why or 'see its column item'}")
    refused = {"refused": device.counters["refused"], **({"refused_why": why} if why else {})}
    return _figures(right, parts, costs, bought, manifest.sensors, manifest.unit) | refused


def _label_in(cell: str | None, classes: Sequence[Any], path: Path) -> Any:
    """The class that a cell names: by its text, or by its value where classes are numbers; booleans are."""
    if cell is None:
        raise InputError(f"{path} has a row with more or fewer cells than its header; correct it")
    word = cell.lower()
    try:
        value = BOOLEANS[word] if word in BOOLEANS else float(cell)
    except ValueError:
        value = None
    found = next((label for label in classes if cell == str(label) or value == label), None)
    if found is None:
        raise InputError(f"{path} has the label {cell[:40]!r}, which is none of the bundle's; correct it")
    return found


def _figures(
    right: Sequence[int], parts: Sequence[int], costs: Sequence[float], bought: Counter[str], sensors: Sequence[str],
    unit: str,
) -> dict[str, Any]:  # fmt: skip
    n, total = len(parts), sum(parts)
    share = sum(right) / total
    spread = sum((r - share * p) ** 2 for r, p in zip(right, parts, strict=True))
    half = 1.96 * sqrt(spread * n / max(1, n - 1)) / total  # of a ratio of sums, item by item
    return {
        "items": n,
        "parts": total,
        "right": share,
        "right_95": [max(0.0, share - half), min(1.0, share + half)],
        "items_right": sum(r == p for r, p in zip(right, parts, strict=True)) / n,
        "cost": sum(costs) / n,
        "unit": unit,
        "bought": {name: bought[name] / total for name in sensors if name in bought},
    }


def item_lines(r: dict[str, Any]) -> list[str]:
    """The figures as text."""
    low, high = r["right_95"]
    lines = [
        f"parts right {r['right']:.4f} (95 %: {low:.4f} to {high:.4f}), items right {r['items_right']:.4f}, "
        f"cost of an item {r['cost']:.2f} {plain(r['unit'], 20)}, {r['items']} items of {r['parts']} parts"
    ]
    if r["refused"]:
        lines.append(f"  {r['refused']} items were refused; why the first: {plain(r['refused_why'], 160)}")
    bought = ", ".join(f"{plain(name, 24)} {share:.1%}" for name, share in r["bought"].items())
    lines.append(f"  sensors, by share of parts that buy them: {bought or 'none'}")
    for name, dead in r.get("dead", {}).items():
        lines.append(
            f"  without {plain(name, 20):<20} parts right {dead['right']:.4f} "
            f"(loss {r['right'] - dead['right']:+.4f}), cost {dead['cost']:.2f} {plain(r['unit'], 20)}"
        )
    return lines


def joint_lines(loaded: Loaded) -> tuple[dict[str, Any], list[str]]:
    """What ``hardcase inspect`` says of items: facts, and lines of text; nothing of a program of one part."""
    joint, proved = loaded.bundle.joint, loaded.items
    if joint is None or proved is None:
        return {}, []
    inner = [loaded.manifest.sensors[s] for s in sorted(joint.inner(loaded.bundle.program))]
    facts = {
        "release": joint.release, "max_parts": joint.max_parts, "barriers": len(joint.waits), "inner_sensors": inner,
        "worst_cost": to_unit(proved.worst_cost), "rounds": proved.rounds, "operations": proved.operations,
        "bytes": proved.memory, "golden": len(loaded.bundle.items),
    }  # fmt: skip
    return {"joint": facts}, [
        f"  items       1 to {joint.max_parts} parts, {joint.release}: the figures above are of one part",
        f"  item        costs at most {facts['worst_cost']:g} {loaded.manifest.unit}, takes at most "
        f"{proved.operations} operations, {proved.rounds} rounds and {proved.memory} bytes of memory",
        f"  barriers    {len(joint.waits)}, inner sensors {', '.join(inner) or 'none'}; "
        f"{len(loaded.bundle.items)} golden items, all pass",
    ]


# ---------------------------------------------------------------- items whose readings and f0's answers are all known


def decide_items(machine: JointMachine, items: Items) -> list[JointDecision]:
    """The decision of each item, without a budget; a request is answered at once by f0."""
    return [decide_rows(machine, item, replies) for item, replies in zip(items.X, items.replies, strict=True)]


def figures(decisions: list[JointDecision], items: Items, unit: float = 1e-6) -> dict[str, Any]:
    """Quality (share of parts that are right), mean cost of an item and shares of parts; and the error of a quality."""
    right = np.array([int((np.array(d.labels) == y).sum()) for d, y in zip(decisions, items.y, strict=True)])
    sizes = np.array([len(y) for y in items.y])
    parts = [p for d in decisions for p in d.parts]
    total = len(parts)
    return {
        "quality": float(right.sum() / total),
        "cost": float(np.mean([d.cost for d in decisions])) * unit,
        "forward_rate": sum(p.route == "cloud" for p in parts) / total,
        "items_right": float(np.mean(right == sizes)),
        "bought": sum(1 in p.sensors for p in parts) / total,
        "quality_se": _share_se(right, sizes),
    }


def forward_se(decisions: list[JointDecision]) -> float:
    """The standard error of the share of parts that are asked."""
    asked = np.array([sum(p.route == "cloud" for p in d.parts) for d in decisions])
    return _share_se(asked, np.array([len(d.parts) for d in decisions]))


def _share_se(counts: np.ndarray, sizes: np.ndarray) -> float:
    """The standard error of a ratio of sums, item by item; both are (n_items,)."""
    share = float(counts.sum() / sizes.sum())
    return sqrt(float(((counts - share * sizes) ** 2).sum())) / float(sizes.sum())


def gaps(decisions: list[JointDecision], items: Items, n_classes: int) -> list[list[float]]:
    """Of each label that parts have and that is found far less often than by f0, the values of a ``per_class.Gap``."""
    y, f0 = np.concatenate(items.y), np.concatenate([replies[:, 0] for replies in items.replies])
    labels = np.concatenate([d.labels for d in decisions])
    item = np.repeat(np.arange(len(items.y)), [len(of_item) for of_item in items.y])
    return [list(astuple(gap)) for gap in gaps_between(y, labels, f0, n_classes, item)]


def item_cuts(decisions: list[JointDecision], task: Task, costs: Origins) -> Headline:
    """How much cheaper an item is than with f0 for every part, and than with every sensor of every part."""
    parts = [p for d in decisions for p in d.parts]
    bought = Counter((1, p.sensors, int(p.route == "cloud")) for p in parts)
    size, start = len(parts) / len(decisions), start_of(task.problem.costs)
    share = with_start(task.problem.costs, round(start / size))  # of a part
    paths = {key: float(n) for key, n in bought.items()}
    of_part = headline(replace(task.problem, costs=share), paths, task.sensors, costs)
    rest = to_unit(start - start_of(share) * size)
    return replace(of_part, f0=of_part.f0 * size + rest, every=of_part.every * size + rest)
