# SPDX-License-Identifier: Apache-2.0
"""Executors for the jobs of a sweep: threads of this machine, or the workers of a Dask cluster.

A pool takes a function, an object that all jobs share (sent once), and the jobs; it yields (number, result) pairs in
order of completion. A cluster executes what it is sent, so use only one that you trust. Its workers must have the same
code as this process, or results could differ; each job checks that.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import ThreadpoolController, threadpool_limits

from hardcase_edge.errors import InputError

from ..hpc.fit import MANY_ROWS

CONNECT_S = 10.0
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")
Function = Callable[[Any, Any], Any]
Results = Iterator[tuple[int, Any]]
Pool = Callable[[Function, Any, Sequence[Any]], Results]


def n_threads(jobs: int | None, n_rows: int = MANY_ROWS) -> int:
    """``jobs`` if given, else one thread per core, and one alone for less than ``MANY_ROWS``.

    >>> n_threads(None, 300), n_threads(2, 300)
    (1, 2)
    """
    return jobs or (n_rows >= MANY_ROWS and os.cpu_count()) or 1


def open_pool(dask: str | None = None, jobs: int | None = None) -> AbstractContextManager[Pool]:
    """A context manager that provides a pool.

    Parameters
    ----------
    dask : ``host:port`` of a Dask cluster's scheduler; None: threads of this machine
    jobs : threads; one per core unless given

    Raises
    ------
    InputError
        The package ``distributed`` is missing, no scheduler answers at the address, or it has no workers.
    """
    return _threads(n_threads(jobs)) if dask is None else _dask(dask)


@contextmanager
def _threads(jobs: int) -> Iterator[Pool]:
    """Threads suffice, because training releases the interpreter's lock while it computes.

    Libraries get one thread for each job: their sums are then reproducible, and jobs do not compete for cores.
    """
    limits = ThreadpoolController()
    begun: list[Any] = []

    def run(function: Function, shared: Any, items: Sequence[Any]) -> Results:
        def alone(number: int, item: Any) -> tuple[int, Any]:
            with limits.limit(limits=1, user_api="openmp"):  # of this thread, where BLAS has a limit of the process
                return number, function(shared, item)

        work = Parallel(n_jobs=jobs, prefer="threads", return_as="generator_unordered", batch_size=1)
        results = work(delayed(alone)(k, item) for k, item in enumerate(items))
        begun.append(results)
        with limits.limit(limits=1, user_api="blas"):
            yield from results

    with warnings.catch_warnings():  # after Ctrl-C, joblib advises to cancel less work
        warnings.filterwarnings("ignore", "[0-9]+ tasks ", UserWarning, "joblib")
        try:
            yield run
        finally:
            for results in begun:
                results.close()


@contextmanager
def _dask(address: str) -> Iterator[Pool]:
    try:
        import distributed
    except ImportError as error:
        raise InputError("--dask needs the package distributed; pip install 'hardcase-train[dask]'") from error
    connect: Any = distributed.Client  # its functions have no types
    completed: Any = distributed.as_completed
    try:
        client = connect(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at {address}; check --dask and that the scheduler runs") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError as error:
            raise InputError(f"the Dask cluster at {address} has no workers; start some with dask worker") from error
        sent: dict[int, tuple[Any, Any]] = {}

        def run(function: Function, shared: Any, items: Sequence[Any]) -> Results:
            if id(shared) not in sent:
                sent[id(shared)] = shared, client.scatter(shared, broadcast=True, hash=False)
            remote = sent[id(shared)][1]
            code = code_here()
            futures = [client.submit(_far, code, function, remote, k, item, pure=False) for k, item in enumerate(items)]
            for _, result in completed(futures, loop=client.loop, with_results=True):
                yield result

        yield run


def _far(code: str, function: Function, shared: Any, number: int, item: Any) -> tuple[int, Any]:
    """Run a job on a worker, after checking that its code is that of the sender."""
    if code != code_here():
        raise InputError(
            "a Dask worker has other versions of hardcase or its packages; install the same ones everywhere"
        )
    with threadpool_limits(1):
        return number, function(shared, item)


@cache
def code_here() -> str:
    """SHA-256 of the sources of hardcase and the versions of the packages that results depend on."""
    import hardcase_edge
    import hardcase_train

    folders = [Path(str(package.__file__)).parent for package in (hardcase_train, hardcase_edge)]
    return code_digest(folders, [version(p) for p in PACKAGES])


def code_digest(folders: Sequence[Path], versions: Sequence[str]) -> str:
    """SHA-256 of these versions and of every module in these folders and their subfolders, with its path."""
    digest = sha256(" ".join(versions).encode())
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()
