"""The front: what every trained policy costs and how often it is right, and how to pick from it.

A point has figures on the judged rows (``judge``), on which choices are made, and on test rows, which are only
reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from hardcase_edge.program.definition import Program

from ..data.problem import Problem
from .batch import Batch
from .compile import Policy
from .quality import figures_of

__all__ = ["Figures", "Point", "best_points", "with_test"]

Figures = dict[str, float]  # quality, cost (user's unit), forward_rate; on judged rows also loss_se, local_*


@dataclass(frozen=True)
class Point:
    """One policy: how it was made, its figures, and the policy itself, or the draft program it compiled to."""

    method: str
    params: dict[str, Any]
    valid: Figures
    test: Figures
    policy: Policy | Program | None  # None where only figures count

    @property
    def program(self) -> Program | None:
        """The draft program, made anew each time from a ``Policy``: large ones do not all fit in memory at once."""
        return self.policy.program() if isinstance(self.policy, Policy) else self.policy


def best_points(points: Sequence[Point]) -> list[Point]:
    """The points that no other point beats on judged rows, by rising cost: each is more accurate than all before it, or
    surer, as ``hardcase export --max-loss`` asks: more accurate less a standard error of its loss.
    """
    out: list[Point] = []
    most = surest = -np.inf
    for point in sorted(points, key=lambda p: (p.valid["cost"], -p.valid["quality"], p.valid["loss_se"])):
        quality = point.valid["quality"]
        sure = quality - point.valid["loss_se"]
        if quality > most or sure > surest:
            out.append(point)
        most, surest = max(most, quality), max(surest, sure)
    return out


def with_test(problem: Problem, points: Sequence[Point], n_jobs: int = 1) -> list[Point]:
    """The points with their figures on test rows, if there are any: reported, never chosen by.

    Policies that share parts share their scores.
    """
    rows = problem.test
    if len(rows.y) == 0:
        return list(points)
    sharing: dict[int, list[int]] = {}
    for k, point in enumerate(points):
        sharing.setdefault(id(getattr(point.policy, "parts", point.policy)), []).append(k)

    def tested(group: list[int]) -> list[Point]:
        policies = [p for k in group if (p := points[k].policy) is not None]
        batch = Batch(policies[0].with_all_parts() if isinstance(policies[0], Policy) else policies[0], rows.X)
        return [
            replace(points[k], test=figures_of(batch.run(rows.hpc_label, policy.nodes), rows.y, rows.weight))
            for k, policy in zip(group, policies, strict=True)
        ]

    done = Parallel(n_jobs, prefer="threads")(delayed(tested)(group) for group in sharing.values())
    places = (k for group in sharing.values() for k in group)
    return [p for _, p in sorted(zip(places, chain(*done), strict=True), key=itemgetter(0))]
