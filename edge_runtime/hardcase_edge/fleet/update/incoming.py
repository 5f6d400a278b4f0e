# SPDX-License-Identifier: Apache-2.0
"""The bundle that is on its way, as a file of the store, and notes of what was refused and what is being checked.

    FOLDER/incoming/SHA256    the bundle's bytes, each chunk at its place, zeros where none has come
    FOLDER/incoming/refused   which whole bundle was not put into the store, and why
    FOLDER/incoming/trying    which whole bundle is being checked, and how often that has begun

A process that is killed while it checks a bundle, for instance because the bundle takes all memory, finds ``trying`` at
its next start. One such end may be a power cut; after ``MOST_TRIES`` of them the bundle is refused.
The file needs no map of its chunks: an offer has their digests, and reading the file shows which are right. So a flush
that a power cut has undone, or a damaged byte, costs a chunk and nothing else, and a file that another broker began
weeks ago is gone on with.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

from ...base.files import read_bounded, sync_folder, write_whole
from ...base.record import record
from ...base.sha256 import sha256
from ...errors import HardcaseError, InputError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from ..store.folder import Store
    from .messages import Offer

GROUP = 8  # chunks between two flushes: what a power cut may cost
MAX_NOTE_BYTES = 2_048
MAX_REASON = 200  # characters
MOST_TRIES = 3  # times that the check of one bundle may begin and not end
NOTES = ("refused", "trying")


@record(frozen=True, slots=True)
class Refused:
    """A bundle that came whole and was not put into the store."""

    sha256: str = ""
    release: tuple[int, int] = (0, 0)
    reason: str = ""


class Incoming:
    """The folder of a store for what is on its way; what a killed process has left of a note is removed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.folder: Path = store.folder / "incoming"
        self.offer: Offer | None = None  # whose file is open
        self._file = -1
        self._unflushed = 0
        with contextlib.suppress(OSError):
            for note in NOTES:
                for path in self.folder.glob(f".{note}.????????"):
                    path.unlink()

    def begin(self, offer: Offer) -> frozenset[int]:
        """Go on with the file of this offer, or begin it; returns the chunks that are there.

        The file of any other bundle is removed, and the disk gives all the room at once.

        Raises
        ------
        StoreError
            The folder is a link, or the disk has too little room; another bundle's file is as it was.
        InputError
            The disk cannot be written.
        """
        if os.path.islink(self.folder):
            raise StoreError(f"{self.folder} is a link, and a store writes in its own folder only; remove the link")
        path = self.folder / offer.sha256.hex()
        others = [p for p in self.folder.glob("*") if p.name not in (path.name, *NOTES)]
        there = sum(p.stat().st_size for p in [path, *others] if p.exists())
        self._store.check_space(max(0, 2 * offer.size - there))  # this file, and its copy in a slot
        self.close()
        self.offer = None
        try:
            if not self.folder.exists():
                self.folder.mkdir()
                sync_folder(self.folder.parent)
            for other in others:
                other.unlink()
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
            os.ftruncate(self._file, offer.size)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, offer.size)
            sync_folder(self.folder)
        except OSError as error:
            self.close()
            raise InputError(f"{path} cannot be written: {error.strerror}; free some space") from error
        self.offer = offer
        return frozenset(k for k in range(offer.n_chunks) if offer.is_right(k, self._at(k)))

    def _at(self, index: int) -> bytes:
        assert self.offer is not None
        return os.pread(self._file, self.offer.length(index), index * self.offer.chunk_bytes)

    def write(self, index: int, data: bytes) -> None:
        """Put a chunk at its place.

        Raises
        ------
        InputError
            The disk is full or cannot be written.
        """
        assert self.offer is not None
        try:
            if os.pwrite(self._file, data, index * self.offer.chunk_bytes) != len(data):
                raise OSError(0, "the disk is full")
            self._unflushed += 1
            if self._unflushed >= GROUP:
                self.flush()
        except OSError as error:
            raise InputError(f"a chunk cannot be written: {error.strerror}; free some space") from error

    def flush(self) -> None:
        """Have on the disk what was written."""
        self._unflushed = 0
        os.fsync(self._file)

    def read(self) -> bytes:
        """The whole file.

        Raises
        ------
        InputError
            It cannot be read.
        """
        assert self.offer is not None
        path = self.folder / self.offer.sha256.hex()
        return read_bounded(path, self.offer.size, "incoming bundle", remedy="it is fetched again")

    def clear(self) -> None:
        """Remove the file of a bundle that is in the store, or will never be."""
        offer, self.offer = self.offer, None
        self.close()
        if offer is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.folder / offer.sha256.hex())

    def close(self) -> None:
        """Leave the file for another time."""
        file, self._file, self._unflushed = self._file, -1, 0
        if file >= 0:
            with contextlib.suppress(OSError):
                os.fsync(file)
            os.close(file)

    # ------------------------------------------------------------ what was refused, and what is being checked

    def refuse(self, refused: Refused) -> None:
        """Note that a whole bundle cannot be used here, so that it is not fetched again."""
        note = {"sha256": refused.sha256, "release": refused.release, "reason": refused.reason[:MAX_REASON]}
        with contextlib.suppress(HardcaseError):  # then it is fetched again after a restart
            self._write_note("refused", note)

    def refused(self) -> Refused:
        """What was refused last; an empty note if nothing was, or if nobody can read it any more."""
        with contextlib.suppress(HardcaseError, ValueError, KeyError, TypeError):
            note = self._note("refused")
            root, targets = note["release"]
            return Refused(str(note["sha256"]), (int(root), int(targets)), str(note["reason"]))
        return Refused()

    def tries(self, sha256: str) -> int:
        """How often the check of this bundle has begun and not ended."""
        with contextlib.suppress(HardcaseError, ValueError, KeyError, TypeError):
            note = self._note("trying")
            return int(note["times"]) if note["sha256"] == sha256 else 0
        return 0

    def begin_check(self, sha256: str, release: tuple[int, int]) -> None:
        """Note that the check of a whole bundle begins; it is on the disk when this returns.

        Raises
        ------
        InputError
            The disk cannot be written.
        """
        self._write_note("trying", {"sha256": sha256, "release": release, "times": self.tries(sha256) + 1})

    def end_check(self) -> None:
        """The check has ended, whatever it found; its end is on the disk when this returns."""
        with contextlib.suppress(OSError):  # then one end that was none counts
            os.unlink(self.folder / "trying")
            sync_folder(self.folder)

    def _write_note(self, name: str, note: dict[str, Any]) -> None:
        data = json.dumps(note).encode()
        write_whole(self.folder / name, sha256(data).hex().encode() + b" " + data)

    def _note(self, name: str) -> dict[str, Any]:
        """A note.

        Raises
        ------
        HardcaseError, ValueError
            There is none that can be read.
        """
        path = self.folder / name
        digest, _, data = read_bounded(path, MAX_NOTE_BYTES, "note of an update", remedy="remove it").partition(b" ")
        if digest != sha256(data).hex().encode():
            raise ValueError("it is damaged")
        note: dict[str, Any] = json.loads(data)
        return note
