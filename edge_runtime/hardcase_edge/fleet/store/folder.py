# SPDX-License-Identifier: Apache-2.0
"""A store on the disk: the folders of two slots, the state and the trust, each of them whole after any power cut.

    FOLDER/state              the state of the slots (``slots.py``), twice
    FOLDER/trust              the trusted metadata (``trust.py``), twice; only where metadata are asked
    FOLDER/time               a time that has passed for certain (``hours.py``), twice
    FOLDER/broken             the sensors that are broken under the current bundle (``run.py``), twice
    FOLDER/a, FOLDER/b        the files of a slot (``release.slot``): its bundle, and what a release has brought
    FOLDER/lock               locked by whoever changes something

Neither the lock nor a slot's folder may be a link: whoever writes a card's store must write within it.
One routine writes: a temporary file, flushed, renamed, its folder flushed, and then read back from the disk. A file of
two sealed copies survives any one damaged byte: each half is a SHA-256 in hex, a space, the text, and the line's end.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from ...base.files import read_bounded, sealed, sync_folder, unsealed, write_whole
from ...base.record import record
from ...base.sha256 import sha256
from ...errors import HardcaseError, NoBundleError, StoreError, one_line
from ..release.content import Content
from ..release.slot import read_content, write_content
from .boot import Boot
from .slots import NAMES, Slot, Slots, broken, is_known, mended, offered, received, slots_from, started, without_trial

MAX_STATE_BYTES = 16_384
MAX_TRUST_BYTES = 2 * 1024 * 1024  # two copies of four files of metadata, each quoted
SPARE_BYTES = 262_144  # of the disk, besides the bundle: for the state, the trust and their temporary files
MAX_TIME_BYTES = MAX_PARTS_BYTES = 1_024
MAX_BROKEN = 256  # names of sensors that are noted
MAX_BROKEN_BYTES = 2 * 1024 * 1024  # two copies of so many names of 200 characters, each escaped
# temporary files of ``write_whole``
LEFTOVERS = (".state.????????", ".trust.????????", ".time.????????", ".broken.????????", "[ab]/.*.????????")


@record(frozen=True, slots=True)
class Started:
    """What runs."""

    name: str
    path: Path  # of the bundle, whose bytes have the slot's digest
    slot: Slot
    notes: tuple[str, ...] = ()  # lines that a user should read: what went back or was lost at this start


class Store:
    """The store in a folder, which ``put`` makes if it is not there.

    Every method that changes something holds the store's lock, reads the state again and writes it before it returns.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self._boot = Boot(self.folder)

    def slots(self) -> Slots:
        """The state; that of an empty store where there is none.

        Raises
        ------
        StoreError
            Both copies of the state are damaged, or it is older than one that was seen since the device was switched
            on.
        """
        data = self._sealed("state", MAX_STATE_BYTES)
        try:
            slots = Slots() if data is None else slots_from(json.loads(data))
        except (ValueError, RecursionError) as error:
            raise StoreError(f"the state of the store {self.folder} is not readable: {one_line(error)}") from error
        if slots.newest < (seen := self._boot.newest()):
            old, new = (".".join(map(str, release)) for release in (slots.newest, seen))
            raise StoreError(
                f"the store {self.folder} has release {old}, and has had {new} since this device was switched on; put "
                "the card back that it had, or switch the device off and on"
            )
        return slots

    def trust(self) -> bytes | None:
        """What the trust file holds; None where there is none.

        Raises
        ------
        StoreError
            Both copies of the trust are damaged.
        """
        return self._sealed("trust", MAX_TRUST_BYTES)

    def noted_time(self) -> int:
        """The time that was noted last, in seconds since 1970; 0 if none was, or what was noted is damaged."""
        try:
            return int(self._sealed("time", MAX_TIME_BYTES) or 0)
        except (HardcaseError, ValueError):
            return 0

    def note_time(self, seconds: int) -> None:
        """Note a time that has passed for certain, if it is later than the one that is noted.

        Raises
        ------
        StoreError, InputError
            The disk cannot be written.
        """
        with self._locked():
            if seconds > self.noted_time():
                self._seal("time", str(seconds).encode())

    def noted_broken(self, sha256: str) -> frozenset[str]:
        """The sensors that were broken under this bundle; none if nothing was noted of it, or the note is damaged."""
        try:
            note = json.loads(self._sealed("broken", MAX_BROKEN_BYTES) or b"{}")
            return frozenset(map(str, note["broken"])) if note.get("bundle") == sha256 else frozenset()
        except (HardcaseError, ValueError, RecursionError, TypeError, AttributeError, KeyError):
            return frozenset()

    def note_broken(self, sha256: str, sensors: Collection[str]) -> None:
        """Note which sensors are broken under the bundle with this digest, in place of what was noted before.

        Raises
        ------
        StoreError, InputError
            The disk cannot be written.
        """
        note = {"bundle": sha256, "broken": sorted(sensors)[:MAX_BROKEN]}
        with self._locked():
            self._seal("broken", json.dumps(note).encode())

    def apply(self, change: Callable[[Slots], Slots]) -> Slots:
        """Change the state, and have the new one on the disk.

        Raises
        ------
        StoreError
            The change is refused, or the state is damaged.
        InputError
            The disk is full or cannot be written: the state is what it was.
        """
        with self._locked():
            return self._apply(change)

    def put(
        self, bundle: bytes | Content, signature: bytes = b"", release: tuple[int, int] = (0, 0), trust: bytes = b""
    ) -> str:
        """Write what has been checked into the idle slot, for a trial at the next start.

        Parameters
        ----------
        bundle : the file's bytes, or the content of a slot that a release gives
        signature : the bytes of its ``.sig`` file; empty if it has none
        release : versions of root and targets that allow it
        trust : new contents of the trust file; empty to leave it

        Returns
        -------
        str
            The slot; "" if the store has this bundle already, on trial or good.

        Raises
        ------
        StoreError
            The bundle is older than the store's, the disk has too little space, or it gives other bytes back.
        InputError
            The disk cannot be written.
        """
        content = bundle if isinstance(bundle, Content) else Content(sha256(bundle).hex(), bundle, signature)
        digest = content.sha256
        self.make()
        with self._locked():
            slots = self._apply(lambda slots: mended(slots, digest, self._digest))
            after = offered(slots, digest, release)
            if trust:
                self._seal("trust", trust)
            if is_known(slots, digest):
                return ""
            self.check_space(content.n_bytes)
            self._apply(lambda _: after)
            self._write_content(slots.idle, content)
            self._apply(lambda slots: received(slots, digest))
            return slots.idle

    def write_trust(self, trust: bytes) -> None:
        """Replace the trust file.

        Raises
        ------
        InputError
            The disk cannot be written.
        """
        self.make()
        with self._locked():
            self._seal("trust", trust)

    def start(self) -> Started:
        """Choose the slot to run, count the start of a trial, and see that its bundle is what was received.

        If the state cannot be written, what a trial would go back to runs, because no start of a trial can be counted.

        Raises
        ------
        NoBundleError
            No slot has a bundle that may run.
        StoreError
            The state is damaged.
        """
        notes: list[str] = []
        with self._locked(must=False):
            while True:
                old = self.slots()
                try:
                    new = started(old)
                except NoBundleError as error:
                    raise NoBundleError("; ".join([*notes, str(error)])) from error
                name = new.runs
                notes += [
                    f"the trial of slot {n} has failed: {new[n].reason}; slot {name} runs again"
                    for n in NAMES
                    if new[n].state == "bad" and old[n].state == "trial"
                ]
                try:
                    self._apply(lambda _, new=new: new)  # type: ignore[misc]
                except HardcaseError as error:
                    tried, (new, name) = name, without_trial(old, new)
                    notes += [f"{error}; slot {tried} is not tried before that, and slot {name} runs"] * (name != tried)
                if self._digest(name) == new[name].sha256:
                    return Started(name, self._bundle(name), new[name], tuple(notes))
                notes.append(f"the bundle of slot {name} is not used: its file is damaged")
                self._apply(lambda slots, name=name: broken(slots, name))  # type: ignore[misc]

    def resumed(self, name: str, digest: str) -> Started:
        """The slot whose start another process has counted for this one.

        Raises
        ------
        StoreError
            It holds something else meanwhile.
        """
        slots = self.slots()
        if name not in NAMES or slots[name].state not in ("trial", "good") or slots[name].sha256 != digest:
            raise StoreError(f"slot {name[:8]} of {self.folder} is another one now; start hardcase-edge again")
        return Started(name, self._bundle(name), slots[name])

    # ------------------------------------------------------------ parts

    def _bundle(self, name: str) -> Path:
        return self.folder / name / "bundle.hcb"

    def _write_content(self, name: str, content: Content) -> None:
        write_content(self.folder / name, content, _write, lambda data: self._seal(f"{name}/parts", data))

    def content_of(self, name: str) -> Content:
        """What a slot holds, as it was put.

        Raises
        ------
        StoreError
            A part of it is damaged.
        InputError
            It cannot be read.
        """
        return read_content(self.folder / name, self._sealed(f"{name}/parts", MAX_PARTS_BYTES))

    def _digest(self, name: str) -> str:
        """The SHA-256 of what was offered for a slot, in hex; "" if what it holds cannot be read or is damaged."""
        try:
            return self.content_of(name).sha256
        except HardcaseError:
            return ""

    def base(self) -> Content | None:
        """The content of the slot that stays when another is put; None if no slot has any.

        Raises
        ------
        StoreError
            The state is damaged.
        """
        slots = self.slots()
        stays = NAMES[slots.idle == NAMES[0]]
        has_any = slots[stays].state in ("ready", "trial", "good") and self._digest(stays) == slots[stays].sha256
        return self.content_of(stays) if has_any else None

    def _apply(self, change: Callable[[Slots], Slots]) -> Slots:
        old = self.slots()
        new = change(old)
        if new != old:
            self._seal("state", json.dumps(new.to_json(), sort_keys=True).encode())
        self._boot.saw(new.newest)
        return new

    def make(self) -> None:
        """Make the folders that are missing, and have their names on the disk.

        Raises
        ------
        StoreError
            They cannot be made.
        """
        folders = [*reversed(self.folder.parents), self.folder, *[self.folder / name for name in NAMES]]
        try:
            for folder in folders:
                if not folder.exists() and not os.path.islink(folder):
                    folder.mkdir(exist_ok=True)
                    sync_folder(folder.parent)
        except OSError as error:
            raise StoreError(
                f"the store {self.folder} cannot be made: {error.strerror}; name another folder"
            ) from error

    @contextlib.contextmanager
    def _locked(self, *, must: bool = True) -> Iterator[None]:
        """Hold the store's lock, and remove what a power cut has left of a write.

        ``must``: whether it is an error that the store cannot be written, as on a disk that has become read-only.
        """
        self._check_links()
        file = -1
        try:
            file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
            _lock(file)
            for pattern in LEFTOVERS:
                for path in self.folder.glob(pattern):
                    path.unlink()
            self._boot.remove_leftovers()
        except OSError as error:
            if must:
                raise StoreError(
                    f"the store {self.folder} cannot be written: {error.strerror}; "
                    "put a bundle into it if it is new, or make its disk writable"
                ) from error
        try:
            yield
        finally:
            if file >= 0:
                os.close(file)

    def _check_links(self) -> None:
        for name in ("lock", *NAMES):
            if os.path.islink(path := self.folder / name):
                raise StoreError(f"{path} is a link, and a store writes in its own folder only; remove the link")

    def check_space(self, n_bytes: int) -> None:
        """Return if the disk has room for so many bytes and the store's own.

        Raises
        ------
        StoreError
            It has not.
        """
        free = os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_frsize
        if free < n_bytes + SPARE_BYTES:
            raise StoreError(
                f"the disk of the store {self.folder} has {free} bytes free, and the bundle needs "
                f"{n_bytes + SPARE_BYTES}; free some space"
            )

    def _seal(self, name: str, data: bytes) -> None:
        _write(self.folder / name, sealed(data))

    def _sealed(self, name: str, limit: int) -> bytes | None:
        path = self.folder / name
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:  # such as a folder of another user's, which is not an empty store
            raise StoreError(f"{path} cannot be read: {error.strerror}; run this as the store's user") from error
        copies = read_bounded(path, limit, "file of the store", remedy="put a bundle into a new store")
        data = unsealed(copies)
        if data is None:
            raise StoreError(f"{path} is damaged, in both of its copies; put a bundle into a new store")
        return data


def _write(path: Path, data: bytes) -> None:
    """Write a file whole, and read it back from the disk."""
    write_whole(path, data)
    with open(path, "rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # not from memory
        if file.read(len(data) + 1) != data:
            raise StoreError(f"{path} reads back otherwise than it was written; replace the disk or card")


def _lock(file: int) -> None:
    """Wait for the lock of an open file, where the system has locks; closing the file gives it back."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
