# SPDX-License-Identifier: Apache-2.0
"""A boot partition as a few functions: one that is mounted as a folder, or one inside an image or on a card.

Writing is whole or not at all for each file. What is read back comes from the disk, not from memory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from hardcase_edge.base.files import read_bounded, sync_folder, write_whole
from hardcase_edge.errors import InputError

from .fat import FatVolume, is_fat
from .gpt import FAT_TYPES, partitions

__all__ = ["FolderVolume", "Volume", "open_image"]

_FAT_TYPES = {0x04, 0x06, 0x0B, 0x0C, 0x0E, 0xEF}
_PROTECTIVE = 0xEE  # the one entry of a card with a GPT


class Volume(Protocol):
    """Files by paths of at most one folder and a name."""

    def read(self, path: str, limit: int) -> bytes | None: ...
    def write(self, path: str, data: bytes) -> None: ...
    def remove(self, path: str) -> None: ...
    def free_bytes(self) -> int: ...


class FolderVolume:
    """A boot partition that the system has mounted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, path: str, limit: int) -> bytes | None:
        """A file's bytes, from the disk where the system lets us; None where there is none."""
        place = self._folder / path
        if not place.is_file():
            return None
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError), open(place, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return read_bounded(place, limit, "file", remedy="is it what you think it is?")

    def write(self, path: str, data: bytes) -> None:
        """Write a file, and make its folder if it is missing."""
        place = self._folder / path
        if place.parent.is_symlink():
            raise InputError(f"{place.parent} is a link, which no boot partition has; remove it")
        try:
            if not place.parent.is_dir():
                place.parent.mkdir()
                sync_folder(place.parent.parent)
        except OSError as error:
            raise InputError(f"{place.parent} cannot be made: {error.strerror}; unlock the card, and repeat") from error
        with contextlib.suppress(OSError):
            for left in place.parent.glob(f".{place.name}.????????"):  # of a flash that was interrupted
                left.unlink()
        write_whole(place, data)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        place = self._folder / path
        try:
            place.unlink(missing_ok=True)
            if place.parent.is_dir():
                sync_folder(place.parent)
        except OSError as error:
            raise InputError(f"{place} cannot be removed: {error.strerror}; unlock the card, and repeat") from error

    def free_bytes(self) -> int:
        """Room for files."""
        return shutil.disk_usage(self._folder).free


@contextlib.contextmanager
def open_image(path: Path, *, can_write: bool) -> Iterator[FatVolume]:
    """The first FAT partition of an image file or a block device.

    Raises
    ------
    InputError
        It cannot be opened, is cut short, or has no such partition.
    """
    # an exclusive open of a block device fails while anything of it is mounted
    try:
        is_device = stat.S_ISBLK(os.stat(path).st_mode)
        flags = (os.O_RDWR if can_write else os.O_RDONLY) | (os.O_EXCL if is_device else 0)
        file = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise InputError(f"{path} cannot be opened: {error.strerror}; unmount or unlock it, or use sudo") from error
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)  # what was written before is read from the disk
        try:
            end = os.lseek(file, 0, os.SEEK_END)
        except OSError as error:  # of a file that is none, such as those of /proc
            raise InputError(f"{path} cannot be read: {error.strerror}; name an image file or a card") from error
        start, size = _boot_partition(file, end, str(path))
        yield FatVolume(file, start, size, str(path))
    finally:
        os.close(file)


def _boot_partition(file: int, size: int, name: str) -> tuple[int, int]:
    """Start and size in bytes."""

    def read(start: int, n: int) -> bytes:
        try:
            return os.pread(file, n, start)
        except OSError as error:
            raise InputError(f"{name} cannot be read: {error.strerror}; put the card in again") from error

    sector = read(0, 512)
    if len(sector) < 512 or sector[510:] != b"\x55\xaa":
        raise InputError(f"{name} has no partition table; write a system's image to it first")
    if is_fat(sector):
        return 0, size
    entries = [struct.unpack_from("<B3xB3xII", sector, 446 + 16 * k) for k in range(4)]
    parts = [(kind in _FAT_TYPES, first * 512, n * 512) for _, kind, first, n in entries if kind and n]
    if any(kind == _PROTECTIVE for _, kind, _, _ in entries):
        parts = [(kind in FAT_TYPES, start, n) for kind, start, n in partitions(read, name)]
    short = [end for _, start, n in parts if (end := start + n) > size]
    if short:
        raise InputError(
            f"{name} is cut short: its partitions end at {max(short)} bytes, and it has {size}; copy it again"
        )
    for may_be_fat, start, n in parts:
        if may_be_fat and is_fat(read(start, 512).ljust(512, b"\0")):
            return start, n
    raise InputError(f"{name} has no FAT boot partition; mount its root and name that folder, or use ssh://")
