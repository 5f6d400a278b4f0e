# SPDX-License-Identifier: Apache-2.0
"""Figures of a joint bundle on labelled items of a CSV file: what the device's own loop decides, row by row a part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError

from ..options import plain

if TYPE_CHECKING:
    from hardcase_edge.bundle.load import Loaded

__all__ = ["item_lines", "joint_lines", "measure_items"]

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
    from hardcase_edge.device.device import Device, RuntimeConfig
    from hardcase_edge.device.parts import PartReplay, open_part_bank

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
    from hardcase_edge.program.cost import to_unit

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
