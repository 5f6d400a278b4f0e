# SPDX-License-Identifier: Apache-2.0
"""Files read up to a limit, and files written whole or not at all, never over a file that hardcase did not write."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

from ..errors import HardcaseError, InputError
from .sha256 import sha256

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any, BinaryIO

DIGEST_BYTES = 64  # of a sealed copy, in hex
STDIN = "/dev/stdin"
HEAD_BYTES = 513  # of a file that is there already: enough to know a bundle, signatures or an ONNX model


def read_bounded(
    path: str | Path, limit: int, what: str, *, remedy: str, refusal: type[HardcaseError] = InputError
) -> bytes:
    """A file's bytes, at most ``limit`` of them; a larger file is refused before more than that is read.

    Parameters
    ----------
    what : the file's role, for error messages, such as "signing key"
    remedy : what the user should do if the file cannot be used, such as "make one with hardcase keygen"
    refusal : the error for a file that is too large

    Raises
    ------
    InputError
        The file cannot be read, or it is too large.
    """
    try:
        with open(path, "rb") as file:
            data = read_most(file, limit)
    except (OSError, ValueError) as error:  # a name may hold what no file's name can
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{what} {path} cannot be read: {why}; {remedy}") from error
    if len(data) > limit:
        raise refusal(f"{what} {path} is larger than {limit} bytes; {remedy}")
    return data


def read_most(file: BinaryIO, limit: int) -> bytes:
    """The bytes of a file that is open; one more than ``limit`` of a larger one."""
    size = os.fstat(file.fileno()).st_size  # to ask for the limit would take as much memory
    data = file.read(min(size, limit) + 1)
    if len(data) > size:  # it grows, or has no size
        data += file.read(limit + 1 - len(data))
    return data


_pipes: dict[tuple[object, ...], Any] = {}


def open_stream(path: str, kind: str, open_file: Callable[[], Any]) -> Any:
    """What ``open_file`` gives, or gave before of the same pipe on standard input, which has nothing twice.

    Whoever opened such a pipe anew would lose what was read ahead, and the header of a table. ``close_stream`` closes
    what it gives.
    """
    key: tuple[object, ...] = ()
    with contextlib.suppress(OSError):
        if path == STDIN and not stat.S_ISREG((found := os.stat(path)).st_mode):
            key = kind, found.st_dev, found.st_ino
    if key in _pipes:
        return _pipes[key]
    stream = open_file()
    if key:
        _pipes[key] = stream
    return stream


def close_stream(stream: Any) -> None:
    """Close it, unless it is a pipe, which the next run goes on with."""
    if all(stream is not pipe for pipe in _pipes.values()):
        stream.close()


def check_private(path: str | Path, what: str) -> None:
    """Refuse a secret that its group or all users of the machine can read; a missing file is for its reader to tell.

    A warning would be lost where it matters, in the log of a build server, and the remedy is one command.

    Raises
    ------
    InputError
        Others can read the file. (Windows has no such bits.)
    """
    with contextlib.suppress(OSError):
        if os.name != "nt" and os.stat(path).st_mode & 0o077:
            raise InputError(f"{what} {path} can be read by other users; keep it to yourself: chmod 600 {path}")


def check_replaceable(
    path: str | Path,
    what: str = "",
    is_own: Callable[[bytes], bool] = lambda head: False,
    *,
    force: bool = False,
    remedy: str = "name another file, or replace it with --force (force=True in Python)",
) -> None:
    """Refuse a path at which a file stands that hardcase did not write.

    Parameters
    ----------
    what : the file's role, such as "a bundle"
    is_own : whether the first ``HEAD_BYTES`` bytes, or all of a shorter file, are such a file as hardcase writes it
    force : whether any file may be replaced, at its user's own wish
    remedy : what to do about a file that may not be replaced

    Raises
    ------
    InputError
        The path is a folder, cannot be read, or is a file that may not be replaced.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; name another file") from error
    if head and not force and not is_own(head):
        reason = f"exists and is not {what}" if what else "exists"
        raise InputError(f"{path} {reason}; {remedy}")


