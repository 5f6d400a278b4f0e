"""Files that are either whole or not there: written beside their place, flushed, then renamed into it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from ..errors import InputError

__all__ = ["write_whole"]


def write_whole(path: str | Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file so that a crash or a power cut leaves the old one or the new one, never a part.

    Raises
    ------
    InputError
        The folder cannot be written.
    """
    target = Path(path)
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise InputError(f"{target} cannot be written: {error.strerror}; name a folder that can be") from error


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
