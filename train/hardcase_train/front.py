"""The front: what every trained policy costs and how often it is right, and how to pick from it.

A point has figures on the judged rows (``judge``), on which choices are made, and on test rows, which are only
reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hardcase_edge.program import Program

from .batch import Batch
from .problem import Problem

__all__ = ["Figures", "Point", "best_points", "with_test"]

Figures = dict[str, float]  # accuracy, cost (user's unit), forward_rate; on judged rows also loss_se, local_*


@dataclass(frozen=True)
class Point:
    """One policy: how it was made, the draft program it compiled to, and its figures."""

    method: str
    params: dict[str, Any]
    valid: Figures
    test: Figures
    program: Program | None  # None for f0 itself


def best_points(points: Sequence[Point]) -> list[Point]:
    """The points that no other point beats on validation rows, by rising cost."""
    out: list[Point] = []
    for point in sorted(points, key=lambda p: (p.valid["cost"], -p.valid["accuracy"])):
        if not out or point.valid["accuracy"] > out[-1].valid["accuracy"]:
            out.append(point)
    return out


def with_test(problem: Problem, point: Point) -> Point:
    """The point with its figures on test rows, if there are any: reported, never chosen by."""
    assert point.program is not None
    rows = problem.test
    if len(rows.y) == 0:
        return point
    outcome = Batch(point.program, rows.X).run(rows.hpc_label)
    return replace(point, test=outcome.summary(rows.y, rows.weight))
