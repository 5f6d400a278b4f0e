# SPDX-License-Identifier: Apache-2.0
"""Atomic replacement of a folder: fill a temporary folder, then rename it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from hardcase_edge.errors import InputError

__all__ = ["terminable", "whole_folder"]


@contextlib.contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """An empty folder to fill; it replaces ``out`` on success, and is removed if an exception is raised.

    Raises
    ------
    InputError
        The folder cannot be written; ``out`` is then unchanged.
    """
    out = Path(out).absolute()
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            with terminable():
                yield folder
            folder.chmod(0o755)
            _replace(folder, out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}; name another folder") from error


def _replace(folder: Path, out: Path) -> None:
    """Move ``out`` aside, rename the folder to ``out``, and restore the old one if that fails."""
    if not out.exists():
        folder.rename(out)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.parent))
    out.rename(aside / out.name)
    try:
        folder.rename(out)
    except BaseException:
        (aside / out.name).rename(out)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
