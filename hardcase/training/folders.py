# SPDX-License-Identifier: Apache-2.0
"""Atomic replacement of a folder: fill a temporary folder, then exchange the two; files of others in it stay.

Each folder that is written so has a list of its files, ``.hardcase.json``. A later run replaces these files and no
others. A folder without such a list, or with that of another kind of folder, is refused unless its user insists. One
run at a time writes a folder.
"""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

from hardcase_edge.base.files import write_whole
from hardcase_edge.errors import InputError

from .lock import locked
from .swap import files_in, keep, part_of, recover, sync_files, take_place

__all__ = [
    "BUILD", "C_EXPORT", "DEMO", "MODELS", "check_folder", "claimed", "fill_folder", "list_files", "terminable",
    "whole_folder",
]  # fmt: skip

BUILD, C_EXPORT, MODELS, DEMO = "build", "C export", "folder of models", "demo"
LIST = ".hardcase.json"
MAX_LIST_BYTES = 16 * 1024 * 1024


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
