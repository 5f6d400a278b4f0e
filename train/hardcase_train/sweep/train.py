# SPDX-License-Identifier: Apache-2.0
"""Train a problem: how many settings of each method, on which sensors, and the points of f0 and of the sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np

from hardcase_edge.program.definition import Forward

from ..data.problem import Problem, Subset
from ..methods import AUTO, METHODS
from ..policy.answers import bare_answer
from ..policy.compile import compile_program
from ..policy.front import Point, best_points, used_parts, with_test
from ..policy.kinds import answer_loss
from ..policy.selection import Judge
from ..stages.deadline import Deadline
from ..stages.kept import Keeper
from ..stages.subset_search import SubsetSearch
from ..trees.binning import Bins
from ..trees.boosting import Ensemble
from .executors import Pool, n_threads, open_pool
from .halving import Ladder, fitting
from .job_cache import JobCache
from .loop import Loop
from .sweep import Sweep
from .timed import TimedSweep

MANY_SENSORS = 100  # with at most so many, all are searched: it takes minutes at most
LEAST_HEAD = 40  # sensors of each ranking that are tried first; full models use more than small ones can
ROUNDS = 3  # of boosting, each without the sensors that earlier rounds used


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
    fitting: Callable[[list[Point]], list[Point]] = list,
) -> list[Point]:
    """The point of f0, the best points of every method that keep the limits, and the fixed set of all sensors.

    Parameters
    ----------
    methods : names in ``methods.METHODS``, or "auto"
    quiet : whether to show no progress bars on stderr
    pool : where jobs run; None: threads of this machine
    jobs : number of threads; None: one per core, and one for a small table (``executors.n_threads``)
    cache : finished jobs of earlier runs
    say : called before training with one line, the plan of the sweep; under a deadline after each front, too
    deadline : of the whole run; None: train all settings on all rows. Under a deadline, ``cache`` is not used, and
        the points depend on the speed of this machine
    better : called with the points of the first front, as soon as they are there, if there is a deadline
    fitting : leaves out points before test figures are computed
    """
    judge, keeper = Judge(problem), Keeper(problem)
    hpc = hpc_point(judge)
    n_jobs = n_threads(jobs, len(problem.train.y))

    def tested(points: list[Point]) -> list[Point]:
        points[:] = fitting(used_parts(points))  # in place: callers would hold the models that are let go
        return [hpc, *with_test(problem, points, n_jobs)]

    def checked(points: list[Point]) -> list[Point]:
        for line in keeper.lines():
            (say or _nothing)(line)
        keeper.check(points)
        return tested(points)

    with open_pool(jobs=n_jobs) if pool is None else nullcontext(pool) as opened:
        problem, screening = screen(problem, n_jobs)
        for line in (screening, judge.warning()):
            if say is not None and line is not None:
                say(str(line))
        if deadline is not None:
            timed = TimedSweep(problem, hpc, Loop(opened, quiet=quiet), n_jobs, deadline, say or _nothing, keeper)
            return checked(timed.points(methods, lambda points: (better or _nothing)(tested(points))))
        ladder = Ladder(problem, n_jobs)
        if say is not None:
            say(plan_of(problem, methods))
        points = Sweep(ladder, hpc, Loop(opened, cache, quiet), keeper).points(methods)
        del ladder  # and with it the models that no point uses
        return checked(points)


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


# Screening of many sensors: keep few, without which small classifiers lose nothing that the judged rows can see.
#
# The time of a search grows with the square of the number of sensors. Sensors are ranked in three ways: by the order
# in which boosting on all of them uses them, by the gain of each alone, and by that gain per cost. The heads of the
# three lists together are kept. Their length doubles; the shortest is chosen whose loss, on rows that the small
# classifiers have not seen, is within one standard error (paired by row or group) of that with all sensors, and of
# the best that any length reached.


@dataclass(frozen=True)
class Screening:
    """The sensors that were kept, and what that costs small classifiers on judged rows that they have not seen.

    loss, loss_of_all : mean loss with the kept sensors, and with all
    excess, excess_se : by how much the loss with the kept sensors exceeds that with all, and its standard error, which
        it does not exceed
    """

    kept: Subset
    n_sensors: int
    loss: float
    loss_of_all: float
    excess: float
    excess_se: float

    def __str__(self) -> str:
        return (
            f"screened {self.n_sensors:,} sensors to {len(self.kept)}: loss of small models {self.loss:.3f} against "
            f"{self.loss_of_all:.3f} with all (by {self.excess:+.3f}, one standard error is {self.excess_se:.3f})"
        )


def screen(problem: Problem, n_jobs: int = 1) -> tuple[Problem, Screening | None]:
    """The problem with the sensors that policies may read, and the promise; unchanged with at most MANY_SENSORS."""
    if len(problem.offered) <= MANY_SENSORS:
        return problem, None
    search = SubsetSearch(Judge(problem), n_jobs)
    heads = list(_heads(rankings(search)))
    losses = [search.row_losses(kept) for kept in heads]
    weight = search.judge.weight[search.probed]
    means = [float(np.average(loss, weights=weight)) for loss in losses]
    best = losses[int(np.argmin(means))]

    def over(loss: np.ndarray, other: np.ndarray) -> tuple[float, float]:
        return search.judge.paired(loss - other, search.probed)

    def is_near(k: int) -> bool:
        return all(excess <= se for excess, se in (over(losses[k], other) for other in (best, losses[-1])))

    k = next(k for k in range(len(heads)) if is_near(k))  # the best is near at the latest
    promise = Screening(heads[k], len(problem.offered), means[k], means[-1], *over(losses[k], losses[-1]))
    return replace(problem, kept=promise.kept), promise


def rankings(search: SubsetSearch) -> list[list[int]]:
    """Three orders of all offered sensors, the most promising first."""
    sensors = search.sensors
    nothing, *alone = search.losses([(), *((s,) for s in sensors)])
    gain = {s: nothing - loss for s, loss in zip(sensors, alone, strict=True)}
    worth = {s: g / search.costs[s] if g > 0 else g for s, g in gain.items()}
    by_gain, by_worth = (sorted(sensors, key=lambda s: (-value[s], s)) for value in (gain, worth))
    used: list[int] = []
    for _ in range(ROUNDS):
        left = tuple(sorted(set(sensors) - set(used)))
        used += _in_order_of_use(search.small_classifier(left), search.problem.sensor_of)
    return [used + [s for s in by_gain if s not in set(used)], by_gain, by_worth]


def _in_order_of_use(e: Ensemble, sensor_of: np.ndarray) -> list[int]:
    """The sensors that the trees split on; growth is best-first, so those of high gain come early."""
    return list(dict.fromkeys(int(sensor_of[e.features[f]]) for tree in e.trees for f in tree.features))


def _heads(orders: Sequence[Sequence[int]]) -> Iterator[Subset]:
    """Unions of the orders' heads, each twice as long as the one before; the last has all sensors."""
    n, head = len(orders[0]), LEAST_HEAD
    while True:
        kept = tuple(sorted({s for order in orders for s in order[:head]}))
        yield kept
        if len(kept) == n:
            return
        head *= 2


def plan_of(problem: Problem, methods: Sequence[str]) -> str:
    """What a sweep trains, in a line: rows, sensors, effort, and about how many settings of each method.

    Parameters
    ----------
    methods : as for ``Sweep.points``; "auto" stands for the methods that it always includes
    """
    names = [m for name in methods for m in (_always() if name == AUTO else (name,))]
    settings = ", ".join(f"{m} ({METHODS[m].n_settings(problem)})" for m in fitting(problem) if m in names)
    rows, sensors = len(problem.train.y), len(problem.sensors)
    return f"{rows} training rows, {sensors} sensors, effort {problem.effort.name}; settings about: {settings}"


def _always() -> tuple[str, ...]:
    return tuple(name for name, cls in METHODS.items() if cls.method.auto == "always")
