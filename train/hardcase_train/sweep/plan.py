"""What a sweep is about to do, and about how long that takes: said before the long work begins."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..methods import AUTO, METHODS
from .rungs import ALL, Ladder, settings_of

__all__ = ["Plan", "make_plan"]

SHARE = 0.5  # a classifier of some sensors takes about half the time of one of all


@dataclass(frozen=True)
class Plan:
    """Settings by method, and an estimate of the time that they take.

    n_rows : training rows
    settings : how many by method, in the order of the sweep
    seconds : by this machine's speed on one classifier of all sensors, folds included; right within a factor of three
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
            f"about {minutes} from here"
        )


def make_plan(ladder: Ladder, methods: Sequence[str], n_threads: int) -> Plan:
    """Count the settings and time one classifier, which the sweep then has already.

    Parameters
    ----------
    methods : as of ``Sweep.points``; for "auto", those that it always takes
    n_threads : that the jobs share
    """
    named = [m for name in methods for m in (_always() if name == AUTO else (name,))]
    search = ladder.at(ALL)
    search.probes([()])  # compiled code is loaded before the clock starts
    began = time.monotonic()
    search.models([tuple(range(len(search.problem.sensors)))])
    each = time.monotonic() - began
    settings = {m: len(settings_of(m, ladder)) for m in METHODS if m in named}
    work = sum(n * METHODS[m].method.work for m, n in settings.items())
    problem = ladder.problem
    seconds = SHARE * each * work / max(n_threads, 1)
    return Plan(len(problem.train.y), len(problem.sensors), problem.effort.name, settings, seconds)


def _always() -> tuple[str, ...]:
    return tuple(name for name, cls in METHODS.items() if cls.method.auto == "always")
