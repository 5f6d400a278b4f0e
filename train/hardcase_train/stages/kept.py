# SPDX-License-Identifier: Apache-2.0
"""The check that points keep the limits of [policy]: the verifier's worst cost, time, bytes and forwards of each.

Every sweep sends all points of all methods through here before it takes the best of them, so a limit holds whatever a
method does. Methods leave out what cannot keep a limit by themselves (``Problem.is_affordable``): little is lost here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from hardcase_edge.errors import ImageError, InputError, ProgramError
from hardcase_edge.kernel.image import KERNEL_BYTES, make_image
from hardcase_edge.more.fronts.front import Candidate
from hardcase_edge.program.cost import to_unit
from hardcase_edge.program.definition import Answer, Branch, Node, Number, Polynomial, Program, Scorer, Stack, Trees
from hardcase_edge.program.limits import worst_decision_ms
from hardcase_edge.verifier.costs import cost_range
from hardcase_edge.verifier.verify import verify

from ..data.problem import Problem
from ..policy.front import Point
from ..policy.selection import Judge

MOST = 30_000  # of a leaf or a base in rough integers
P = TypeVar("P", bound=Candidate)


def worst_cost(point: Point) -> float:
    """The proved worst cost of a decision, its request included, in the user's unit."""
    policy = point.policy
    assert policy is not None
    program = policy if isinstance(policy, Program) else replace(policy.bare, nodes=policy.nodes)
    return to_unit(cost_range(program)[0])


def rough(program: Program) -> Program:
    """A draft in integers of no meaning, as large as the quantised program and with as many steps, or larger."""

    def whole(values: Sequence[Number]) -> tuple[int, ...]:
        return tuple(int(np.clip(round(1000 * float(v)), -MOST, MOST)) for v in values)

    def scorer(s: Scorer) -> Scorer:
        if isinstance(s, Trees):
            trees = tuple(replace(t, leaves=whole(t.leaves)) for t in s.trees)
            return replace(s, base=whole(s.base), trees=trees)
        if isinstance(s, Polynomial):
            weights = tuple(tuple(w % 127 for w in whole(row)) for row in s.weights)
            substitutes = tuple(None if x is None else 0 for x in s.substitutes)
            return replace(s, weights=weights, bias=whole(s.bias), substitutes=substitutes, constant=1)
        if isinstance(s, Stack):
            return replace(s, weights=tuple(tuple(w % 127 for w in whole(r)) for r in s.weights), bias=whole(s.bias))
        return s

    def node(n: Node) -> Node:
        if isinstance(n, Branch):
            return replace(n, threshold=whole([n.threshold])[0])
        return replace(n, margins=tuple(range(len(n.margins))), shift=0) if isinstance(n, Answer) else n

    return replace(program, scorers=tuple(map(scorer, program.scorers)), nodes=tuple(map(node, program.nodes)))


def device_needs(program: Program) -> tuple[float, float]:
    """Bytes of a draft's image at most, and its longest decision in milliseconds; infinite if no device takes it."""
    try:
        integers = rough(program)
        report = verify(integers)
        size = round(1.05 * len(make_image(integers, report.outlines)))  # integers may differ a little
        return size, worst_decision_ms(report.operations, "kernel")
    except (ProgramError, ImageError):
        return np.inf, np.inf


class Keeper:
    """Drops points that break a limit, counts them by limit, and remembers the least that any of them would need."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.limits = problem, problem.limits
        self.broken, self.least = Counter[str](), dict[str, float]()

    def kept(self, points: Sequence[P]) -> list[P]:
        """The points that keep every limit; points without a policy, of which only figures count, are all kept."""
        if not self.limits:
            return list(points)
        return [p for p in points if not p.is_offered or self._keeps(p)]

    def _keeps(self, point: Any) -> bool:
        for key, limit in self.limits.given.items():
            needed = self.needed(key, point)
            if needed > limit:
                self.broken[key] += 1
                self.least[key] = min(needed, self.least.get(key, np.inf))
                return False
        return True

    def needed(self, key: str, point: Any) -> float:
        """The least limit of this kind that the point keeps."""
        if key == "budget":
            return worst_cost(point)
        if key == "max_forward":
            rate = float(point.valid.forward_rate)
            return rate + float(np.sqrt(rate * (1 - rate) / self._n_judged))
        return self._needed_size(key, point)

    @cached_property
    def _n_judged(self) -> int:
        return len(Judge(self.problem).y)

    def _needed_size(self, key: str, point: Point) -> float:
        """The bytes in flash, or the milliseconds, of a point's program; infinite if no device takes it."""
        program = point.program
        assert program is not None
        n_bytes, ms = device_needs(program)
        return ms if key == "max_ms" else n_bytes + KERNEL_BYTES

    def lines(self) -> list[str]:
        """What is to be said of dropped points, a line each."""
        return [
            f"left out {n} policies over [policy] {key} = {self.limits.given[key]:g}: the nearest needs "
            f"{self.least[key]:g}"
            for key, n in self.broken.items()
        ]

    def check(self, points: Sequence[Any]) -> None:
        """Refuse a front without points.

        Raises
        ------
        InputError
            The limits have left no policy; the message names the limit that most policies break, and what it must be,
            or all of them if no method had one to offer.
        """
        if points or not self.limits:
            return
        if self.broken:
            key, n = self.broken.most_common(1)[0]
            raise InputError(
                f"no policy keeps [policy] {key} = {self.limits.given[key]:g}, which {n} policies break; the smallest "
                f"possible is {self.least[key]:g}"
            )
        given = ", ".join(f"{key} = {limit:g}" for key, limit in self.limits.given.items())
        raise InputError(f"no policy of these methods keeps [policy] {given}; allow more, or choose another method")


class BundleKeeper(Keeper):
    """A ``Keeper`` for items of several parts, whose points are bundles of integers already.

    The budget is of an item, and the bytes are those of the bundle: no kernel and no image decides a whole item.
    """

    def needed(self, key: str, point: Any) -> float:
        """The least limit of this kind that the point keeps."""
        if key == "budget":
            return float(point.worst_cost)
        if key == "max_forward":
            return float(point.valid.forward_rate + point.forward_se)
        return len(point.data)
