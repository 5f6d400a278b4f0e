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
        A column is missing, or there is no item that the bundle decides.
    """
    from hardcase_edge.device.device import RuntimeConfig
    from hardcase_edge.device.joint import JointDevice
    from hardcase_edge.device.parts import PartReplay, open_part_bank

    program, manifest = loaded.machine.program, loaded.manifest
    assert loaded.joint is not None
    labels = PartReplay(path)
    if not labels.has(manifest.target):
        labels.close()
        raise InputError(f"{path} has no column {manifest.target!r} with the labels; add it")
    specs = [f"replay:{path}", *(f"{name}=none" for name in dead)]
    texts = {str(label) for label in manifest.classes}
    right: list[int] = []
    parts: list[int] = []
    costs: list[float] = []
    bought: Counter[str] = Counter()
    with open_part_bank(specs, program, manifest, loaded.joint.inner) as bank:
        device = JointDevice(loaded, bank, None, RuntimeConfig(budget=budget))
        while bank.next_item() and labels.next_item():
            record = device.decide()
            if record["labels"] is None:
                continue
            truth = [labels.cell_of(manifest.target, p) for p in range(labels.parts)]
            if unknown := sorted({str(t) for t in truth} - texts):
                raise InputError(f"{path} has the label {unknown[0][:40]!r}, which is none of the bundle's; correct it")
            right.append(sum(t == str(label) for t, label in zip(truth, record["labels"], strict=True)))
            parts.append(len(truth))
            costs.append(record["cost"])
            bought.update({name: len(places) for name, places in record["bought"].items()})
    labels.close()
    if not parts:
        raise InputError(f"{path} has no item that this bundle decides; see its column item")
    return _figures(right, parts, costs, bought, device.counters["refused"], manifest.sensors, manifest.unit)


def _figures(
    right: Sequence[int], parts: Sequence[int], costs: Sequence[float], bought: Counter[str], refused: int,
    sensors: Sequence[str], unit: str,
) -> dict[str, Any]:  # fmt: skip
    n, total = len(parts), sum(parts)
    share = sum(right) / total
    spread = sum((r - share * p) ** 2 for r, p in zip(right, parts, strict=True))
    half = 1.96 * sqrt(spread * n / max(1, n - 1)) / total  # of a ratio of sums, item by item
    return {
        "items": n,
        "parts": total,
        "refused": refused,
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
        lines.append(f"  {r['refused']} items were refused; they have more parts than the bundle decides")
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
        "golden": len(loaded.bundle.items),
    }  # fmt: skip
    return {"joint": facts}, [
        f"  items       1 to {joint.max_parts} parts, {joint.release}: the figures above are of one part",
        f"  item        costs at most {facts['worst_cost']:g} {loaded.manifest.unit}, takes at most "
        f"{proved.operations} operations and {proved.rounds} rounds",
        f"  barriers    {len(joint.waits)}, inner sensors {', '.join(inner) or 'none'}; "
        f"{len(loaded.bundle.items)} golden items, all pass",
    ]
