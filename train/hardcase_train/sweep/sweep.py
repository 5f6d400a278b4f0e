"""A sweep: all settings of the chosen methods, weak ones stopped early, and the points that the judged rows keep.

Settings of all methods run side by side, in whatever order, wherever the pool is; the result does not depend on it.
Finished jobs may be kept on disk (``kept``), and are then not run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from ..methods.graph.dag import has_few
from ..policy.front import Point, best_points
from ..stages.nested_sets import Chains
from .auto import families
from .executors import Pool
from .halving import FEW_SETTINGS, MIN_ROWS, RUNG, climbers
from .job_cache import Kept
from .methods import Setting, settings_of
from .rungs import ALL, Job, Ladder, run_job

__all__ = ["Sweep"]

SUBSETS = ("static", "cascade", "adapt-gbrt", "dag", "auto")  # they ask the search over sensor subsets
SWEPT_WHOLE = ("static", "cascade", "budget-prune")  # their settings are few, or sets of sensors that are all wanted


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
        methods : of ``config.METHODS``; "auto" stands for those that ``auto.families`` picks
        """
        if set(methods) & set(SUBSETS):
            self._walk("dag" in methods)
        chosen = self._chosen(methods)
        grids = {m: settings_of(m, self.ladder.at(1)) for m in chosen}
        grids = self._halved(grids)
        jobs = [Job(setting) for m in sorted(grids, key=_longest) for setting in grids[m]]
        found = self.run(jobs)
        by_method: dict[str, list[Point]] = {m: [] for m in chosen}
        for job, points in zip(jobs, found, strict=True):
            by_method[job.setting.method] += points
        return [p for m in chosen for p in _kept_of(m, by_method[m])]

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
        if "auto" not in methods:
            return list(dict.fromkeys(methods))
        others = families(self.ladder, self.hpc.valid, self.run)
        return list(dict.fromkeys(x for m in methods for x in (others if m == "auto" else [m])))

    def _walk(self, climbs: bool) -> None:
        """The search over sensor subsets, one step after another, is done here, before the jobs that share it."""
        search = self.ladder.at(ALL)
        with tqdm(total=1, desc="subsets", disable=self.quiet, leave=False) as bar:
            chains = search.once(Chains)
            _ = chains.climbed if climbs and not has_few(search.problem) else chains.greedy
            bar.update(1)

    def _halved(self, grids: dict[str, list[Setting]]) -> dict[str, list[Setting]]:
        """The settings that climb to the last rung."""
        tried = {m: g for m, g in grids.items() if m not in SWEPT_WHOLE and len(g) >= FEW_SETTINGS}
        if len(self.ladder.problem.train.y) < MIN_ROWS or not tried:
            return grids
        found = iter(self.run([Job(s, RUNG) for g in tried.values() for s in g], "first rung"))
        out = dict(grids)
        for method, grid in tried.items():
            points = [next(found) for _ in grid]
            out[method] = [grid[k] for k in climbers(points, self.hpc.valid)]
        return out


def _longest(method: str) -> int:
    """Jobs that take longest begin first."""
    order = ("cascade", "adapt-lin", "adapt-lstsq", "l1", "budget-prune")
    return order.index(method) if method in order else len(order)


def _kept_of(method: str, points: list[Point]) -> list[Point]:
    """The best by validation; of fixed sets also the one of all sensors, for comparison."""
    best = best_points(points)
    if method != "static":
        return best
    everything = max(points, key=lambda p: len(p.params["sensors"]))
    return best if everything in best else [*best, everything]
