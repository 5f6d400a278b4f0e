# SPDX-License-Identifier: Apache-2.0
"""The Pareto front of trained policies: quality against cost.

A point has figures on the judged rows (``selection.Judge``), by which points are chosen, and on test rows, which are
only reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.more.batch.quality import Figures, figures_of
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.program.definition import Node, Program
from hardcase_edge.stream.layout import Layout

from ..data.problem import Problem
from .batch import Batch, walked
from .compile import Part, Policy, joint, n_numbers

MOST_NUMBERS = 1_000_000  # of leaves, in the parts that are compiled together for test figures


@dataclass(frozen=True)
class Point:
    """One policy: its method and parameters, its figures, and the policy itself or its draft program.

    valid : figures on the judged rows
    test : figures on test rows; None before ``with_test``
    """

    method: str
    params: dict[str, Any]
    valid: Judged
    test: Figures | None
    policy: Policy | Program | None  # None if only the figures matter
    memory: Layout | None = None  # of the inner sensor that the program has beyond the problem's

    @property
    def is_offered(self) -> bool:
        """Whether a device may run it."""
        return self.policy is not None

    @property
    def worst_cost(self) -> float | None:
        """Not known before the draft is proved."""
        return None

    @property
    def program(self) -> Program | None:
        """The draft program, compiled on each access: many large programs do not fit in memory together."""
        return self.policy.program() if isinstance(self.policy, Policy) else self.policy


def programs(points: Sequence[Point]) -> Iterator[tuple[int, Program, bool]]:
    """Each point's number and draft program, and whether its scorers are those of the program before.

    Points that use the same parts follow each other, so that their parts are compiled once.
    """

    def parts_of(k: int) -> tuple[int, tuple[int, ...]]:
        policy = points[k].policy
        return (id(policy.parts), policy.used) if isinstance(policy, Policy) else (id(policy), ())

    last: Program | None = None
    for _, group in groupby(sorted(range(len(points)), key=parts_of), key=parts_of):
        for n, k in enumerate(group):
            policy = points[k].policy
            last = policy.program(last if n else None) if isinstance(policy, Policy) else policy
            assert last is not None
            yield k, last, n > 0


def best_points(points: Sequence[Point]) -> list[Point]:
    """The Pareto front on judged rows, by rising cost.

    Each point has a higher quality than all cheaper ones, or a higher quality minus the standard error of its loss:
    ``hardcase export --max-loss`` picks by the latter.

    Examples
    --------
    >>> figures = [Judged(q, c, 0.0) for q, c in ((0.9, 5.0), (0.8, 1.0), (0.7, 3.0))]
    >>> points = best_points([Point("static", {}, f, None, None) for f in figures])
    >>> [(point.valid.cost, point.valid.quality) for point in points]
    [(1.0, 0.8), (5.0, 0.9)]
    """
    front: list[Point] = []
    best_quality = best_bound = -np.inf
    for point in sorted(points, key=lambda p: (p.valid.cost, -p.valid.quality, p.valid.loss_se)):
        quality = point.valid.quality
        bound = quality - point.valid.loss_se
        if quality > best_quality or bound > best_bound:
            front.append(point)
        best_quality, best_bound = max(best_quality, quality), max(best_bound, bound)
    return front


def used_parts(points: Sequence[Point]) -> list[Point]:
    """The points, whose policies let go of parts that none of them uses: a setting learns more than its front needs."""
    used: dict[int, set[int]] = {}
    for point in points:
        if isinstance(point.policy, Policy):
            used.setdefault(id(point.policy.parts), set()).update(point.policy.used)
    parts: dict[int, tuple[Part | None, ...]] = {}

    def kept(policy: Policy) -> Policy:
        key = id(policy.parts)
        if key not in parts:
            parts[key] = tuple(part if k in used[key] else None for k, part in enumerate(policy.parts))
        return replace(policy, parts=parts[key])

    return [replace(p, policy=kept(p.policy)) if isinstance(p.policy, Policy) else p for p in points]


def with_test(problem: Problem, points: Sequence[Point], n_jobs: int = 1) -> list[Point]:
    """The points with their figures on test rows, if there are any.

    The scores of parts that policies share are computed once, unless these parts are very large.
    """
    rows = problem.test
    if len(rows.y) == 0:
        return list(points)
    groups = list(_together([point.policy for point in points]))

    def tested(group: list[int]) -> list[Point]:
        program, walks = _walks([points[k].policy for k in group])
        memory = points[group[0]].memory
        batch = Batch(program, rows.X, sizes=rows.sizes) if memory is None else None

        def outcome(nodes: Sequence[Node]) -> Outcome:
            if batch is not None:
                return batch.run(rows.hpc_label, nodes)
            assert memory is not None
            return walked(program, memory, rows, nodes)

        return [
            replace(points[k], test=test_figures(problem, outcome(nodes), nodes))
            for k, nodes in zip(group, walks, strict=True)
        ]

    tested_groups = Parallel(n_jobs, prefer="threads")(delayed(tested)(group) for group in groups)
    places = (k for group in groups for k in group)
    return [p for _, p in sorted(zip(places, chain(*tested_groups), strict=True), key=itemgetter(0))]


def _together(policies: Sequence[Policy | Program | None]) -> Iterator[list[int]]:
    """Numbers of policies over the same parts, of at most ``MOST_NUMBERS`` numbers unless a single one has more.

    A program has a number of an array as an object of Python, which takes four times the memory.
    """
    groups: dict[int, list[int]] = {}
    for k, policy in enumerate(policies):
        groups.setdefault(id(getattr(policy, "parts", policy)), []).append(k)
    for group in groups.values():
        first = policies[group[0]]
        sizes = [n_numbers(part) for part in first.parts] if isinstance(first, Policy) else []
        together, parts = list[int](), set[int]()
        for used, k in sorted((p.used if isinstance(p := policies[k], Policy) else (), k) for k in group):
            more = parts | set(used)
            if together and more != parts and sum(sizes[m] for m in more) > MOST_NUMBERS:
                yield together
                together, more = [], set(used)
            together.append(k)
            parts = more
        yield together


def _walks(policies: Sequence[Policy | Program | None]) -> tuple[Program, list[tuple[Node, ...]]]:
    """The program and the nodes of each: of policies over the same parts, or of one program."""
    over_parts = [p for p in policies if isinstance(p, Policy)]
    if over_parts:
        return joint(over_parts)
    (program,) = {id(p): p for p in policies}.values()
    assert isinstance(program, Program)
    return program, [program.nodes] * len(policies)


def test_figures(problem: Problem, outcome: Outcome, nodes: Sequence[Node]) -> Figures:
    """The figures of this outcome of the test rows, which walked through these nodes."""
    rows, quality = problem.test, problem.quality
    confidence = outcome.confidence(nodes, rows.hpc_confidence) if quality.reads_confidences else None
    return figures_of(outcome, rows.y, rows.weight, quality, rows.group, confidence)
