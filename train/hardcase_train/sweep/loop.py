# SPDX-License-Identifier: Apache-2.0
"""The one loop of all sweeps: jobs on a pool, with a cache of those that have run, a stop rule and a bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from ..policy.front import Point
from ..stages.deadline import Deadline
from ..stages.nested_sets import Chains
from .executors import Pool
from .halving import ALL, Job, Ladder, run_job
from .job_cache import JobCache

Runner = Callable[[Ladder, Job], list[Point] | None]  # a job's points, or None if a stop rule leaves the job out
SETS, CHOICE, SETTINGS, N_PHASES = 2, 3, 4, 5  # 1 is f0 and 5 is the report: other rooms show them


@dataclass(frozen=True)
class Loop:
    """Where the jobs of a sweep run, and what is seen of them.

    Parameters
    ----------
    cache : finished jobs of earlier runs, to which those of this run are added; or None
    quiet : whether to show no progress bar on stderr
    """

    pool: Pool
    cache: JobCache | None = None
    quiet: bool = False

    def run(
        self,
        ladder: Ladder,
        parts: Sequence[tuple[Runner, Sequence[Job]]],
        phase: int,
        title: str,
        note: Callable[[], str] = str,
    ) -> list[list[Point] | None]:
        """The result of each job, part after part; jobs in the cache are not run again.

        Parameters
        ----------
        parts : runners with their jobs; the jobs of a part end before those of the next begin
        note : called after each job; its text stands behind the bar
        """
        jobs = [job for _, part in parts for job in part]
        found = [None if self.cache is None else self.cache.find(job) for job in jobs]
        first = 0
        with phase_bar(phase, title, len(jobs), self.quiet, sum(points is not None for points in found)) as bar:
            for run, part in parts:
                left = [k for k in range(first, first + len(part)) if found[k] is None]
                first += len(part)
                for number, points in self.pool(run, ladder, [jobs[k] for k in left]):
                    found[left[number]] = points
                    if self.cache is not None and points is not None:
                        self.cache.add(jobs[left[number]], points)
                    bar.set_postfix_str(note())
                    bar.update(1)
        return found

    def all(self, ladder: Ladder, jobs: Sequence[Job], phase: int, title: str) -> list[list[Point]]:
        """The points of each job, none of which is left out."""
        return [points or [] for points in self.run(ladder, [(run_job, jobs)], phase, title)]

    def search(self, ladder: Ladder, deadline: Deadline | None = None, phase: int = SETS) -> None:
        """Search the sensor sets that methods share, before the jobs that use them; its steps are sequential."""
        search = ladder.at(ALL)
        if deadline is not None:
            search.deadline = deadline
        with phase_bar(phase, "sensor sets", None, self.quiet) as bar:
            search.progress = bar.update
            _ = search.once(Chains).climbed


# The numbered phases of a training run, each with a bar that stays on the terminal as one line.


def phase_bar(phase: int, what: str, total: int | None, quiet: bool, initial: int = 0) -> Any:
    """A bar with the number of the phase, what is counted, and tqdm's time left; on stderr, only on a terminal.

    quiet : whether there is no bar anyway
    """
    return tqdm(total=total, initial=initial, desc=f"{phase}/{N_PHASES} {what}", disable=quiet or None)
