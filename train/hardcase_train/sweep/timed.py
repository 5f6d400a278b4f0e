# SPDX-License-Identifier: Apache-2.0
"""A sweep under a time limit: a first front from small models on few rows, then better ones while time is left.

Sensor sets are searched on few rows for the first front, and once more with the full effort for all later ones. The
settings of the leading methods, those that gave the front many of its points so far, then run on more and more rows
with small models, and at last on all rows with models of the size that was asked for: each time at the last of these
steps at which they would end in time, by what they have taken so far, or at the first if there is none. The settings of
all other methods follow at the last step, or where none of the leading ones would end in time. A setting that would not
end in time is not started. What is reached depends on the speed of the machine.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..data.problem import Problem
from ..methods import METHODS
from ..policy.front import Point, best_points
from ..policy.selection import Judge
from ..settings.effort import QUICK
from ..stages.deadline import Deadline
from ..stages.kept import Keeper
from ..trees.size import MANY_ROWS, size_of
from ..trees.subset_classifier import FOREST, TREES
from .halving import ALL, Job, Ladder, run_job, sample, settings_of
from .loop import CHOICE, SETTINGS, Loop
from .sweep import Sweep, front_of

FIRST_SHARE = 0.1  # of the limit, for the first front, once f0 is fitted
LAST_SHARE = 0.05  # of the limit at least, for test figures, the report and the files of the last front
LAST_TIMES = 2.5  # as long as for the first front: more settings give more policies
LAST_GROWTH = 0.3  # power of a model's leaves with which that time grows
SEARCH_SHARE = 0.5  # of that, for the sensor sets
SECOND_SHARE = 0.2  # of what is left then, for the second search of sensor sets
LEADING = 0.1  # of the points of the front: a method with fewer waits for the rung of all rows
FIRST_ROWS = 6000  # training rows of the first front at most, where validation rows alone are judged
FASTER = 4  # each rung has at most so many times the rows of the one before, or trees
FIRST_METHODS = ("dag", "cascade", "static")  # come first in the first front, with at least one setting each
MARGIN = 1.3  # a setting may take so many times what a smaller one took, in proportion to the work of a model
LEAST_GROWTH = 0.3  # power of a model's work with which a setting's time grows at least: part of it is scoring alone
FOREST_WORK = 4.0  # of a setting with forests, in settings with boosted trees

Kind = tuple[str, str, bool]  # a method, a kind of classifier, and whether a setting trains a chain of sets


def kind_of(job: Job) -> Kind:
    """Settings of one kind take about the same time."""
    params = job.setting.params
    is_chain = "chain" in params or params.get("subsets") == "chains"
    return job.setting.method, params.get("classifier", TREES), is_chain


@dataclass
class Clock:
    """Runs jobs that would end before the deadline, and notes the longest time of each kind, in seconds.

    Parameters
    ----------
    deadline : of the jobs
    expected : of each kind, by the jobs on fewer rows
    taken : the longest of each kind so far
    before : what each kind took on the rows before these
    work : of a model on these rows, in models on the rows before
    """

    deadline: Deadline
    expected: dict[Kind, float] = field(default_factory=dict)
    taken: dict[Kind, float] = field(default_factory=dict)
    before: dict[Kind, float] = field(default_factory=dict)
    work: float = 1.0

    def run(self, ladder: Ladder, job: Job) -> list[Point] | None:
        """The job's points; None if it would not end in time."""
        return None if self.deadline.left() < self.seconds(job) else self.measured(ladder, job)

    def measured(self, ladder: Ladder, job: Job) -> list[Point]:
        """The job's points, whatever the time."""
        began = time.monotonic()
        points = run_job(ladder, job)
        self.taken[kind_of(job)] = max(self.taken.get(kind_of(job), 0.0), time.monotonic() - began)
        return points

    def are_late(self, jobs: Sequence[Job]) -> bool:
        """Whether none of the jobs would end before the deadline."""
        return all(self.seconds(job) > self.deadline.left() for job in jobs)

    def seconds(self, job: Job) -> float:
        """What the job may take; of a kind that has not run, as long as the longest that has, and 0 if none has."""
        kind = kind_of(job)
        times = {**self.expected, **self.taken}
        longest = max(times.values(), default=0.0)
        if kind[1] == FOREST and kind not in times:
            return FOREST_WORK * times.get((kind[0], TREES, kind[2]), longest)
        return times.get(kind, longest)

    def then(self, deadline: Deadline, work: float) -> Clock:
        """The clock of jobs whose models need ``work`` times as much work as these did."""
        times = {**self.expected, **self.taken}
        expected = {kind: MARGIN * work ** self._growth(kind) * seconds for kind, seconds in times.items()}
        return Clock(deadline, expected, before=self.taken, work=work)

    def _growth(self, kind: Kind) -> float:
        """The power of a model's work with which the kind's time has grown so far; 1 at most, and where unknown."""
        seconds, before = self.taken.get(kind, 0.0), self.before.get(kind, 0.0)
        if min(seconds, before) <= 0 or self.work <= 1:
            return 1.0
        return min(1.0, max(LEAST_GROWTH, math.log(seconds / before) / math.log(self.work)))


