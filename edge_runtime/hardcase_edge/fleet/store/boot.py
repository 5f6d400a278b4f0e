# SPDX-License-Identifier: Apache-2.0
"""The newest release since the device was switched on, kept outside the store: an older card put in place is noticed.

It lies in memory that a power cut empties: in the folder that systemd gives a service by ``RuntimeDirectory=`` and
names in ``RUNTIME_DIRECTORY``. So the chain of processes since the device was switched on remembers what a card that
is exchanged meanwhile cannot take back; without such a folder, a process remembers for itself alone.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.files import read_bounded, write_whole
from ...base.sha256 import sha256
from ...errors import HardcaseError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "RUNTIME_DIRECTORY"
MAX_BYTES = 64

Release = tuple[int, int]


class Boot:
    """What was seen of the store in a folder since the device was switched on.

    A file that cannot be read or written is as none: the store runs, and an older card is not noticed.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._seen: Release = (0, 0)
        holder = environment.get(VARIABLE, "").partition(":")[0]  # systemd may name several
        self._path = Path(holder) / f"newest-{sha256(os.fsencode(folder)).hex()[:16]}" if holder else None

    def newest(self) -> Release:
        """The newest release that was seen."""
        if self._path is not None and os.path.exists(self._path):
            with contextlib.suppress(HardcaseError, ValueError):
                text = read_bounded(self._path, MAX_BYTES, "newest release", remedy="remove it")
                root, targets = map(int, text.split())
                self._seen = max(self._seen, (root, targets))
        return self._seen

    def remove_leftovers(self) -> None:
        """Remove what a killed process has left of a write; the store's lock is held."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                for path in self._path.parent.glob(f".{self._path.name}.????????"):
                    path.unlink()

    def saw(self, release: Release) -> None:
        """A state with this release is on the disk."""
        if release > self.newest():
            self._seen = release
            if self._path is not None:
                with contextlib.suppress(HardcaseError):
                    write_whole(self._path, "{} {}".format(*release).encode())
