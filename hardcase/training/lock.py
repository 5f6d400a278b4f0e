# SPDX-License-Identifier: Apache-2.0
"""The lock of a folder that hardcase writes: while one run holds it, a second one is refused in one line.

The operating system gives the lock back when a process ends, however it ends. The file that carries it stands beside
the folder and goes with the run; the one that a killed run leaves behind locks nobody out.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from hardcase_edge.errors import InputError

__all__ = ["locked"]

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold the lock of ``out``, whether or not a folder stands there yet; its parent exists.

    Raises
    ------
    InputError
        Another run holds the lock, in this process or another, or the file system has none.
    """
    out = Path(os.path.abspath(out))  # ``.`` has no name to stand beside
    if not out.name:
        raise InputError(f"{out} is no folder of its own; name another")
    path = out.with_name(f".{out.name}.lock")
    try:
        descriptor = _open_locked(path)
    except (BlockingIOError, PermissionError) as error:
        if isinstance(error, PermissionError) and sys.platform != "win32":
            raise InputError(f"{path} cannot be written: {error.strerror}; name another folder") from error
        raise InputError(f"another run writes {out}; wait until it ends, or name another folder") from error
    except OSError as error:
        raise InputError(f"{out} cannot be locked: {error.strerror}; name a folder on a local disk") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows removes no open file
            path.unlink()
        os.close(descriptor)


def _open_locked(path: Path) -> int:
    """A locked file that still has its name: its last holder may have removed it since we opened it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            _take(descriptor)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
