# SPDX-License-Identifier: Apache-2.0
"""Train a problem: the point of f0, and the points of a sweep over the methods."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

from hardcase_edge.program.definition import Forward

from ..data.problem import Problem
from ..methods import METHODS
from ..policy.answers import bare_answer
from ..policy.compile import compile_program
from ..policy.front import Point, best_points, with_test
from ..policy.kinds import answer_loss
from ..policy.selection import Judge
from ..stages.deadline import Deadline
from ..stages.kept import Keeper
from ..stages.screening import screen
from ..stages.subset_search import SubsetSearch
from ..trees.binning import Bins
from ..trees.boosting import Ensemble
from .executors import Pool, n_threads, open_pool
from .job_cache import JobCache
from .loop import Loop
from .plan import make_plan
from .rungs import Ladder
from .sweep import Sweep
from .timed import TimedSweep

__all__ = ["hpc_point", "learn", "points_of"]


def learn(
    problem: Problem,
    methods: tuple[str, ...],
    *,
    quiet: bool = False,
    pool: Pool | None = None,
    jobs: int | None = None,
    cache: JobCache | None = None,
    say: Callable[[str], None] | None = None,
    deadline: Deadline | None = None,
    better: Callable[[list[Point]], None] | None = None,
) -> list[Point]:
    """The point of f0, the best points of every method that keep the limits, and the fixed set of all sensors.

    Parameters
    ----------
    methods : names in ``methods.METHODS``, or "auto"
    quiet : whether to show no progress bars on stderr
    pool : where jobs run; None: threads of this machine
    jobs : number of threads; None: one per core
    cache : finished jobs of earlier runs
    say : called before training with one line, the plan of the sweep; under a deadline after each front, too
    deadline : of the whole run; None: train all settings on all rows. Under a deadline, ``cache`` is not used, and
        the points depend on the speed of this machine
    better : called with the points of the first front, as soon as they are there, if there is a deadline
    """
    judge, keeper = Judge(problem), Keeper(problem)
    hpc = hpc_point(judge)
    n_jobs = n_threads(jobs)

    def tested(points: list[Point]) -> list[Point]:
        return [hpc, *with_test(problem, points, n_jobs)]

    def checked(points: list[Point]) -> list[Point]:
        for line in keeper.lines():
            (say or _nothing)(line)
        keeper.check(points)
        return tested(points)

    with open_pool(jobs=jobs) if pool is None else nullcontext(pool) as opened:
        problem, screening = screen(problem, n_jobs)
        for line in (screening, judge.warning()):
            if say is not None and line is not None:
                say(str(line))
        if deadline is not None:
            timed = TimedSweep(problem, hpc, Loop(opened, quiet=quiet), n_jobs, deadline, say or _nothing, keeper)
            return checked(timed.points(methods, lambda points: (better or _nothing)(tested(points))))
        ladder = Ladder(problem, n_jobs)
        if say is not None:
            say(str(make_plan(ladder, methods, n_jobs)))
        return checked(Sweep(ladder, hpc, Loop(opened, cache, quiet), keeper).points(methods))


def _nothing(_: object) -> None:
    pass


def hpc_point(judge: Judge) -> Point:
    """f0 for every row: buy all that a request carries, and forward; without the cloud, the most frequent class."""
    problem = judge.problem
    base = answer_loss(problem).base()
    nodes = (Forward(problem.hpc_sensors, 1), bare_answer(problem, 0))
    program = compile_program(problem, [Ensemble(Bins(()), np.empty(0, dtype=np.int64), base)], nodes)
    figures = judge.summary(judge.run(program, []))
    return with_test(problem, [Point("hpc", {}, figures, None, program)])[0]


def points_of(method: str, judge: Judge) -> list[Point]:
    """The best points of all settings of a method on the judged rows, trained sequentially on this thread."""
    search, run = SubsetSearch(judge, 1), METHODS[method].run
    points = [point for params in METHODS[method].grid(search) for point in run(search, params)]
    return with_test(judge.problem, best_points(Keeper(judge.problem).kept(points)))
