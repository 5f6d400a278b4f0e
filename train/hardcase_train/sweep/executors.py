"""Where the jobs of a sweep run: threads of this machine, or the processes of a Dask cluster.

A pool takes a function, what all jobs share (sent once), and the jobs; it gives (number, result) as they are done. A
cluster runs what it is sent, so it must be one that you trust. Its machines must have the same code as this one; each
job checks that they do, because only then are its results the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from hardcase_edge.errors import InputError

__all__ = ["Pool", "code_here", "n_threads", "open_pool"]

CONNECT_S = 10.0
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")
Function = Callable[[Any, Any], Any]
Results = Iterator[tuple[int, Any]]
Pool = Callable[[Function, Any, Sequence[Any]], Results]


def n_threads(jobs: int | None) -> int:
    """As many as asked for, else one per core."""
    return jobs or os.cpu_count() or 1


def open_pool(dask: str | None = None, jobs: int | None = None) -> AbstractContextManager[Pool]:
    """A pool for as long as it is needed.

    Parameters
    ----------
    dask : ``host:port`` of a Dask cluster's scheduler; None: threads of this machine
    jobs : threads; one per core unless given

    Raises
    ------
    InputError
        The package is missing, no scheduler answers there, or it has no workers.
    """
    return _threads(n_threads(jobs)) if dask is None else _dask(dask)


@contextmanager
def _threads(jobs: int) -> Iterator[Pool]:
    """Learning holds no lock while it computes."""

    def run(function: Function, shared: Any, items: Sequence[Any]) -> Results:
        work = Parallel(n_jobs=jobs, prefer="threads", return_as="generator_unordered", batch_size=1)
        with alone():
            yield from work(delayed(_numbered)(function, shared, k, item) for k, item in enumerate(items))

    yield run


@contextmanager
def _dask(address: str) -> Iterator[Pool]:
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise InputError("--dask needs a package that is not here; pip install 'hardcase-train[dask]'") from error
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at {address}; check --dask, and that it runs") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError as error:
            raise InputError(f"the Dask cluster at {address} has no workers; start some with dask worker") from error
        sent: dict[int, tuple[Any, Any]] = {}

        def run(function: Function, shared: Any, items: Sequence[Any]) -> Results:
            if id(shared) not in sent:
                sent[id(shared)] = shared, client.scatter(shared, broadcast=True, hash=False)
            there = sent[id(shared)][1]
            code = code_here()
            futures = [client.submit(_far, code, function, there, k, item, pure=False) for k, item in enumerate(items)]
            for _, result in as_completed(futures, loop=client.loop, with_results=True):
                yield result

        yield run


def _numbered(function: Function, shared: Any, number: int, item: Any) -> tuple[int, Any]:
    return number, function(shared, item)


def _far(code: str, function: Function, shared: Any, number: int, item: Any) -> tuple[int, Any]:
    """A job on another machine, if that has the code of this one."""
    if code != code_here():
        raise InputError("a machine of the cluster has another hardcase, or other packages; install the same on all")
    with alone():
        return _numbered(function, shared, number, item)


def alone() -> threadpool_limits:
    """One thread for linear algebra: its sums are then the same on every machine, and jobs do not crowd one another."""
    return threadpool_limits(1, user_api="blas")


@cache
def code_here() -> str:
    """What results depend on beside the task: SHA-256 of our own sources and of the packages' versions."""
    import hardcase_edge
    import hardcase_train

    folders = [Path(str(package.__file__)).parent for package in (hardcase_train, hardcase_edge)]
    return code_digest(folders, [version(p) for p in PACKAGES])


def code_digest(folders: Sequence[Path], versions: Sequence[str]) -> str:
    """SHA-256 of these versions and of every module in these folders and the rooms below them, with its path."""
    digest = sha256(" ".join(versions).encode())
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()
