"""A sweep: all settings of the chosen methods, weak ones stopped early, and the points that the judged rows keep.

Settings of all methods run side by side, in whatever order, wherever the pool is; the result does not depend on it.
Finished jobs may be kept on disk (``kept``), and are then not run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from ..method import Setting
from ..methods import AUTO, METHODS
from ..methods.baselines.static import StaticSubset
from ..policy.front import Point, best_points
from ..stages.nested_sets import Chains
from .auto import chosen_methods
from .executors import Pool
from .halving import FEW_SETTINGS, MIN_ROWS, RUNG, climbers
from .job_cache import Kept
from .rungs import ALL, Job, Ladder, run_job, settings_of

__all__ = ["Sweep"]


@dataclass(frozen=True)
class Sweep:
    """A problem on its ladder, and what its jobs run on.

    Parameters
    ----------
    hpc : f0's point: what savings are counted against
    kept : finished jobs of an earlier run, and a place for those of this one; or None
    quiet : no progress bar on stderr
    """

    ladder: Ladder
    hpc: Point
    pool: Pool
    kept: Kept | None = None
    quiet: bool = False

    def points(self, methods: Sequence[str]) -> list[Point]:
        """The points of each method, best by validation, without test figures.

        Parameters
        ----------
        methods : of ``methods.METHODS``; "auto" stands for those that ``auto.chosen_methods`` picks
        """
        if any(m == AUTO or METHODS[m].method.searches_subsets for m in methods):
            self._search_subsets()
        chosen = self._chosen(methods)
        order = [m for m in METHODS if m in chosen]  # those that take longest first
        grids = self._halved({m: settings_of(m, self.ladder) for m in order})
        jobs = [Job(setting) for settings in grids.values() for setting in settings]
        by_method: dict[str, list[Point]] = {m: [] for m in chosen}
        for job, points in zip(jobs, self.run(jobs), strict=True):
            by_method[job.setting.method] += points
        return [p for m in chosen for p in _front_of(m, by_method[m])]

    def run(self, jobs: Sequence[Job], title: str = "sweep") -> list[list[Point]]:
        """The points of each job; those kept from an earlier run are not run again."""
        done = {k: p for k, p in enumerate(map(self._find, jobs)) if p is not None}
        left = [k for k in range(len(jobs)) if k not in done]
        with tqdm(total=len(jobs), initial=len(done), desc=title, disable=self.quiet, leave=False) as bar:
            for number, points in self.pool(run_job, self.ladder, [jobs[k] for k in left]):
                done[left[number]] = points
                if self.kept is not None:
                    self.kept.add(jobs[left[number]], points)
                bar.update(1)
        return [done[k] for k in range(len(jobs))]

    def _find(self, job: Job) -> list[Point] | None:
        return None if self.kept is None else self.kept.find(job)

    def _chosen(self, methods: Sequence[str]) -> list[str]:
        """The methods by name, each once, in their order; "auto" resolved."""
        if AUTO not in methods:
            return list(dict.fromkeys(methods))
        automatic = chosen_methods(self.ladder, self.hpc.valid, self.run)
        return list(dict.fromkeys(x for m in methods for x in (automatic if m == AUTO else [m])))

    def _search_subsets(self) -> None:
        """The search over sensor subsets, one step after another, is done here, before the jobs that share it."""
        with tqdm(total=1, desc="subsets", disable=self.quiet, leave=False) as bar:
            _ = self.ladder.at(ALL).once(Chains).climbed
            bar.update(1)

    def _halved(self, grids: dict[str, list[Setting]]) -> dict[str, list[Setting]]:
        """The settings that climb to the last rung."""
        tried = {m: g for m, g in grids.items() if METHODS[m].method.is_halved and len(g) >= FEW_SETTINGS}
        if len(self.ladder.problem.train.y) < MIN_ROWS or not tried:
            return grids
        trained = iter(self.run([Job(s, RUNG) for g in tried.values() for s in g], "first rung"))
        out = dict(grids)
        for method, grid in tried.items():
            points = [next(trained) for _ in grid]
            out[method] = [grid[k] for k in climbers(points, self.hpc.valid)]
        return out


def _front_of(method: str, points: list[Point]) -> list[Point]:
    """The best on judged rows; of fixed sets also the one of all sensors, for comparison."""
    best = best_points(points)
    if method != StaticSubset.method.name:
        return best
    largest = max(points, key=lambda p: (len(p.params["sensors"]), p.valid["quality"]))
    return best if largest in best else [*best, largest]
