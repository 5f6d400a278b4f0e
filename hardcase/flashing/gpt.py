# SPDX-License-Identifier: Apache-2.0
"""GUID partition tables, as UEFI 2.10 section 5.3 has them: the primary one, of a card with sectors of 512 bytes.

Nothing of a table is believed before both of its checksums are right; it is only read, never written or mended.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from uuid import UUID
from zlib import crc32

from hardcase_edge.errors import InputError

__all__ = ["FAT_TYPES", "partitions"]

SECTOR = 512
FAT_TYPES = {
    UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"),  # EFI system partition
    UUID("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"),  # basic data
    UUID("bc13c2ff-59e6-4262-a352-b275fd6f7172"),  # extended boot loader
}
_HEADER = struct.Struct("<8sIII4xQQQQ16sQIII")
_ENTRY = struct.Struct("<16s16sQQ")
_MOST_BYTES = 131_072  # of the entries: eight times the usual


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
