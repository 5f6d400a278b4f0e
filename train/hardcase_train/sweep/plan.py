# SPDX-License-Identifier: Apache-2.0
"""The plan of a sweep: number of settings per method and estimated duration, reported before training starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..methods import AUTO, METHODS
from ..trees.subset_classifier import classifier_kinds
from .rungs import ALL, Ladder, fitting

__all__ = ["Plan", "make_plan"]

SHARE = 1.0  # of a classifier of all sensors: others have fewer, but their policies are judged and compiled, too


@dataclass(frozen=True)
class Plan:
    """Number of settings per method, and the estimated duration of the sweep.

    n_rows : training rows
    settings : about how many by method, in the order of the sweep
    seconds : extrapolated from the time of one classifier of all sensors, folds included; accurate within a factor of 3
    """

    n_rows: int
    n_sensors: int
    effort: str
    settings: dict[str, int]
    seconds: float

    def __str__(self) -> str:
        methods = ", ".join(f"{name} ({n})" for name, n in self.settings.items())
        minutes = f"{self.seconds:.0f} s" if self.seconds < 90 else f"{self.seconds / 60:.0f} min"
        return (
            f"{self.n_rows} training rows, {self.n_sensors} sensors, effort {self.effort}; settings about: {methods}; "
            f"about {minutes} from now"
        )


def make_plan(ladder: Ladder, methods: Sequence[str], n_threads: int) -> Plan:
    """Count the settings, and time the training of one classifier, which the sweep reuses.

    Parameters
    ----------
    methods : as for ``Sweep.points``; "auto" stands for the methods that it always includes
    n_threads : number of threads that the jobs share
    """
    names = [m for name in methods for m in (_always() if name == AUTO else (name,))]
    search = ladder.at(ALL)
    kinds, all_sensors = classifier_kinds(search.problem), search.problem.offered
    search.probes([all_sensors[:1]])  # compiled code is loaded before the clock starts
    for kind in kinds:
        search.models([all_sensors[:1]], kind)
    probe = _seconds(lambda: search.probes([all_sensors]))
    each = _seconds(lambda: [search.models([all_sensors], kind) for kind in kinds]) / len(kinds)
    problem = ladder.problem
    settings = {m: METHODS[m].n_settings(problem) for m in fitting(problem) if m in names}
    work = sum(n * METHODS[m].method.work for m, n in settings.items())
    searched = problem.effort.max_probes + len(problem.offered) ** 2 if _searches(settings) else 0
    seconds = (SHARE * each * work + probe * searched) / max(n_threads, 1)
    return Plan(len(problem.train.y), len(problem.sensors), problem.effort.name, settings, seconds)


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _searches(settings: Iterable[str]) -> bool:
    return any(METHODS[m].method.searches_subsets for m in settings)


def _always() -> tuple[str, ...]:
    return tuple(name for name, cls in METHODS.items() if cls.method.auto == "always")
