# SPDX-License-Identifier: Apache-2.0
"""Where a card's files go below a root folder, and the writing of them, which never leaves that folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ...base.files import remove_leftovers, sync_folder, write_whole
from ...errors import InputError
from ..store.slots import NAMES

RUNTIME = "usr/local/lib/hardcase"  # a link to the folder of one archive
COMMAND = "usr/local/bin/hardcase-edge"
SETTINGS = "etc/hardcase"
STORE = "var/lib/hardcase"
UNITS = "etc/systemd/system"


def check_links(root: Path) -> None:
    """Return if no link leads out of the root where a card's files go, and none stands for a part of the store.

    Raises
    ------
    InputError
        One does; the message names the first.
    """
    real = os.path.realpath(root)
    for path in _on_the_way(root):
        if os.path.commonpath([real, os.path.realpath(path)]) != real:
            raise InputError(f"{path} leads out of {root}; name the root of a whole system, or remove the link")
    for name in ("lock", *NAMES):
        if os.path.islink(path := root / STORE / name):
            raise InputError(f"{path} is a link, and a store writes in its own folder only; remove the link")


def _on_the_way(root: Path) -> Iterator[Path]:
    """The folders on the way to what is put down, and all that the device's settings and its store hold already."""
    for relative in (RUNTIME, COMMAND, SETTINGS, STORE, f"{UNITS}/multi-user.target.wants"):
        for k in range(1, len(Path(relative).parts)):
            yield root.joinpath(*Path(relative).parts[:k])
    for relative in (SETTINGS, STORE):
        for folder, folders, files in os.walk(root / relative):
            yield Path(folder)
            yield from (Path(folder, name) for name in (*folders, *files))


def safe_folder(root: Path, relative: str) -> Path:
    """A folder below the root, made if it is missing.

    Raises
    ------
    InputError
        A link on the way leads out of the root, or the folder cannot be made.
    """
    real, folder = os.path.realpath(root), root
    for part in Path(relative).parts:
        folder = folder / part
        try:
            if not folder.exists() and not folder.is_symlink():
                folder.mkdir()
                sync_folder(folder.parent)
            inner = os.path.realpath(folder)
        except OSError as error:
            raise InputError(f"{folder} cannot be made: {error.strerror}; see that it can be written") from error
        if os.path.commonpath([real, inner]) != real or not os.path.isdir(inner):
            raise InputError(f"{folder} leads out of {root}, or is not a folder; name the root of a whole system")
    return folder


def put(root: Path, relative: str, data: bytes, mode: int = 0o644) -> None:
    """Write a file below the root, whole or not at all, and have it on the disk.

    Raises
    ------
    InputError
        It cannot be written.
    """
    path = Path(relative)
    place = safe_folder(root, str(path.parent)) / path.name
    remove_leftovers(place)
    write_whole(place, data, mode=mode)


def link(root: Path, relative: str, target: str) -> None:
    """Make a name below the root a link, in place of another link or of none, at once.

    Raises
    ------
    InputError
        Something that is not a link stands there, or it cannot be written.
    """
    path = Path(relative)
    folder = safe_folder(root, str(path.parent))
    new, name = folder / f".{path.name}.new", folder / path.name
    try:
        if name.exists() and not name.is_symlink():
            raise InputError(f"{name} exists and is not a link; move it away")
        new.unlink(missing_ok=True)
        new.symlink_to(target)
        os.replace(new, name)
        sync_folder(folder)
    except OSError as error:
        raise InputError(f"{name} cannot be written: {error.strerror}; see that it can be written") from error
