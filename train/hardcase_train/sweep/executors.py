"""Where the jobs of a sweep run: threads of this machine, or the processes of a Dask or Ray cluster.

A pool takes a function, what all jobs share (sent once), and the jobs; it gives (number, result) as they are done. A
cluster runs what it is sent, so it must be one that you trust. Its machines must have the same code as this one, and
say so: what they compute is then the same too.
"""

from __future__ import annotations

import logging
import os
import socket
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

__all__ = ["BACKENDS", "Pool", "code_here", "n_threads", "open_pool"]

CONNECT_S = 10.0
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")
Function = Callable[[Any, Any], Any]
Results = Iterator[tuple[int, Any]]
Pool = Callable[[Function, Any, Sequence[Any]], Results]


def n_threads(jobs: int | None) -> int:
    """As many as asked for, else one per core."""
    return jobs or os.cpu_count() or 1


def open_pool(backend: str, address: str | None = None, jobs: int | None = None) -> AbstractContextManager[Pool]:
    """A pool for as long as it is needed.

    Parameters
    ----------
    backend : of ``BACKENDS``
    address : of the cluster's scheduler; none for threads
    jobs : threads; one per core unless given

    Raises
    ------
    InputError
        A package is missing, the address is, or nobody answers there.
    """
    if backend == "threads":
        if address is not None:
            raise InputError(f"--address {address} is for a cluster; name its kind with --backend dask or ray")
        return _threads(n_threads(jobs))
    if address is None:
        raise InputError(f"--backend {backend} needs --address: that of the cluster's scheduler, such as host:port")
    return {"dask": _dask, "ray": _ray}[backend](address)


BACKENDS = ("threads", "dask", "ray")


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
        raise _absent("dask") from error
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise _unreachable("dask", address) from error
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


@contextmanager
def _ray(address: str) -> Iterator[Pool]:
    try:
        import ray
    except ImportError as error:
        raise _absent("ray") from error
    _knock(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _unreachable("ray", address) from error
    try:
        far = ray.remote(_far)

        def run(function: Function, shared: Any, items: Sequence[Any]) -> Results:
            there, code = ray.put(shared), code_here()
            left = [far.remote(code, function, there, k, item) for k, item in enumerate(items)]
            while left:
                (done,), left = ray.wait(left)
                try:
                    yield ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise (error.cause or error) from error

        yield run
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Ray waits minutes for a head that is not there; so ask first whether anybody listens."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _unreachable("ray", address) from error


def _absent(backend: str) -> InputError:
    return InputError(f"--backend {backend} needs a package that is not here; pip install 'hardcase-train[{backend}]'")


def _unreachable(backend: str, address: str) -> InputError:
    return InputError(f"no {backend} cluster answers at {address}; check --address, and that its scheduler runs")


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
