# SPDX-License-Identifier: Apache-2.0
"""A sweep: train all settings of the chosen methods, with successive halving; keep each method's best points.

The settings of all methods run in parallel, in any order, on any pool; the result does not depend on that. Finished
jobs may be stored in a ``JobCache`` and are then not run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.quality import Figures

from ..method import Setting
from ..methods import AUTO, METHODS
from ..methods.baselines.static import StaticSubset
from ..policy.front import Point, best_points
from ..policy.kinds import learned
from ..stages.kept import Keeper
from .halving import FEW_SETTINGS, MIN_ROWS, RUNG, Job, Ladder, climbers, fitting, savings, settings_of
from .loop import CHOICE, SETTINGS, Loop

RACE_ROWS = 400  # approximate number of training rows in the race
WORTH = 0.05  # mean decrease of the logarithm of the front's cost (about 5 %) that admits a method


@dataclass(frozen=True)
class Sweep:
    """A problem on its ladder, and the loop of its jobs.

    Parameters
    ----------
    hpc : the point of f0, the reference of savings
    keeper : of the problem's limits; None: there are none
    """

    ladder: Ladder
    hpc: Point
    loop: Loop
    keeper: Keeper | None = None

    def points(self, methods: Sequence[str]) -> list[Point]:
        """The points of each method that are best on the judged rows, without test figures.

        Parameters
        ----------
        methods : names in ``methods.METHODS``; "auto" stands for those that ``auto.chosen_methods`` returns
        """
        if any(m == AUTO or METHODS[m].method.searches_subsets for m in methods):
            self.loop.search(self.ladder)
        chosen = self.chosen(methods)
        order = [m for m in METHODS if m in chosen]  # slowest first
        grids = self._halved({m: settings_of(m, self.ladder) for m in order})
        jobs = [Job(setting) for settings in grids.values() for setting in settings]
        by_method: dict[str, list[Point]] = {m: [] for m in chosen}
        for job, points in zip(jobs, self.run(jobs), strict=True):
            by_method[job.setting.method] += points if self.keeper is None else self.keeper.kept(points)
        return [p for m in chosen for p in front_of(m, by_method[m])]

    def run(self, jobs: Sequence[Job], title: str = "settings") -> list[list[Point]]:
        """The points of each job; jobs in the cache are not run again."""
        return self.loop.all(self.ladder, jobs, SETTINGS if title == "settings" else CHOICE, title)

    def chosen(self, methods: Sequence[str]) -> list[str]:
        """The names of the methods, each once, in the given order, with "auto" resolved.

        Raises
        ------
        InputError
            A method that is no baseline does not learn values, and the problem has them; or it needs an order, and the
            rows have none.
        """
        fits = fitting(self.ladder.problem)
        methods = [m for m in methods if m == AUTO or m in fits or not METHODS[m].method.is_baseline]
        unfit = [m for m in methods if m != AUTO and m not in fits]
        if unfit and not learned(self.ladder.problem).takes(METHODS[unfit[0]].method):
            raise InputError(f"the method {unfit[0]} predicts classes, not values; use {', '.join(fits)}")
        if unfit:
            raise InputError(
                f"the method {unfit[0]} holds labels from row to row, but rows have no order; name the column of each "
                "row's stream in [data] sequence, or split by time"
            )
        if AUTO not in methods:
            return list(dict.fromkeys(methods))
        automatic = chosen_methods(self.ladder, self.hpc.valid, self.run)
        return list(dict.fromkeys(x for m in methods for x in (automatic if m == AUTO else [m])))

    def _halved(self, grids: dict[str, list[Setting]]) -> dict[str, list[Setting]]:
        """The settings that are trained on all rows."""
        halved = {m: g for m, g in grids.items() if METHODS[m].method.is_halved and len(g) >= FEW_SETTINGS}
        if len(self.ladder.problem.train.y) < MIN_ROWS or not halved:
            return grids
        trained = iter(self.run([Job(s, RUNG) for g in halved.values() for s in g], "first rung"))
        out = dict(grids)
        for method, grid in halved.items():
            points = [next(trained) for _ in grid]
            out[method] = [grid[k] for k in climbers(points, self.hpc.valid, self.ladder.problem.exchange)]
        return out


def front_of(method: str, points: list[Point]) -> list[Point]:
    """The Pareto front of a method on the judged rows; for fixed subsets also that of all sensors, for comparison."""
    best = best_points(points)
    if method != StaticSubset.method.name or not points:
        return best
    largest = max(points, key=lambda p: (len(p.params["sensors"]), p.valid.quality))
    return best if largest in best else [*best, largest]


# The method ``auto``: choose methods by a race on a subsample, as the first rung of successive halving.
#
# Methods marked "always" are included: ADAPT-GBRT, the baselines, graphs of sensor sets, and ``held`` where rows have
# an order. A method marked "raced" is included if its runners, trained on the subsample, lower the cost of the Pareto
# front of the "always" methods, as measured on the judged rows.


def chosen_methods(
    ladder: Ladder, hpc: Figures, run: Callable[[Sequence[Job], str], list[list[Point]]]
) -> tuple[str, ...]:
    """The methods that a sweep should include, the "always" methods first.

    Parameters
    ----------
    hpc : ``quality`` and ``cost`` of f0
    run : trains jobs, under a title for the progress bar, and returns the points of each
    """
    problem = ladder.problem
    always, raced = (tuple(m for m in fitting(problem) if METHODS[m].method.auto == how) for how in ("always", "raced"))
    if not problem.effort.races or problem.kept is not None:  # raced methods read every sensor
        return always
    rung = max(1, round(len(problem.train.y) / RACE_ROWS))
    jobs = [Job(s, rung) for m in (*always, *raced) for s in _runners(m, ladder)]
    saved = {m: np.zeros(1) for m in (*always, *raced)}  # no savings
    for job, points in zip(jobs, run(jobs, "race"), strict=True):
        method = job.setting.method
        saved[method] = np.maximum(saved[method], savings(points, hpc.quality, hpc.cost, problem.exchange))
    base = np.max([saved[m] for m in always], axis=0)
    gain = {m: float(np.maximum(saved[m] - base, 0).mean()) for m in raced}
    return (*always, *(m for m in raced if gain[m] > WORTH))


def _runners(method: str, ladder: Ladder) -> list[Setting]:
    """The settings that represent the method in the race; its first one if the effort leaves none of those."""
    settings = settings_of(method, ladder)
    return settings[METHODS[method].method.runners] or settings[:1]
