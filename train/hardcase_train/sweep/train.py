"""All points of a task's front: f0's, and those of a sweep over the methods."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

from hardcase_edge.program.definition import Answer, Forward, Slice

from ..data.problem import Problem
from ..methods import METHODS
from ..policy.compile import compile_program
from ..policy.front import Point, best_points, with_test
from ..policy.losses import ClassLoss
from ..policy.selection import Judge
from ..stages.subset_search import SubsetSearch
from ..trees.binning import Bins
from ..trees.boosting import Ensemble
from .executors import Pool, n_threads, open_pool
from .job_cache import Kept
from .plan import make_plan
from .rungs import Ladder
from .sweep import Sweep

__all__ = ["hpc_point", "learn", "points_of"]


def learn(
    problem: Problem,
    methods: tuple[str, ...],
    *,
    quiet: bool = False,
    pool: Pool | None = None,
    jobs: int | None = None,
    kept: Kept | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Point]:
    """Points of f0 and of every method, each method's best on validation rows, and the fixed set of all sensors.

    Parameters
    ----------
    methods : of ``methods.METHODS``, or "auto"
    quiet : bool
        No progress bars on stderr.
    pool : where jobs run; threads of this machine unless given
    jobs : threads here, one per core unless given
    kept : finished jobs of an earlier run
    say : takes one line, before the long work: what is about to be done, and about how long it takes
    """
    hpc = hpc_point(Judge(problem))
    with open_pool(jobs=jobs) if pool is None else nullcontext(pool) as opened:
        ladder = Ladder(problem, n_threads(jobs))
        if say is not None:
            say(str(make_plan(ladder, methods, n_threads(jobs))))
        sweep = Sweep(ladder, hpc, opened, kept, quiet)
        points = sweep.points(methods)
    return [hpc, *with_test(problem, points, n_threads(jobs))]


def hpc_point(judge: Judge) -> Point:
    """f0 for every row: buy all that a request carries, forward; the most frequent class where the cloud is away."""
    problem = judge.problem
    base = ClassLoss(problem.train.y, problem.n_classes, problem.train.weight).base()
    nodes = (Forward(problem.hpc_sensors, 1), Answer(Slice(0, 0, len(base))))
    program = compile_program(problem, [Ensemble(Bins(()), np.empty(0, dtype=np.int64), base)], nodes)
    figures = judge.summary(judge.run(program, []))
    return with_test(problem, [Point("hpc", {}, figures, {}, program)])[0]


def points_of(method: str, judge: Judge) -> list[Point]:
    """The points that the judged rows keep over all settings of a method, one after another on this thread."""
    search, run = SubsetSearch(judge, 1), METHODS[method].run
    points = [point for params in METHODS[method].grid(search) for point in run(search, params)]
    return with_test(judge.problem, best_points(points))
