"""A folder that is either whole or not there: filled beside its place, then renamed into it."""

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
    """An empty folder to fill; when all went well it takes the place of ``out``, otherwise nothing is left of it.

    Raises
    ------
    InputError
        The disk says no; what stood at ``out`` still does.
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
    """What was there steps aside first, and comes back if the new one cannot take its place."""
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
    """SIGTERM ends the work as Ctrl-C does, so that what was begun is cleared away."""
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
