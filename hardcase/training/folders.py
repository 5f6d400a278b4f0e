# SPDX-License-Identifier: Apache-2.0
"""Atomic replacement of a folder under a lock: fill a temporary one, then exchange the two; files of others stay.

Each folder that is written so has a list of its files, ``.hardcase.json``. A later run replaces these files and no
others. A folder without such a list, or with that of another kind of folder, is refused unless its user insists. One
run at a time writes a folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType

from hardcase_edge.base.files import set_aside, sync_folder, write_whole
from hardcase_edge.errors import InputError

BUILD, C_EXPORT, MODELS, DEMO = "build", "C export", "folder of models", "demo"
LIST = ".hardcase.json"
MAX_LIST_BYTES = 16 * 1024 * 1024
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's linux/fcntl.h and linux/fs.h
CANNOT = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)  # an old kernel, or a file system that does not exchange
Own = Callable[[Path], set[str]]  # names of the files in a folder that hardcase wrote
if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def check_folder(out: Path, kind: str, *, force: bool = False) -> None:
    """Refuse to write into a folder that holds files, unless hardcase wrote it as a folder of this kind.

    Raises
    ------
    InputError
        The folder is another one, which ``force`` allows; or it is not a folder, or its parent does not exist.
    """
    out = out.absolute()
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist; create it first")
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise InputError(f"{out} is not a folder; name another")
    foreign = () if force or not out.exists() or _listed(out, kind) else _files(out)
    if foreign:
        raise InputError(
            f"{out} is not a {kind} that hardcase wrote, and holds {min(foreign)}; name another folder, or write into "
            "it with --force (force=True in Python)"
        )


def list_files(folder: Path, kind: str, names: Iterable[str]) -> None:
    """Note in the folder that these files are hardcase's own."""
    write_whole(folder / LIST, f"{json.dumps({'kind': kind, 'files': sorted(names)}, indent=1)}\n".encode())


def _listed(out: Path, kind: str | None = None) -> set[str]:
    """The files that hardcase wrote there; empty for another kind of folder, if a kind is named."""
    try:
        with open(out / LIST, "rb") as file:
            listing = json.loads(file.read(MAX_LIST_BYTES))
        return {str(name) for name in listing["files"]} if kind in (None, listing["kind"]) else set()
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return set()


def _own(folder: Path) -> set[str]:
    return _listed(folder) | {LIST}


def _files(folder: Path) -> set[str]:
    """All files below a folder but the list."""
    return files_in(folder) - {LIST}


@contextlib.contextmanager
def claimed(out: Path, kind: str, *, force: bool = False) -> Iterator[None]:
    """Hold a folder for writing, first finishing or undoing what a killed run left there.

    Raises
    ------
    InputError
        As for ``check_folder``, or another run writes the folder.
    """
    out = Path(out).absolute()
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist; create it first")
    with locked(out):
        with _told(out):
            recover(out, _own)
        check_folder(out, kind, force=force)
        yield


@contextlib.contextmanager
def fill_folder(out: Path, kind: str, *, force: bool = False) -> Iterator[Path]:
    """As ``whole_folder``, for a folder that is ``claimed`` already."""
    out = Path(out).absolute()
    with _told(out):
        try:
            folder = part_of(out)
            folder.mkdir()
            with terminable():
                yield folder
            names = _files(folder)
            list_files(folder, kind, names)
            own = _listed(out, kind) if out.exists() else set()
            foreign = _files(out) - own if out.exists() else set()
            if foreign & names and not force:
                raise InputError(f"{out} holds {min(foreign & names)}, which hardcase did not write; move it elsewhere")
            blocking = foreign & {parent.as_posix() for name in names for parent in Path(name).parents}
            if blocking:
                raise InputError(f"{out} holds {min(blocking)}, where hardcase writes a folder; move it elsewhere")
            keep(foreign - names, own | names, out, folder)
            sync_files(folder, names)
            take_place(folder, out)
        finally:
            recover(out, _own)


