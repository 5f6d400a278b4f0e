# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a device's store: its disk, its permissions, its state, and the bundles in its slots.

Everything is only read; no start is counted, and a device may run meanwhile.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ...errors import HardcaseError
from ..store.folder import SPARE_BYTES, Store
from ..store.slots import NAMES, Slots
from ..store.trust import trust_from
from .fault import Fault


def disk(folder: Path, needed: int = SPARE_BYTES) -> Iterator[Fault]:
    """A folder that is missing, a disk that is read-only or full, and a folder of somebody else's."""
    try:
        is_folder, what = stat.S_ISDIR(os.stat(folder).st_mode), "is not a folder"
    except (FileNotFoundError, NotADirectoryError):
        is_folder, what = False, "does not exist"
    except OSError as error:
        what = f"user {os.geteuid()} cannot look at the store: {error.strerror}"
        yield Fault(what, str(folder), "run this as the device's user, or as root")
        return
    if not is_folder:
        yield Fault(f"the store {what}", str(folder), "put a bundle into one: hardcase-edge store put FOLDER BUNDLE")
        return
    system = os.statvfs(folder)
    if system.f_flag & os.ST_RDONLY:
        what = "the disk is read-only; a card that fails often becomes so"
        yield Fault(what, str(folder), "read why: dmesg; then mount -o remount,rw, or replace the card")
        return
    wrong = [
        str(p)
        for p in (folder, *(folder / n for n in NAMES))
        if os.path.exists(p) and not os.access(p, os.W_OK | os.X_OK)
    ]
    if wrong:
        user = f"user {os.geteuid()}"
        yield Fault(f"{user} cannot write here", wrong[0], "run as the device's user, or change its owner: chown -R")
    free = system.f_bavail * system.f_frsize
    if free < needed:
        what = f"{free} bytes of the disk are free, and the next bundle needs {needed}"
        yield Fault(what, str(folder), "free some space: journalctl --vacuum-size=50M")


def store(folder: Path) -> Iterator[Fault]:
    """All that is wrong with a store and its disk."""
    sizes = [p.stat().st_size for p in folder.glob("[ab]/bundle.hcb")] if os.access(folder, os.R_OK | os.X_OK) else []
    faults = list(disk(folder, SPARE_BYTES + max(sizes, default=0)))
    yield from faults
    if not os.path.isdir(folder):
        return
    kept = Store(folder)
    try:
        slots = kept.slots()
    except HardcaseError as error:
        yield Fault.of(error, folder / "state")
        return
    try:
        data = kept.trust()
        if data is not None:
            trust_from(data)
    except HardcaseError as error:
        yield Fault.of(error, folder / "trust")
    for name in NAMES:
        yield from _slot(folder, slots, name)
    if not slots.ready and not slots.runs:
        yield Fault("the store has no bundle to run", str(folder), "put one into it: hardcase-edge store put")


def bundle_of(folder: Path) -> Path | None:
    """The bundle that a store runs or will try; None if there is none, or nobody can tell."""
    try:
        slots = Store(folder).slots()
    except HardcaseError:
        return None
    name = slots.ready or slots.runs
    return folder / name / "bundle.hcb" if name else None


def _slot(folder: Path, slots: Slots, name: str) -> Iterator[Fault]:
    slot, path = slots[name], folder / name / "bundle.hcb"
    if slot.state == "bad":
        yield Fault(f"the bundle of slot {name} is bad: {slot.reason}", str(path), "put one that mends this")
    if slot.state not in ("ready", "trial", "good"):
        return
    try:
        digest = Store(folder).content_of(name).sha256
    except HardcaseError as error:
        yield Fault.of(error, path)
        return
    if digest != slot.sha256:
        yield Fault(f"the bundle of slot {name} is damaged", str(path), "put it again, and doubt the card")
