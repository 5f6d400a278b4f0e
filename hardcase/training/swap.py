# SPDX-License-Identifier: Apache-2.0
"""A folder takes the place of another: before or after, never between, wherever the process is killed.

Linux exchanges the names of two folders at once. Elsewhere the old one is set aside first; a run that is killed there
leaves none in its place, and both the next run (``recover``) and the reader of a build find or name the one set aside.
Files of others are in both folders before the exchange, as hard links.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from hardcase_edge.base.files import set_aside, sync_folder

__all__ = ["discard", "files_in", "keep", "part_of", "recover", "sync_files", "take_place"]

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's linux/fcntl.h and linux/fs.h
CANNOT = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)  # an old kernel, or a file system that does not exchange

Own = Callable[[Path], set[str]]  # names of the files in a folder that hardcase wrote


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
