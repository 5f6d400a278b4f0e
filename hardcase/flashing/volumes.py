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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol
from uuid import UUID
from zlib import crc32

from hardcase_edge.base.files import read_bounded, sync_folder, write_whole
from hardcase_edge.errors import InputError

from .fat import FatVolume, is_fat

_FAT_TYPES = {0x04, 0x06, 0x0B, 0x0C, 0x0E, 0xEF}
_PROTECTIVE = 0xEE  # the one entry of a card with a GPT
SECTOR = 512
FAT_TYPES = {
    UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"),  # EFI system partition
    UUID("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"),  # basic data
    UUID("bc13c2ff-59e6-4262-a352-b275fd6f7172"),  # extended boot loader
}
_HEADER = struct.Struct("<8sIII4xQQQQ16sQIII")
_ENTRY = struct.Struct("<16s16sQQ")
_MOST_BYTES = 131_072  # of the entries: eight times the usual


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


# GUID partition tables, as UEFI 2.10 section 5.3 has them: the primary one, of a card with sectors of 512 bytes.
#
# Nothing of a table is believed before both of its checksums are right; it is only read, never written or mended.


def partitions(read: Callable[[int, int], bytes], name: str) -> list[tuple[UUID, int, int]]:
    """The type, first byte and size in bytes of each partition, in the order of the table.

    Parameters
    ----------
    read : gives so many bytes from a byte on; fewer at the end
    name : of the card or image

    Raises
    ------
    InputError
        The table is damaged, cut short, or of a kind that is not read here.
    """
    sector = read(SECTOR, SECTOR)
    if len(sector) < SECTOR:
        raise InputError(f"{name} is cut short: it ends before its partition table; copy it again")
    (signature, _, size, crc, own, _, _, _, _, at, n, entry_size, crc_of_entries) = _HEADER.unpack_from(sector)
    if signature != b"EFI PART":
        raise _damaged(name, "its header is missing")
    if not _HEADER.size <= size <= SECTOR or crc32(sector[:16] + bytes(4) + sector[20:size]) != crc or own != 1:
        raise _damaged(name, "its header has another checksum")
    is_known = entry_size in (128, 256, 512) and n >= 1 and n * entry_size <= _MOST_BYTES
    if not is_known or not 2 <= at < 2**40:
        raise _damaged(name, f"it has {n} entries of {entry_size} bytes in sector {at}")
    entries = read(at * SECTOR, n * entry_size)
    if crc32(entries) != crc_of_entries or len(entries) != n * entry_size:
        raise _damaged(name, "its entries have another checksum")
    end_of_table = at + -(-len(entries) // SECTOR)
    parts = []
    for place in range(0, len(entries), entry_size):
        kind, _, first, last = _ENTRY.unpack_from(entries, place)
        if not any(kind):
            continue
        if not 2 <= first <= last < 2**40 or (first < end_of_table and last >= at):
            raise _damaged(name, f"a partition goes from sector {first} to {last}")
        parts.append((UUID(bytes_le=kind), first * SECTOR, (last - first + 1) * SECTOR))
    return parts


def _damaged(name: str, why: str) -> InputError:
    return InputError(f"the GPT of {name} is damaged: {why}; repair it with gdisk, or write the system's image again")
