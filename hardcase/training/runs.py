# SPDX-License-Identifier: Apache-2.0
"""Train a configuration's task by a resumable sweep, whose finished jobs are stored until the build is complete."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import InputError
from hardcase_edge.program.encode import encode
from hardcase_train.data.table import Table
from hardcase_train.policy.compile import Policy
from hardcase_train.policy.front import Point, programs
from hardcase_train.settings.config import Config
from hardcase_train.stages.deadline import Deadline, seconds_of
from hardcase_train.sweep.executors import Pool, open_pool
from hardcase_train.sweep.job_cache import JobCache, task_key
from hardcase_train.sweep.train import learn
from hardcase_train.tasks.task import Task, make_task

from .folders import terminable
from .given_hpc import opener

MAX_JOBS = 1024
MAX_DRAFT_BYTES = 7 * 1024 * 1024  # of a bundle's 8 MiB; the rest is for names and figures


def _sweep_folder(out: Path) -> Path:
    """The folder for finished jobs of an incomplete build at ``out``."""
    out = out.absolute()
    return out.parent / f".{out.name}.sweep"


@dataclass(frozen=True)
class Runs:
    """How sweeps run, for every seed.

    pool : a Dask cluster; None: threads of this machine
    folder : for finished jobs
    jobs : how many threads, if that was said
    deadline : of the whole run, f0 included; None: no time limit
    written : the folder of a first build, once there is one that a better one shall replace
    """

    pool: Pool | None
    folder: Path
    jobs: int | None = None
    quiet: bool = False
    deadline: Deadline | None = None
    written: list[Path] = field(default_factory=list)

    def say(self, line: str) -> None:
        """Print a line to stderr, unless the run is quiet."""
        if not self.quiet:
            _say(line)

    def task(self, config: Config, table: Table | None = None, model: Any = None) -> Task:
        """Read the table unless given, split its rows, and fit f0; reports on stderr what the table leaves out."""
        task = make_task(config, quiet=self.quiet, table=table, model=model, given=opener(config))
        for note in task.table.notes:
            self.say(note)
        return task

    def points(
        self, task: Task, methods: tuple[str, ...], better: Callable[[list[Point]], None] | None = None
    ) -> list[Point]:
        """All points of the task's front whose drafts fit into a file; reports on stderr what it leaves out or reuses.

        ``better``: called with a first complete front, if there is a deadline.
        """
        cache = JobCache(self.folder, task_key(task))
        if len(cache):
            self.say(f"{self.folder} holds {len(cache)} finished jobs of an earlier run; resuming")
        return learn(
            task.problem, methods, quiet=self.quiet, pool=self.pool, jobs=self.jobs, cache=cache,
            say=None if self.quiet else self.say, deadline=self.deadline, better=better, fitting=self._fitting,
        )  # fmt: skip

    def _fitting(self, points: list[Point]) -> list[Point]:
        """The points whose drafts fit into a file; a device would take none of the others."""
        small = [p for p in points if not isinstance(p.policy, Policy) or p.policy.least_bytes <= MAX_DRAFT_BYTES]
        fitting = [p for p, size in zip(small, _sizes(small), strict=True) if size <= MAX_DRAFT_BYTES]
        if len(fitting) < len(points):
            self.say(
                f'left out {len(points) - len(fitting)} policies that are too large for a device; try size = "small"'
            )
        return fitting


@contextmanager
def open_runs(
    out: Path,
    *,
    dask: str | None = None,
    jobs: int | None = None,
    quiet: bool = False,
    time_limit: str | None = None,
    n_seeds: int = 1,
) -> Iterator[tuple[Runs, Path]]:
    """Runs for a build at ``out``, and the folder for finished jobs, which is removed on success.

    Parameters
    ----------
    time_limit : of the whole run, such as "10m", from now on; for one seed and threads of this machine
    """
    deadline = None if time_limit is None else Deadline.after(seconds_of("--time-limit", time_limit))
    if deadline is not None and (dask is not None or n_seeds > 1):
        raise InputError("--time-limit is for one seed and this machine; leave out --seeds and --dask")
    if jobs is not None and not 1 <= jobs <= MAX_JOBS:
        raise InputError(f"--jobs is {jobs}; expected 1 to {MAX_JOBS} threads")
    folder = _sweep_folder(out)
    with nullcontext() if dask is None else open_pool(dask) as pool, terminable():
        runs = Runs(pool, folder, jobs, quiet, deadline)
        try:
            folder.mkdir(exist_ok=True)
            yield runs, folder
        except KeyboardInterrupt:
            if not quiet:
                _say(f"interrupted; {_kept(runs)}")
            raise
        except OSError as error:
            raise InputError(f"{out} cannot be written: {error.strerror or error}; name another folder") from error
        finally:
            _tidy(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _kept(runs: Runs) -> str:
    """What is left of runs that were interrupted, and how to go on."""
    n_jobs = len(list(runs.folder.glob("*.json")))
    if n_jobs:
        return f"{runs.folder} keeps {n_jobs} finished jobs; run the same command again to resume"
    if runs.written:
        return f"{runs.written[-1]} holds the first front, which hardcase export takes; the same command begins anew"
    return "nothing was written"


def _sizes(points: Sequence[Point]) -> list[int]:
    """Length of each point's draft in a file, without its names; nodes, which are short, are counted once for a set."""
    sizes, size = [0] * len(points), 0
    for k, program, is_like_the_last in programs(points):
        if not is_like_the_last:
            size = sum(len(values) * values.itemsize for values in encode(program, is_draft=True).values())
        sizes[k] = size
    return sizes


def _say(line: str) -> None:
    """Print a line to stderr, so that stdout has the result only."""
    print(terminal(line), file=sys.stderr, flush=True)


def _tidy(folder: Path) -> None:
    """Remove all files except finished jobs, and the folder if it is then empty."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.suffix not in (".json", ".safetensors"):
                path.unlink()
        folder.rmdir()
