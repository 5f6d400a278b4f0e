# SPDX-License-Identifier: Apache-2.0
"""A FAT16 or FAT32 file system in a file or on a device: files read, replaced, added and removed without a mount.

A replaced file's new bytes and their chain are on the disk before one sector with its directory entry is written, so a
power cut leaves the old file or the new one; what it may leave besides are clusters that nobody uses. New names are
short ones (8.3, lower case). Everything read is bounded: a damaged file system is refused, not followed.
"""

from __future__ import annotations

import os
import re
import struct
import sys
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from hardcase_edge.errors import InputError

MAX_FAT_BYTES = 32 * 1024 * 1024  # of one copy: 8 million clusters
MAX_FOLDER_BYTES = 2 * 1024 * 1024  # the format's limit of a folder
ENTRY = 32
_LONG, _FOLDER, _LABEL = 0x0F, 0x10, 0x08
_ONE_FAT = 0x80  # of a FAT32's flags: changes go to one copy, which is not always the first
_LOWER = 0x18  # base and extension are shown in lower case
_DAY = (40 << 9) | (1 << 5) | 1  # 2020-01-01, so that the same flash gives the same bytes
_SHORT = re.compile(r"([a-z0-9_-]{1,8})(?:\.([a-z0-9_-]{1,3}))?", re.ASCII)


class _Entry(NamedTuple):
    at: int  # of its 32 bytes, from the start of the file system
    names: tuple[str, ...]  # in lower case
    is_folder: bool
    cluster: int
    size: int
    slots: tuple[int, ...]  # where it and its long name's entries are


def is_fat(sector: bytes) -> bool:
    """Whether a first sector is that of a FAT16 or FAT32 file system."""
    return sector[510:512] == b"\x55\xaa" and (sector[54:59] == b"FAT16" or sector[82:87] == b"FAT32")


