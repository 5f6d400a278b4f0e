# SPDX-License-Identifier: Apache-2.0
"""The check that points keep the limits of [policy]: the verifier's worst cost, time, bytes and forwards of each.

Every sweep sends all points of all methods through here before it takes the best of them, so a limit holds whatever a
method does. Methods leave out what cannot keep a limit by themselves (``Problem.is_affordable``): little is lost here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_unit
from hardcase_edge.program.definition import Program
from hardcase_edge.verifier.costs import cost_range

from ..data.problem import Problem
from ..policy.front import Point

__all__ = ["Keeper", "worst_cost"]


def worst_cost(point: Point) -> float:
    """The proved worst cost of a decision, its request included, in the user's unit."""
    policy = point.policy
    assert policy is not None
    program = policy if isinstance(policy, Program) else replace(policy.bare, nodes=policy.nodes)
    return to_unit(cost_range(program)[0])


class Keeper:
    """Drops points that break a limit, counts them by limit, and remembers the least that any of them would need."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.limits = problem, problem.limits
        self.n_kept, self.broken, self.least = 0, Counter[str](), dict[str, float]()

    def kept(self, points: Sequence[Point]) -> list[Point]:
        """The points that keep every limit; points without a policy, of which only figures count, are all kept."""
        if not self.limits:
            return list(points)
        kept = [p for p in points if p.policy is None or self._keeps(p)]
        self.n_kept += len(kept)
        return kept

    def _keeps(self, point: Point) -> bool:
        for key, limit in self.limits.given.items():
            needed = self.needed(key, point)
            if needed > limit:
                self.broken[key] += 1
                self.least[key] = min(needed, self.least.get(key, np.inf))
                return False
        return True

    def needed(self, key: str, point: Point) -> float:
        """The least limit of this kind that the point keeps."""
        if key == "budget":
            return worst_cost(point)
        if key == "max_forward":
            return point.valid["forward_rate"]
        raise NotImplementedError(key)

    def lines(self) -> list[str]:
        """What is to be said of dropped points, a line each."""
        return [
            f"left out {n} policies over [policy] {key} = {self.limits.given[key]:g}: the nearest needs "
            f"{self.least[key]:g}"
            for key, n in self.broken.items()
        ]

    def check(self, points: Sequence[Point]) -> None:
        """Refuse a front without points.

        Raises
        ------
        InputError
            The limits have left no policy; the message names the limit that most policies break, and what it must be.
        """
        if not points and self.broken:
            key, n = self.broken.most_common(1)[0]
            raise InputError(
                f"no policy keeps [policy] {key} = {self.limits.given[key]:g}, which {n} policies break; the smallest "
                f"possible is {self.least[key]:g}"
            )
