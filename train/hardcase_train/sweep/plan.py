# SPDX-License-Identifier: Apache-2.0
"""The plan of a sweep: number of settings per method and estimated duration, reported before training starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..methods import AUTO, METHODS
from .rungs import ALL, Ladder, settings_of

__all__ = ["Plan", "make_plan"]

SHARE = 0.5  # mean training time of a classifier of some sensors, relative to one of all sensors


@dataclass(frozen=True)
class Plan:
    """Number of settings per method, and the estimated duration of the sweep.

    n_rows : training rows
    settings : number of settings by method, in the order of the sweep
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
            f"{self.n_rows} training rows, {self.n_sensors} sensors, effort {self.effort}; settings: {methods}; "
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
    search.probes([()])  # compiled code is loaded before the clock starts
    began = time.monotonic()
    search.models([tuple(range(len(search.problem.sensors)))])
    each = time.monotonic() - began
    settings = {m: len(settings_of(m, ladder)) for m in METHODS if m in names}
    work = sum(n * METHODS[m].method.work for m, n in settings.items())
    problem = ladder.problem
    seconds = SHARE * each * work / max(n_threads, 1)
    return Plan(len(problem.train.y), len(problem.sensors), problem.effort.name, settings, seconds)


def _always() -> tuple[str, ...]:
    return tuple(name for name, cls in METHODS.items() if cls.method.auto == "always")
