# SPDX-License-Identifier: Apache-2.0
"""Atomic replacement of a folder: fill a temporary folder, then rename it; files of others in it stay.

Each folder that is written so has a list of its files, ``.hardcase.json``. A later run replaces these files and no
others. A folder without such a list, or with that of another kind of folder, is refused unless its user insists.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

from hardcase_edge.errors import InputError

__all__ = ["BUILD", "C_EXPORT", "DEMO", "MODELS", "check_folder", "list_files", "terminable", "whole_folder"]

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
    (folder / LIST).write_text(json.dumps({"kind": kind, "files": sorted(names)}, indent=1) + "\n", encoding="utf-8")


def _listed(out: Path, kind: str) -> set[str]:
    """The files that hardcase wrote there; empty for another kind of folder."""
    try:
        with open(out / LIST, "rb") as file:
            found = json.loads(file.read(MAX_LIST_BYTES))
        return {str(name) for name in found["files"]} if found["kind"] == kind else set()
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return set()


def _files(folder: Path) -> set[str]:
    """All files below a folder but the list."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix() for path in paths} - {LIST}


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
        The folder may not or cannot be written; ``out`` is then unchanged.
    """
    out = Path(out).absolute()
    check_folder(out, kind, force=force)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            with terminable():
                yield folder
            folder.chmod(0o755)
            names = _files(folder)
            list_files(folder, kind, names)
            foreign = _files(out) - _listed(out, kind) if out.exists() else set()
            if foreign & names and not force:
                raise InputError(f"{out} holds {min(foreign & names)}, which hardcase did not write; move it elsewhere")
            _replace(folder, out, foreign - names)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}; name another folder") from error


def _replace(folder: Path, out: Path, foreign: Iterable[str]) -> None:
    """Move ``out`` aside, rename the folder to ``out``, and restore the old one if that fails; foreign files stay."""
    if not out.exists():
        folder.rename(out)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.parent))
    old = aside / out.name
    out.rename(old)
    try:
        folder.rename(out)
    except BaseException:
        old.rename(out)
        aside.rmdir()
        raise
    for name in foreign:  # if one cannot be moved, all that are left stay aside
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (old / name).rename(out / name)
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