class FatVolume:
    """A file system on an open file.

    Parameters
    ----------
    file : descriptor, open for reading, and for writing where something is written
    start, size : bytes; where in the file the file system is
    name : for messages

    Raises
    ------
    InputError
        It is not such a file system, it is damaged, or the file cannot be read.
    """

    def __init__(self, file: int, start: int, size: int, name: str) -> None:
        self._file, self._start, self._size, self._name = file, start, size, name
        b = self._read(0, 512)
        if not is_fat(b):
            raise InputError(f"{name} has no FAT16 or FAT32 file system; name a card or image with a boot partition")
        self._sector, per_cluster, reserved, self._n_fats, n_root, small = struct.unpack_from("<HBHBHH", b, 11)
        (fat16,), (large, fat32) = struct.unpack_from("<H", b, 22), struct.unpack_from("<II", b, 32)
        n_sectors, fat_sectors = small or large, fat16 or fat32
        self._cluster: int = per_cluster * self._sector
        is_sane = self._sector in (512, 1024, 2048, 4096) and per_cluster and per_cluster & (per_cluster - 1) == 0
        if not is_sane or not 1 <= self._n_fats <= 2 or not reserved or n_sectors * self._sector > size:
            raise self._damaged("its first sector makes no sense, or it is longer than its partition")
        self._fat_bytes, self._fat_at = fat_sectors * self._sector, reserved * self._sector
        self._root_at = self._fat_at + self._n_fats * self._fat_bytes
        self._root_bytes = n_root * ENTRY
        self._data_at: int = self._root_at + -(-self._root_bytes // self._sector) * self._sector
        self._n_clusters = (n_sectors * self._sector - self._data_at) // self._cluster
        self._is_32 = self._n_clusters >= 65_525
        self._width = 4 if self._is_32 else 2
        has_room = (self._n_clusters + 2) * self._width <= self._fat_bytes <= MAX_FAT_BYTES
        if self._n_clusters < 4_085 or not has_room or self._is_32 != bool(fat32 and not fat16):
            raise self._damaged("its sizes do not agree, or it is a FAT12")
        if self._is_32 and b[40] & _ONE_FAT:
            raise self._damaged("only one of its copies of the FAT is kept up to date")
        self._root_cluster = struct.unpack_from("<I", b, 44)[0] if self._is_32 else 0
        self._info_at = struct.unpack_from("<H", b, 48)[0] * self._sector if self._is_32 else 0
        self._fat = bytearray(self._read(self._fat_at, self._fat_bytes))

    # ------------------------------------------------------------ what callers use

    def read(self, path: str, limit: int) -> bytes | None:
        """A file's bytes; None where there is none.

        Raises
        ------
        InputError
            It is larger than ``limit``, or the file system is damaged.
        """
        entry = self._find(path)
        if entry is None or entry.is_folder:
            return None
        if entry.size > limit:
            raise InputError(f"{path} on {self._name} is larger than {limit} bytes; is it what you think it is?")
        chain = self._chain(entry.cluster) if entry.size else []
        if len(chain) * self._cluster < entry.size:
            raise self._damaged(f"{path} ends before its size")
        return b"".join(self._read(self._at(c), self._cluster) for c in chain)[: entry.size]

    def write(self, path: str, data: bytes) -> None:
        """Write a file whole, or leave the old one; a folder that is missing is made.

        Raises
        ------
        InputError
            There is too little room, the file system is damaged, or the file cannot be written.
        """
        folder, _, name = path.rpartition("/")
        if folder and self._find(folder) is None:
            self._add("", folder, self._new_folder(), 0, _FOLDER)
        old = self._find(path)
        if old is not None and old.is_folder:
            raise InputError(f"{path} on {self._name} is a folder; remove it")
        chain = self._store(data)
        first = chain[0] if chain else 0
        if old is None:
            try:
                self._add(folder, name, first, len(data), 0x20)
            except InputError:
                self._free_chain(first)
                raise
            return
        raw = bytearray(self._read(old.at, ENTRY))
        struct.pack_into("<H", raw, 20, first >> 16)
        struct.pack_into("<HI", raw, 26, first & 0xFFFF, len(data))
        self._write(old.at, bytes(raw))
        self._sync()
        self._free_chain(old.cluster)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        entry = self._find(path)
        if entry is not None and not entry.is_folder:
            for at in reversed(entry.slots):  # the short entry first: without it the long name means nothing
                self._write(at, b"\xe5")
            self._sync()
            self._free_chain(entry.cluster)

    def free_bytes(self) -> int:
        """Room for files."""
        entries = array("I" if self._is_32 else "H", bytes(self._fat))
        if sys.byteorder == "big":
            entries.byteswap()
        return entries[2 : self._n_clusters + 2].count(0) * self._cluster

    # ------------------------------------------------------------ folders

    def _find(self, path: str) -> _Entry | None:
        folder, _, name = path.rpartition("/")
        if folder and self._find(folder) is None:
            return None
        return next((e for e in self._entries(folder) if name.lower() in e.names), None)

    def _extents(self, folder: str) -> list[tuple[int, int]]:
        """Where a folder's entries are: the root for ""."""
        cluster = self._root_cluster
        if folder:
            entry = self._find(folder)
            if entry is None or not entry.is_folder or entry.cluster < 2:
                raise self._damaged(f"{folder} is not a folder")
            cluster = entry.cluster
        if cluster == 0:
            return [(self._root_at, self._root_bytes)]
        chain = self._chain(cluster)
        if len(chain) * self._cluster > MAX_FOLDER_BYTES:
            raise self._damaged("a folder is too large")
        return [(self._at(c), self._cluster) for c in chain]

    def _slots(self, folder: str) -> Iterator[tuple[int, bytes]]:
        for at, n in self._extents(folder):
            block = self._read(at, n)
            yield from ((at + k, block[k : k + ENTRY]) for k in range(0, n, ENTRY))

    def _entries(self, folder: str) -> Iterator[_Entry]:
        parts: list[tuple[int, bytes]] = []
        for at, raw in self._slots(folder):
            if raw[0] == 0:
                return
            if raw[0] == 0xE5:
                parts = []
            elif raw[11] & 0x3F == _LONG:
                parts.append((at, raw))
            else:
                if not raw[11] & _LABEL:
                    yield self._entry(at, raw, parts)
                parts = []

    def _entry(self, at: int, raw: bytes, parts: list[tuple[int, bytes]]) -> _Entry:
        base, extension = raw[:8].decode("cp437").rstrip(), raw[8:11].decode("cp437").rstrip()
        names = [f"{base}.{extension}" if extension else base]
        if parts and all(p[13] == _checksum(raw[:11]) for _, p in parts):
            text = b"".join(p[1:11] + p[14:26] + p[28:32] for _, p in reversed(parts)).decode("utf-16-le", "replace")
            names.append(text.partition("\0")[0].rstrip("\uffff"))
        (high,), (low, size) = struct.unpack_from("<H", raw, 20), struct.unpack_from("<HI", raw, 26)
        cluster = (high << 16 if self._is_32 else 0) | low
        slots = (*[a for a, _ in parts], at)
        return _Entry(at, tuple(n.lower() for n in names), bool(raw[11] & _FOLDER), cluster, size, slots)

    def _add(self, folder: str, name: str, cluster: int, size: int, kind: int) -> None:
        raw = _raw_entry(name, cluster, size, kind)
        free = next((at for at, slot in self._slots(folder) if slot[0] in (0, 0xE5)), None)
        if free is None:
            if not folder and not self._is_32:
                raise InputError(f"the root folder of {self._name} is full; remove a file there")
            last = (self._extents(folder)[-1][0] - self._data_at) // self._cluster + 2
            (new,) = self._store(bytes(self._cluster))
            self._link(last, new)
            self._write_fat()
            free = self._at(new)
        self._write(free, raw)
        self._sync()

    def _new_folder(self) -> int:
        (cluster,) = self._take(1)
        dots = _raw_entry(".", cluster, 0, _FOLDER) + _raw_entry("..", 0, 0, _FOLDER)
        self._write(self._at(cluster), dots.ljust(self._cluster, b"\0"))
        self._sync()
        self._write_fat()
        return cluster

    # ------------------------------------------------------------ clusters

    def _at(self, cluster: int) -> int:
        return self._data_at + (cluster - 2) * self._cluster

    def _next(self, cluster: int) -> int:
        value = int.from_bytes(self._fat[cluster * self._width : (cluster + 1) * self._width], "little")
        return value & 0x0FFF_FFFF if self._is_32 else value

    def _link(self, cluster: int, value: int) -> None:
        at = cluster * self._width
        top = self._fat[at + 3] & 0xF0 if self._is_32 else 0  # four bits that are not ours
        self._fat[at : at + self._width] = value.to_bytes(self._width, "little")
        if self._is_32:
            self._fat[at + 3] = self._fat[at + 3] & 0x0F | top

    def _chain(self, cluster: int) -> list[int]:
        end = 0x0FFF_FFF8 if self._is_32 else 0xFFF8
        chain: list[int] = []
        while cluster < end:
            if not 2 <= cluster < self._n_clusters + 2 or len(chain) > self._n_clusters:
                raise self._damaged("a chain of clusters leads nowhere")
            chain.append(cluster)
            cluster = self._next(cluster)
        return chain

    def _take(self, n: int) -> list[int]:
        """Link ``n`` free clusters to a chain, in memory."""
        if not n:
            return []
        free = (c for c in range(2, self._n_clusters + 2) if self._next(c) == 0)
        chain = [c for c, _ in zip(free, range(n), strict=False)]
        if len(chain) < n:
            raise InputError(
                f"{self._name} has {len(chain) * self._cluster} bytes free, and {n * self._cluster} are needed; "
                "remove files there, or take a larger card"
            )
        for cluster, following in zip(chain, [*chain[1:], 0x0FFF_FFFF if self._is_32 else 0xFFFF], strict=True):
            self._link(cluster, following)
        return chain

    def _store(self, data: bytes) -> list[int]:
        chain = self._take(-(-len(data) // self._cluster))
        for k, cluster in enumerate(chain):
            self._write(
                self._at(cluster), data[k * self._cluster : (k + 1) * self._cluster].ljust(self._cluster, b"\0")
            )
        self._sync()
        self._write_fat()
        return chain

    def _free_chain(self, cluster: int) -> None:
        if cluster:
            for c in self._chain(cluster):
                self._link(c, 0)
            self._write_fat()

    def _write_fat(self) -> None:
        """Write what differs of each copy, and the count of free clusters."""
        for k in range(self._n_fats):
            at = self._fat_at + k * self._fat_bytes
            disk = self._read(at, self._fat_bytes)
            for o in range(0, self._fat_bytes, self._sector):
                part = bytes(self._fat[o : o + self._sector])
                if disk[o : o + self._sector] != part:
                    self._write(at + o, part)
        if self._info_at and self._read(self._info_at, 4) == b"RRaA":
            self._write(self._info_at + 488, struct.pack("<I", self.free_bytes() // self._cluster))
        self._sync()

    # ------------------------------------------------------------ the disk

    def _read(self, at: int, n: int) -> bytes:
        if at < 0 or at + n > self._size:
            raise self._damaged("something lies beyond its end")
        try:
            data = os.pread(self._file, n, self._start + at)
        except OSError as error:
            raise InputError(f"{self._name} cannot be read: {error.strerror}; put the card in again") from error
        if len(data) != n:
            raise InputError(f"{self._name} ends too early: it is cut short, or has vanished; copy it again")
        return data

    def _write(self, at: int, data: bytes) -> None:
        try:
            n_written = os.pwrite(self._file, data, self._start + at)
        except OSError as error:
            raise self._failed(error) from error
        if n_written != len(data):
            raise InputError(
                f"{self._name} took {n_written} of {len(data)} bytes: its disk is full; make room and repeat"
            )

    def _sync(self) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> InputError:
        return InputError(
            f"{self._name} cannot be written: {error.strerror}; unlock the card, or put it in again, and repeat"
        )

    def _damaged(self, what: str) -> InputError:
        return InputError(
            f"the file system on {self._name} is damaged: {what}; repair it with fsck.vfat, or copy it again"
        )


def _raw_entry(name: str, cluster: int, size: int, kind: int) -> bytes:
    """The 32 bytes of a new name, which is a short one.

    Raises
    ------
    ValueError
        It is not: a mistake of this package.
    """
    match = _SHORT.fullmatch(name)
    if match is None and name not in (".", ".."):
        raise ValueError(f"{name} is not a short name")
    base, extension = (match[1], match[2] or "") if match else (name, "")
    text = base.upper().ljust(8) + extension.upper().ljust(3)
    lower = _LOWER if match else 0
    times = struct.pack("<BBBHHHHHH", kind, lower, 0, 0, _DAY, _DAY, cluster >> 16, 0, _DAY)
    return text.encode() + times + struct.pack("<HI", cluster & 0xFFFF, size)


def _checksum(short: bytes) -> int:
    """Of a short name, as its long name's entries have it."""
    total = 0
    for byte in short:
        total = ((total & 1) << 7) + (total >> 1) + byte & 0xFF
    return total
