"""The method ``auto``: which families are worth a whole sweep, by a race on few rows.

ADAPT-GBRT and both baselines always are, and graph policies where sensors are many: on chains they take no longer than
the cascade. Another family is where its runners, on few training rows, save something that theirs do not: where the
front of all becomes cheaper by its points. The judged rows decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..methods.graph.dag import has_few
from ..policy.front import Figures, Point
from .halving import savings
from .methods import settings_of
from .rungs import Job, Ladder

__all__ = ["DEFAULT", "families"]

DEFAULT = ("adapt-gbrt", "static", "cascade")
OTHERS = ("greedy-miser", "budget-prune", "l1", "adapt-lin", "dag")  # adapt-lstsq is near the last and slower: by name
RUNNERS = {  # of each family's grid; whole paths of the linear ones, so one of them is enough
    "adapt-gbrt": slice(1, None, 4),
    "static": slice(0, None, 3),
    "cascade": slice(0, 1),
    "greedy-miser": slice(1, None, 2),
    "budget-prune": slice(1, 2),
    "l1": slice(0, 1),
    "adapt-lin": slice(1, 2),
    "dag": slice(0, 1),
}
RACE_ROWS = 400  # about so many training rows
WORTH = 0.05  # mean logarithm of cost: a family enters if it makes the front about so much cheaper


def families(ladder: Ladder, hpc: Figures, run: Callable[[Sequence[Job], str], list[list[Point]]]) -> tuple[str, ...]:
    """The methods that a sweep should take, those that always are the first.

    Parameters
    ----------
    hpc : f0's ``accuracy`` and ``cost``
    run : trains jobs; their points
    """
    rung = max(1, round(len(ladder.problem.train.y) / RACE_ROWS))
    always = DEFAULT if has_few(ladder.problem) else (*DEFAULT, "dag")
    others = tuple(m for m in OTHERS if m not in always)
    jobs = [Job(s, rung) for m in (*always, *others) for s in settings_of(m, ladder.at(1))[RUNNERS[m]]]
    saved = {m: np.zeros(1) for m in (*always, *others)}  # at least nothing
    for job, points in zip(jobs, run(jobs, "race"), strict=True):
        mine = job.setting.method
        saved[mine] = np.maximum(saved[mine], savings(points, hpc["accuracy"], hpc["cost"]))
    base = np.max([saved[m] for m in always], axis=0)
    gain = {m: float(np.maximum(saved[m] - base, 0).mean()) for m in others}
    return (*always, *(m for m in others if gain[m] > WORTH))
