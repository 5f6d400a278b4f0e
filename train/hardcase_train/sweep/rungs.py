# SPDX-License-Identifier: Apache-2.0
"""The rungs of successive halving: the same problem on a subsample of its training rows, then on all of them.

Jobs receive a ladder and nothing else. It does not contain the test rows, so no job can use them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..data.problem import N_FOLDS, Problem, Rows
from ..data.split import N_BLOCKS, blocks, deal, strata, stratified
from ..method import Setting
from ..methods import METHODS
from ..policy.front import Point
from ..policy.kinds import learned
from ..policy.selection import Judge
from ..stages.subset_search import SubsetSearch

__all__ = ["ALL", "Job", "Ladder", "fitting", "run_job", "sample", "settings_of"]

ALL = 1  # the rung of all rows


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
