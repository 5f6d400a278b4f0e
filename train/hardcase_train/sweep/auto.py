"""The method ``auto``: choose methods by a race on few rows, as the first rung of successive halving.

Methods marked "always" are taken: ADAPT-GBRT, both baselines and graphs of sensor sets. One marked "raced" is taken
where its runners, trained on a subsample, lower the cost of the Pareto front that those of the others make; the judged
rows decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..method import Setting
from ..methods import METHODS
from ..policy.front import Figures, Point
from .halving import savings
from .rungs import Job, Ladder, settings_of

__all__ = ["chosen_methods"]

RACE_ROWS = 400  # about so many training rows
WORTH = 0.05  # mean logarithm of cost: a method enters if it makes the front about so much cheaper


def chosen_methods(
    ladder: Ladder, hpc: Figures, run: Callable[[Sequence[Job], str], list[list[Point]]]
) -> tuple[str, ...]:
    """The methods that a sweep should take, those that always are the first.

    Parameters
    ----------
    hpc : f0's ``quality`` and ``cost``
    run : trains jobs; their points
    """
    always, raced = (tuple(m for m, cls in METHODS.items() if cls.method.auto == how) for how in ("always", "raced"))
    if not ladder.problem.effort.races:
        return always
    rung = max(1, round(len(ladder.problem.train.y) / RACE_ROWS))
    jobs = [Job(s, rung) for m in (*always, *raced) for s in _runners(m, ladder)]
    saved = {m: np.zeros(1) for m in (*always, *raced)}  # at least nothing
    for job, points in zip(jobs, run(jobs, "race"), strict=True):
        method = job.setting.method
        saved[method] = np.maximum(saved[method], savings(points, hpc["quality"], hpc["cost"]))
    base = np.max([saved[m] for m in always], axis=0)
    gain = {m: float(np.maximum(saved[m] - base, 0).mean()) for m in raced}
    return (*always, *(m for m in raced if gain[m] > WORTH))


def _runners(method: str, ladder: Ladder) -> list[Setting]:
    """The settings that run for the method; the first where the effort leaves it none of those."""
    settings = settings_of(method, ladder)
    return settings[METHODS[method].method.runners] or settings[:1]