def write_whole(path: str | Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file so that a crash or a power cut leaves the old file or the new one, never a part of either.

    The bytes go to a temporary file in the same folder, which is flushed and then renamed.

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
    ...     read_bounded(f"{folder}/state.json", 2, "state", remedy="write it")
    b'{}'
    """
    write_by(path, lambda file: file.write(data), mode=mode)


def write_by(path: str | Path, fill: Callable[[BinaryIO], object], *, mode: int = 0o644) -> None:
    """Write a file whole or not at all, as ``write_whole`` does, whose bytes a function writes bit by bit.

    Raises
    ------
    InputError
        The folder cannot be written; errors of ``fill`` itself are raised as they are, and leave the old file.
    """
    _write(path, fill, mode, os.replace)


def write_new(path: str | Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file whole or not at all, as ``write_whole`` does, where no file stands.

    Raises
    ------
    FileExistsError
        A file stands there.
    InputError
        The folder cannot be written.
    """

    def link(temporary: str, target: str) -> None:
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            if os.path.lexists(target):
                raise FileExistsError(target) from None
            os.rename(temporary, target)
        else:
            os.unlink(temporary)

    _write(path, lambda file: file.write(data), mode, link)


def _write(path: str | Path, fill: Callable[[BinaryIO], object], mode: int, put: Callable[[str, str], None]) -> None:
    """Write a temporary file beside the path, flush it, and put it there."""
    import tempfile  # imported here: a device that only reads does without it

    target = os.fspath(path)
    folder, name = os.path.split(target)
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=folder or os.curdir, prefix=f".{name}.")
        with os.fdopen(descriptor, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        put(temporary, target)
        temporary = None
        sync_folder(folder or os.curdir)
    except FileExistsError:
        raise
    except OSError as error:
        remedy = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "choose a writable folder"
        raise InputError(f"{target} cannot be written: {error.strerror}; {remedy}") from error
    finally:
        if temporary is not None:  # an error, or Ctrl-C
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def remove_leftovers(path: str | Path) -> None:
    """Remove the temporary files of writes of this file that were killed; nobody else may be writing it."""
    from glob import escape  # imported here: a device that writes nothing does without it

    folder, name = os.path.split(os.fspath(path))
    sweep(folder, escape(name))


def sweep(folder: str | Path, *names: str) -> None:
    """Remove the temporary files of writes that were killed, of files of these names; nobody else may write them now.

    Parameters
    ----------
    names : patterns of ``glob``
    """
    from glob import escape, glob

    for name in names:
        for leftover in glob(os.path.join(escape(os.fspath(folder)), f".{name}.????????")):
            with contextlib.suppress(OSError):
                os.unlink(leftover)


def sealed(data: bytes) -> bytes:
    """Two copies of a text, each with its digest: the SHA-256 in hex, a space, the text, and the line's end.

    >>> unsealed(sealed(b"{}")), unsealed(b"x" + sealed(b"{}")[1:]), unsealed(b"{}")
    (b'{}', b'{}', None)
    """
    copy = sha256(data).hex().encode() + b" " + data + b"\n"
    return copy + copy


def unsealed(copies: bytes) -> bytes | None:
    """The text of ``sealed``, from the first copy that is whole; None if neither is."""
    middle = len(copies) // 2
    for copy in (copies[:middle], copies[middle:]):
        data = copy[DIGEST_BYTES + 1 : -1]
        if copy[:DIGEST_BYTES] == sha256(data).hex().encode():
            return data
    return None


def make_private(path: str | Path) -> None:
    """Let nobody but its owner read an SQLite file and what SQLite keeps beside it; an empty one is made if it must be.

    SQLite makes a file as the umask says, 0644 for most, and gives the files beside it the rights of the first one.
    What belongs to somebody else, or cannot be changed, stays as it is: SQLite says whether it can be used. A file
    that is there is never opened here, because closing it would end the locks that this process has on it.
    """
    if os.name == "nt":
        return
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    for name in (f"{path}{end}" for end in ("", "-wal", "-shm", "-journal")):
        with contextlib.suppress(OSError):
            found = os.stat(name)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & 0o077:
                os.chmod(name, stat.S_IMODE(found.st_mode) & 0o700)


def sync_folder(folder: str | Path) -> None:
    """Have a folder's names on the disk; nothing on Windows, which has no folders to flush."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(folder: Path) -> Path:
    """Where a folder stands while another takes its place, on systems that cannot exchange the two at once."""
    return folder.with_name(f".{folder.name}.hardcase-old")
