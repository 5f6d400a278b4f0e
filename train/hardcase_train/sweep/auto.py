# SPDX-License-Identifier: Apache-2.0
"""The method ``auto``: choose methods by a race on a subsample, as the first rung of successive halving.

Methods marked "always" are included: ADAPT-GBRT, the baselines, graphs of sensor sets, and ``held`` where rows have an
order. A method marked "raced" is included if its runners, trained on the subsample, lower the cost of the Pareto front
of the "always" methods, as measured on the judged rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hardcase_edge.more.batch.quality import Figures

from ..method import Setting
from ..methods import METHODS
from ..policy.front import Point
from .halving import savings
from .rungs import Job, Ladder, fitting, settings_of

__all__ = ["chosen_methods"]

RACE_ROWS = 400  # approximate number of training rows in the race
WORTH = 0.05  # mean decrease of the logarithm of the front's cost (about 5 %) that admits a method


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
