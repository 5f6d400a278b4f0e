# SPDX-License-Identifier: Apache-2.0
"""The number of this start of a device: one higher than the last, in one file that is written whole or not at all.

With a sequence it names a record once and for all. A folder without a number begins at a random one, so that a card
written anew does not repeat the numbers of the card before it. Where the file cannot be written, as on a full disk, the
start has a random number of its own, and the next one that can write goes on from the file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...base.files import read_bounded, write_whole
from ...errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

MOST_NUMBER = 2**53 - 1  # JSON readers keep whole numbers up to this
STARTS = 2**20  # how far apart random beginnings lie
MAX_BYTES = 32


def random_boot() -> int:
    """A number that no other start has, but for one case in 2**32."""
    return (1 + int.from_bytes(os.urandom(4), "big")) * STARTS


def next_boot(folder: Path) -> tuple[int, bool]:
    """The number of this start, on the disk before it is returned; and whether it could be written."""
    path = folder / "boot"
    boot = _last(path) + 1 or random_boot()
    try:
        write_whole(path, b"%d\n" % boot)
    except InputError:
        return random_boot(), False
    return boot, True


def _last(path: Path) -> int:
    """The number in the file; -1 if there is none that can be used."""
    try:
        text = read_bounded(path, MAX_BYTES, "boot number", remedy="remove it").decode().strip()
    except (InputError, UnicodeDecodeError):
        return -1
    is_number = text.isascii() and text.isdigit() and 1 <= int(text) < MOST_NUMBER
    return int(text) if is_number else -1
