# SPDX-License-Identifier: Apache-2.0
"""Figures of a joint program on items whose readings and f0's answers are all known, by the device's own session."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple, replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from ..measuring.headline import Headline, headline

if TYPE_CHECKING:
    from hardcase_edge.joint.session import JointDecision, JointMachine
    from hardcase_export.drafts.costs import Costs
    from hardcase_train.tasks.items import Items
    from hardcase_train.tasks.task import Task

__all__ = ["decide_items", "figures", "gaps", "item_cuts"]


def decide_items(machine: JointMachine, items: Items) -> list[JointDecision]:
    """The decision of each item, without a budget; a request is answered at once by f0."""
    from hardcase_edge.joint.drive import drive_joint

    features = [s.features for s in machine.program.sensors]

    def decide(rows: list[list[float]], replies: list[list[int]]) -> JointDecision:
        def read(asked: tuple[tuple[int, int], ...]) -> dict[tuple[int, int], list[float]]:
            return {(p, s): [rows[p][f] for f in features[s]] for p, s in asked}

        def ask(part: int, _: object) -> tuple[int, int]:
            return replies[part][0], replies[part][1]

        return drive_joint(machine.session(len(rows)), read, ask)

    return [decide(item.tolist(), replies.tolist()) for item, replies in zip(items.X, items.replies, strict=True)]


def figures(decisions: list[JointDecision], items: Items, unit: float = 1e-6) -> dict[str, Any]:
    """Quality (share of parts that are right), mean cost of an item and shares of parts; and the error of a quality."""
    right = np.array([int((np.array(d.labels) == y).sum()) for d, y in zip(decisions, items.y, strict=True)])
    sizes = np.array([len(y) for y in items.y])
    parts = [p for d in decisions for p in d.parts]
    total = len(parts)
    quality = float(right.sum() / total)
    spread = float(((right - quality * sizes) ** 2).sum())
    return {
        "quality": quality,
        "cost": float(np.mean([d.cost for d in decisions])) * unit,
        "forward_rate": sum(p.route == "cloud" for p in parts) / total,
        "items_right": float(np.mean(right == sizes)),
        "bought": sum(1 in p.sensors for p in parts) / total,
        "quality_se": sqrt(spread) / total,  # of a ratio of sums, item by item
    }


def gaps(decisions: list[JointDecision], items: Items, n_classes: int) -> list[list[float]]:
    """Of each label that parts have and that is found far less often than by f0, the values of a ``per_class.Gap``."""
    from hardcase_edge.more.batch.per_class import gaps_between

    y, f0 = np.concatenate(items.y), np.concatenate([replies[:, 0] for replies in items.replies])
    labels = np.concatenate([d.labels for d in decisions])
    item = np.repeat(np.arange(len(items.y)), [len(of_item) for of_item in items.y])
    return [list(astuple(gap)) for gap in gaps_between(y, labels, f0, n_classes, item)]


def item_cuts(decisions: list[JointDecision], task: Task, costs: Costs) -> Headline:
    """How much cheaper an item is than with f0 for every part, and than with every sensor of every part."""
    parts = [p for d in decisions for p in d.parts]
    bought = Counter((1, p.sensors, int(p.route == "cloud")) for p in parts)
    of_part = headline(task.problem, {key: float(n) for key, n in bought.items()}, task.sensors, costs)
    size = len(parts) / len(decisions)
    return replace(of_part, f0=of_part.f0 * size, every=of_part.every * size)