@dataclass(frozen=True)
class TimedSweep:
    """A problem, the loop of its jobs, and the deadline of the whole run.

    Parameters
    ----------
    problem : screened, if it has many sensors
    hpc : the point of f0
    say : called with a line after each front
    keeper : of the problem's limits; None: there are none
    """

    problem: Problem
    hpc: Point
    loop: Loop
    n_jobs: int
    deadline: Deadline
    say: Callable[[str], None]
    keeper: Keeper | None = None

    def points(self, methods: Sequence[str], better: Callable[[list[Point]], None]) -> list[Point]:
        """The best points of each method on the judged rows, without test figures.

        ``better`` is called with those of the first front.
        """
        ladder = first = Ladder(first_problem(self.problem), self.n_jobs)
        chosen = Sweep(ladder, self.hpc, self.loop).chosen(methods)
        order = [m for m in FIRST_METHODS if m in chosen] + [m for m in METHODS if m in {*chosen} - {*FIRST_METHODS}]
        clock = Clock(Deadline.after(FIRST_SHARE * self.deadline.limit))
        self.loop.search(ladder, clock.deadline.before((1 - SEARCH_SHARE) * clock.deadline.limit))
        ladder.at(ALL).deadline = clock.deadline
        points = self._run(ladder, _jobs(ladder, order), clock, CHOICE)
        began = time.monotonic()
        better(_fronts(chosen, points))
        seconds = time.monotonic() - began
        left = [Ladder(step, self.n_jobs) for step in later_problems(self.problem)]
        lasts = [last_deadline(self.deadline, seconds, ladder.problem, later.problem) for later in left]
        guide = ladder
        if lasts[0].left() > 0:
            guide = left[0]
            self.loop.search(guide, lasts[0].before((1 - SECOND_SHARE) * lasts[0].left()), SETTINGS)
        for later, last in zip(left, lasts, strict=True):
            later.at(ALL).deadline = last
            if later is not guide:
                later.at(ALL).follow(guide.at(ALL))
        while left:
            worth = Counter(p.method for p in best_points(points))
            order.sort(key=lambda m, worth=worth: -worth[m])  # type: ignore[misc]
            leading = [m for m in order if worth[m] >= LEADING * worth.total()]
            fitting = [(k, *self._planned(left[k], ladder, leading, clock, lasts[k])) for k in range(len(left))]
            k, jobs, next_clock, _ = next((f for f in reversed(fitting) if f[3] < lasts[f[0]].left()), fitting[0])
            if k == len(left) - 1 or next_clock.are_late(jobs):
                jobs += _jobs(left[k], [m for m in order if m not in leading])
            if next_clock.are_late(jobs):
                what = "" if left[0].problem.size_name == "small" or ladder is first else "large models of "
                rows = f"{what}{_n_rows(left[0])} training rows"
                self.say(f"no time was left for {rows}; a longer limit gives better policies")
                break
            ladder, clock, left, lasts = left[k], next_clock, left[k + 1 :], lasts[k + 1 :]
            points += self._run(ladder, jobs, clock, SETTINGS)
        return _fronts(chosen, points)

    def _planned(
        self, ladder: Ladder, before: Ladder, methods: Sequence[str], clock: Clock, last: Deadline
    ) -> tuple[list[Job], Clock, float]:
        """The jobs of a ladder, their clock, and the seconds that they may take, by the clock of those before."""
        jobs = _jobs(ladder, methods)
        own = clock.then(last, _work(ladder.problem) / _work(before.problem))
        return jobs, own, sum(map(own.seconds, jobs)) / self.n_jobs

    def _run(self, ladder: Ladder, jobs: list[Job], clock: Clock, phase: int) -> list[Point]:
        """The points of the jobs that end in time; in the first front, one job of each method runs in any case."""
        what = f"{'first front' if phase == CHOICE else 'settings'}, {_n_rows(ladder)} rows"
        must = _one_of_each(jobs) if phase == CHOICE else []
        rest = [job for job in jobs if job not in must]
        parts = [(clock.measured, must), (clock.run, rest)]
        found = self.loop.run(ladder, parts, phase, what, lambda: f"{max(0.0, self.deadline.left()):.0f} s left")
        ended = [points for points in found if points is not None]
        n_ended = len(ended)
        points = [p for part in ended for p in (part if self.keeper is None else self.keeper.kept(part))]
        self.say(
            f"{what}: {n_ended} of {len(jobs)} settings ended in time, {len(points)} policies; "
            f"{max(0.0, self.deadline.left()):.0f} s left"
        )
        return points


