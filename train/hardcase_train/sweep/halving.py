# SPDX-License-Identifier: Apache-2.0
"""Successive halving: the rungs, each with more rows, and which settings of a method are worth the next.

Weak settings can be recognised on a subsample. The value of a setting is what it adds to the other settings: for each
of several accuracy losses below f0 (as in ``hardcase export --max-loss``) the cheapest point of the front counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hardcase_edge.more.batch.quality import Figures

from ..data.problem import N_FOLDS, Problem, Rows
from ..data.split import N_BLOCKS, blocks, deal, strata, stratified
from ..method import Setting
from ..methods import METHODS
from ..policy.front import Point
from ..policy.kinds import learned
from ..policy.selection import Judge
from ..stages.subset_search import SubsetSearch

RUNG = 4  # the first rung trains on one row in RUNG, the second on all rows
MIN_ROWS = 10_000  # training rows; with fewer, the first rung saves little time and its figures are too noisy
FEW_SETTINGS = 4  # a method with fewer settings trains all of them on all rows
LOSSES = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)  # of quality, below the reference's
LEAST = 1e-3  # relative to the cost of f0 for every case; cheaper points count as this
ALL = 1  # the rung of all rows


def savings(points: Sequence[Point], quality: float, cost: float, exchange: float | None = None) -> np.ndarray:
    """Log ratio of ``cost`` to that of the cheapest point within each of LOSSES, at least 0, (n_losses,).

    Where errors have costs, the last one is instead that of the total cost of the best point.

    Parameters
    ----------
    quality : reference from which the losses are counted
    cost : mean cost of f0 for every case, in the user's unit
    exchange : as in ``data.problem.Problem``

    Examples
    --------
    >>> from hardcase_edge.more.fronts.front import Judged
    >>> points = [Point("dag", {}, Judged(0.895, 5.0, 0.0), None, None)]
    >>> savings(points, quality=0.9, cost=10.0).round(2).tolist()
    [0.0, 0.0, 0.69, 0.69, 0.69, 0.69, 0.69, 0.69]
    """
    out = np.zeros(len(LOSSES))
    for k, loss in enumerate(LOSSES):
        costs = [p.valid.cost for p in points if p.valid.quality >= quality - loss - 1e-12]
        if costs and cost > 0:
            out[k] = max(0.0, -np.log(max(min(costs) / cost, LEAST)))
    if exchange is not None and points:
        reference = cost + (1 - quality) / exchange
        best = min(p.valid.cost + (1 - p.valid.quality) / exchange for p in points)
        out[-1] = max(0.0, -np.log(max(best / reference, LEAST))) if reference > 0 else 0.0
    return out


def climbers(results: Sequence[Sequence[Point]], hpc: Figures, exchange: float | None = None) -> list[int]:
    """Indices, in rising order, of the settings that together keep most of the savings of all: a quarter to a half.

    Greedy: repeatedly choose the setting that adds most to those chosen before, until none adds anything. If fewer
    than a quarter were chosen, repeat the selection among the remaining settings.

    Parameters
    ----------
    results : the points of each setting
    hpc : ``quality`` and ``cost`` of f0 on the rows on which the points were judged
    exchange : as for ``savings``

    Examples
    --------
    >>> from hardcase_edge.more.fronts.front import Judged
    >>> def setting(quality, cost):
    ...     return [Point("dag", {}, Judged(quality, cost, 0.0), None, None)]
    >>> results = [setting(0.9, 8.0), setting(0.9, 2.0), setting(0.5, 1.0), setting(0.9, 9.0)]
    >>> climbers(results, Figures(0.9, 10.0, 1.0))
    [1]
    """
    best = max((p.valid.quality for points in results for p in points), default=0.0)
    saved = np.array([savings(points, min(best, hpc.quality), hpc.cost, exchange) for points in results])
    left = list(range(len(results)))
    chosen: list[int] = []
    reached = np.zeros(len(LOSSES))
    while len(chosen) < (len(results) + 1) // 2:
        added = np.maximum(saved[left] - reached, 0).sum(axis=1)
        if added.max() <= 0 and len(chosen) >= (len(results) + 3) // 4:
            break
        if added.max() <= 0 and reached.any():
            reached = np.zeros(len(LOSSES))
            continue
        pick = left.pop(int(added.argmax()))
        chosen.append(pick)
        reached = np.maximum(reached, saved[pick])
    return sorted(chosen)


# The rungs of successive halving: the same problem on a subsample of its training rows, then on all of them.
#
# Jobs receive a ladder and nothing else. It does not contain the test rows, so no job can use them.


@dataclass(frozen=True)
class Job:
    """A setting on a rung: trained on one training row in ``rung``, as ``sample`` draws them."""

    setting: Setting
    rung: int = ALL


class Ladder:
    """The shared state of a sweep's jobs: for each rung its rows and a memoised search over sensor subsets.

    Parameters
    ----------
    problem : its test rows are dropped
    n_jobs : threads of a search
    """

    def __init__(self, problem: Problem, n_jobs: int = 1) -> None:
        self.problem = replace(problem, test=problem.test.take(np.zeros(0, dtype=np.int64)))
        self.n_jobs = n_jobs
        self._rungs: dict[int, SubsetSearch] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return Ladder, (self.problem,)  # a worker searches for itself, on one thread

    def at(self, rung: int) -> SubsetSearch:
        """The search over one training row in ``rung``; its ``judge`` has the judged rows of that rung."""
        if rung not in self._rungs:
            search = SubsetSearch(Judge(sample(self.problem, rung), rung != ALL), self.n_jobs)
            self._rungs.setdefault(rung, search)
        return self._rungs[rung]


def run_job(ladder: Ladder, job: Job) -> list[Point]:
    """The setting's points on its rung; policies are kept on the last rung only, below it only figures count."""
    method = METHODS[job.setting.method]
    points = method.run(ladder.at(job.rung), job.setting.params)
    return points if job.rung == ALL else [replace(p, policy=None) for p in points]


def fitting(problem: Problem) -> tuple[str, ...]:
    """The names of the methods that learn the problem's kind of answers, from rows with an order or without one."""
    kind, is_ordered = learned(problem), problem.is_ordered
    return tuple(
        m for m, cls in METHODS.items() if kind.takes(cls.method) and (is_ordered or not cls.method.needs_order)
    )


def settings_of(method: str, ladder: Ladder) -> list[Setting]:
    """The method's grid for the ladder's problem, on all rows."""
    return [Setting(method, params) for params in METHODS[method].grid(ladder.at(ALL))]


def sample(problem: Problem, rung: int) -> Problem:
    """The problem with one training row in ``rung``, stratified by class; of whole groups, or of blocks in time."""
    return replace(problem, train=problem.train.take(_is_on(rung, problem.train, problem.seed, problem.n_classes)))


def _is_on(rung: int, train: Rows, seed: int, n_classes: int) -> np.ndarray:
    """Whether each training row is on the rung, (n_train,) bool."""
    stratum, group = strata(train.y, n_classes), train.group
    if group is None and train.sequence is not None:
        group = blocks(len(train.y), N_BLOCKS * rung)
    if group is None or rung == ALL:
        return np.asarray(stratified(stratum, seed, range(rung)) == 0)
    return np.asarray(deal(group, stratum, seed, (1 / rung, 1 - 1 / rung), (N_FOLDS, 0)) == 0)