@contextlib.contextmanager
def _told(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}; name another folder") from error


@contextlib.contextmanager
def whole_folder(out: Path, kind: str, *, force: bool = False) -> Iterator[Path]:
    """An empty folder to fill; its files replace those of ``out`` on success, and go if an exception is raised.

    Parameters
    ----------
    kind : what the folder is, such as ``BUILD``
    force : whether files that hardcase did not write may be replaced; those of other names stay in any case

    Raises
    ------
    InputError
        The folder may not or cannot be written, or another run writes it; ``out`` is then unchanged.
    """
    with claimed(out, kind, force=force), fill_folder(out, kind, force=force) as folder:
        yield folder


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


# A folder takes the place of another: before or after, never between, wherever the process is killed.
#
# Linux exchanges the names of two folders at once. Elsewhere the old one is set aside first; a run that is killed
# there leaves none in its place, and both the next run (``recover``) and the reader of a build find or name the one
# set aside. Files of others are in both folders before the exchange, as hard links.


def part_of(out: Path) -> Path:
    """The folder beside ``out`` in which its successor is filled."""
    return out.with_name(f".{out.name}.hardcase-part")


def _ready_of(out: Path) -> Path:
    """The complete successor of ``out``; after the exchange, its predecessor."""
    return out.with_name(f".{out.name}.hardcase-next")


def files_in(folder: Path) -> set[str]:
    """The names of all files below a folder."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix() for path in paths}


def keep(names: Iterable[str], own: Iterable[str], old: Path, new: Path) -> None:
    """Put others' files of the old folder into the new one, too, and the folders that hold no file of ours.

    Raises
    ------
    OSError
        A file can neither be linked nor copied.
    """
    ours = {parent.as_posix() for name in own for parent in Path(name).parents}
    for path in sorted(path for path in old.rglob("*") if path.is_dir() and not path.is_symlink()):
        twin = new / path.relative_to(old)
        if path.relative_to(old).as_posix() not in ours:
            twin.mkdir(parents=True, exist_ok=True)
            shutil.copystat(path, twin)
    for name in names:
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(old / name, new / name, follow_symlinks=False)
        except OSError:  # a file system without hard links, or a file of another user
            shutil.copy2(old / name, new / name, follow_symlinks=False)
            sync_files(new, [name])


def sync_files(folder: Path, names: Iterable[str]) -> None:
    """Have these files and all folders below this one on the disk, so that a power cut does not empty them."""
    for file in (folder / name for name in names):
        if not file.is_symlink():
            descriptor = os.open(file, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            sync_folder(path)


def take_place(new: Path, out: Path) -> None:
    """Rename ``new`` to ``out``; what stood there is then beside it, for ``recover`` to discard."""
    if out.exists():
        ready = _ready_of(out)
        new.rename(ready)
        if not _exchange(ready, out):
            out.rename(set_aside(out))
            ready.rename(out)
    else:
        new.rename(out)
    sync_folder(out.parent)


def recover(out: Path, own: Own) -> None:
    """Undo or finish what a run left beside ``out`` when it ended; others' files go back to ``out``."""
    for rest in (set_aside(out), _ready_of(out)):
        if rest.exists() and not out.exists():
            rest.rename(out)
        elif rest.exists():
            discard(rest, out, own)
    shutil.rmtree(part_of(out), ignore_errors=True)


def discard(rest: Path, out: Path, own: Own) -> None:
    """Remove a folder; a file that hardcase did not write moves to ``out``, unless it is there already."""
    for name in files_in(rest) - own(rest):
        if not os.path.lexists(out / name):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (rest / name).rename(out / name)
    shutil.rmtree(rest, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders; whether the system can."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in CANNOT:
        return False
    raise OSError(number, os.strerror(number))


# The lock of a folder that hardcase writes: while one run holds it, a second one is refused in one line.
#
# The operating system gives the lock back when a process ends, however it ends. The file that carries it stands beside
# the folder and goes with the run; the one that a killed run leaves behind locks nobody out.


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