def first_problem(problem: Problem) -> Problem:
    """The problem of the first front: quick effort, small models, few training rows."""
    rung = ALL if Judge(problem).is_crossed else math.ceil(len(problem.train.y) / FIRST_ROWS)
    return replace(sample(problem, rung), effort=QUICK, size_name="small")


def later_problems(problem: Problem) -> list[Problem]:
    """The problems of the fronts after the first: more and more rows with small models, then large models of few trees.

    The last is the problem itself.

    Where training rows are judged too, all of them have all rows, because policies are compared on the same judged
    rows. There are no small models where the problem's own are small, or its size was asked for.
    """
    rungs = [ALL]
    if not Judge(problem).is_crossed:
        while len(problem.train.y) >= rungs[0] * FASTER * MANY_ROWS:
            rungs.insert(0, rungs[0] * FASTER)
    if problem.size_name != "auto" or len(problem.train.y) < MANY_ROWS:
        return [sample(problem, k) for k in rungs]
    few = replace(problem, effort=replace(problem.effort, tree_share=problem.effort.tree_share / FASTER))
    return [*(replace(sample(problem, k), size_name="small") for k in rungs), few, problem]


def last_deadline(whole: Deadline, seconds: float, first: Problem, later: Problem) -> Deadline:
    """When the settings of a front must end, if test figures, report and files of the first one took so long."""
    growth = (_n_leaves(later) / _n_leaves(first)) ** LAST_GROWTH
    return whole.before(max(LAST_SHARE * whole.limit, LAST_TIMES * growth * seconds))


def _jobs(ladder: Ladder, methods: Sequence[str]) -> list[Job]:
    return [Job(setting) for method in methods for setting in settings_of(method, ladder)]


def _one_of_each(jobs: Sequence[Job]) -> list[Job]:
    """The first job of each of FIRST_METHODS; the first of all if there are none."""
    first = [next((job for job in jobs if job.setting.method == m), None) for m in FIRST_METHODS]
    return [job for job in first if job is not None] or list(jobs[:1])


def _fronts(methods: Sequence[str], points: list[Point]) -> list[Point]:
    return [p for m in methods for p in front_of(m, [q for q in points if q.method == m])]


def _n_rows(ladder: Ladder) -> str:
    return f"{len(ladder.problem.train.y):,}"


def _n_leaves(problem: Problem) -> int:
    """Of a model, at most."""
    size = size_of(problem)
    return size.n_trees * size.model.max_leaves


def _work(problem: Problem) -> float:
    """What a model costs, up to a factor: rows, trees, and levels of a tree."""
    size = size_of(problem)
    return len(problem.train.y) * size.n_trees * math.log2(size.model.max_leaves)
