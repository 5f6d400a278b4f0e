# SPDX-License-Identifier: Apache-2.0
"""A boot partition is flashed and verified: the archive, the identity, the script, and last what starts the script.

Until its last write a card boots as it did before, so an interrupted flash puts nothing down; ``verify`` sees it, and
the same command again mends it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from hardcase_edge.errors import InputError
from hardcase_edge.fleet.release.archive import MAX_ARCHIVE_BYTES, read_archive

from .boot import FIRST, FOLDER, MAX_TEXT_BYTES, find, is_hooked
from .contents import Card
from .volumes import Volume

__all__ = ["flash_partition", "verify_partition"]

SPARE_BYTES = 262_144  # for the few small files, and for what the first boot writes
ARCHIVE, IDENTITY, SCRIPT = f"{FOLDER}/card.pyz", f"{FOLDER}/identity.zip", f"{FOLDER}/first.sh"
DONE, LOG = f"{FOLDER}/done.txt", f"{FOLDER}/log.txt"

Opener = Callable[[bool], AbstractContextManager[Volume]]  # of the volume, for writing or not


def flash_partition(open_volume: Opener, name: str, card: Card) -> dict[str, Any]:
    """Write a card's files, and read them back from the disk.

    Raises
    ------
    InputError
        The system there is not known, there is too little room, or a file cannot be written or reads back otherwise.
    """
    with open_volume(True) as volume:
        hook = find(lambda path: volume.read(path, MAX_TEXT_BYTES), name)
        files = {ARCHIVE: card.archive, SCRIPT: FIRST.encode()}
        if card.identity:
            files[IDENTITY] = card.identity
        needed, free = sum(map(len, files.values())) + SPARE_BYTES, volume.free_bytes()
        if free < needed:
            raise InputError(
                f"{name} has {free} bytes free, and {needed} are needed; remove files, or take another card"
            )
        files |= hook.files  # these last: they start the script
        for path, data in files.items():
            if volume.read(path, MAX_ARCHIVE_BYTES) != data:
                volume.write(path, data)
        if not card.identity:
            volume.remove(IDENTITY)
        volume.remove(LOG)
        volume.remove(DONE)
    with open_volume(False) as volume:
        for path, data in files.items():
            back = volume.read(path, MAX_ARCHIVE_BYTES)
            if back != data:
                at = next(
                    (k for k, (a, b) in enumerate(zip(back or b"", data, strict=False)) if a != b), len(back or b"")
                )
                raise InputError(
                    f"{path} on {name} reads back otherwise from byte {at} on; repeat, or replace the card"
                )
    return {"system": hook.kind, "notes": list(hook.notes)}


def verify_partition(open_volume: Opener, name: str) -> dict[str, Any]:
    """What is on a boot partition.

    Raises
    ------
    InputError
        Nothing was flashed, or what was is not whole.
    """
    with open_volume(False) as volume:
        data = volume.read(ARCHIVE, MAX_ARCHIVE_BYTES)
        if data is None:
            raise InputError(f"{name} has nothing of hardcase on it; flash it")
        archive = read_archive(data, f"{ARCHIVE} on {name}")
        if volume.read(SCRIPT, MAX_TEXT_BYTES) != FIRST.encode():
            raise InputError(f"{SCRIPT} on {name} is missing or of another version; flash again")
        report = _done(volume.read(DONE, MAX_TEXT_BYTES))
        is_done = report.get("archive") == archive.sha256
        hook = is_hooked(lambda path: volume.read(path, MAX_TEXT_BYTES))
        identity = volume.read(IDENTITY, MAX_ARCHIVE_BYTES)
        digest = hashlib.sha256(identity).hexdigest() if identity else ""
        if not is_done and digest != archive.manifest["identity"]:
            raise InputError(
                f"the identity on {name} is not the one of its archive; the flash was interrupted: repeat it"
            )
        if not is_done and (report or not hook):
            raise InputError(f"nothing on {name} starts what was flashed; the flash was interrupted: repeat it")
        log = (volume.read(LOG, MAX_TEXT_BYTES) or b"").decode(errors="replace").strip()
    return {
        "bundle": archive.manifest["bundle"],
        "name": archive.manifest["name"],
        "runtime": archive.manifest["runtime"],
        "run": archive.manifest["run"],
        "system": hook or report.get("how"),
        "identity": bool(archive.manifest["identity"]),
        "first_boot": report if is_done else (f"failed: {log[-200:]}" if log else "has not been yet"),
    }


def _done(data: bytes | None) -> dict[str, Any]:
    """The report of the first boot; empty if there is none."""
    try:
        report = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}
