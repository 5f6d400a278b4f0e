"""Files written whole or not at all: to a temporary file in the same folder, flushed, then renamed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from ..errors import InputError

__all__ = ["read_bounded", "write_whole"]


def read_bounded(path: str | Path, limit: int, what: str, *, remedy: str) -> bytes:
    """A file's bytes, at most ``limit`` of them; a larger file is refused before more than that is read.

    Parameters
    ----------
    what : the file's role, for error messages, such as "signing key"
    remedy : what the user should do if the file cannot be used, such as "make one with hardcase keygen"

    Raises
    ------
    InputError
        The file cannot be read, or it is larger.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise InputError(f"{what} {path} cannot be read: {error.strerror}; {remedy}") from error
    if len(data) > limit:
        raise InputError(f"{what} {path} is larger than {limit} bytes; {remedy}")
    return data


def write_whole(path: str | Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file so that a crash or a power cut leaves the old file or the new one, never a part of either.

    Parameters
    ----------
    path : where the file goes; its folder must exist
    data : all bytes of the file
    mode : the file's permission bits

    Raises
    ------
    InputError
        The folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(f"{folder}/state.json", b"{}")
    ...     Path(f"{folder}/state.json").read_bytes()
    b'{}'
    """
    target = Path(path)
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(descriptor, "wb") as file:
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
        raise InputError(f"{target} cannot be written: {error.strerror}; choose a writable folder") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
