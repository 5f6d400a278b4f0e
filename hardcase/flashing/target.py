# SPDX-License-Identifier: Apache-2.0
"""A target by its name: a folder, an image file, a block device, a host over ssh, or a device behind a broker.

A target is looked at, and refused, before anything is made for it; what is made is checked before anything is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import hardcase_edge
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.card.places import STORE
from hardcase_edge.fleet.identity.folder import Identities
from hardcase_edge.fleet.release.archive import MAX_ARCHIVE_BYTES, read_archive
from hardcase_export.zig import can_compile

from .boot import FIRST, FOLDER, MAX_TEXT_BYTES, find, is_hooked
from .contents import Card, check_device, identity_files, make_card, parsed_arguments, what_it_lacks
from .devices import check_card, check_image
from .kernels import PROCESSORS, compile_kernel
from .remote import flash_host, host_of, verify_host
from .rootfs import flash_root, is_root, processor_of, verify_root
from .volumes import FolderVolume, Volume, open_image
from .wheels import kernels_in

RUNNING = ("/", "/boot", "/boot/efi", "/boot/firmware")  # of the machine that flashes
_BROKER = re.compile(r"(mqtts?://[A-Za-z0-9.:@_\[\]-]{1,300})/([A-Za-z0-9._-]{1,64})", re.ASCII)
SPARE_BYTES = 262_144  # for the few small files, and for what the first boot writes
ARCHIVE, IDENTITY, SCRIPT = f"{FOLDER}/card.pyz", f"{FOLDER}/identity.zip", f"{FOLDER}/first.sh"
DONE, LOG = f"{FOLDER}/done.txt", f"{FOLDER}/log.txt"
Opener = Callable[[bool], AbstractContextManager[Volume]]  # of the volume, for writing or not


class Wishes(NamedTuple):
    """What a user wants on a card, besides the bundle."""

    arguments: Sequence[str] = ()  # of hardcase-edge run
    identity: str | None = None
    trust: str | None = None
    root: str | None = None
    metadata: str | None = None
    wheels: str | None = None
    extra: Sequence[str] = ()
    ssh: tuple[str, ...] = ()
    devices: Sequence[str] = ()
    groups: Sequence[str] = ()


def flash(bundle: str, target: str, wishes: Wishes) -> dict[str, Any]:
    """Put a bundle and all that it needs on a target; returns what was found and written.

    Raises
    ------
    HardcaseError
        Nothing was written, or an interrupted flash that the same command mends.
    """
    run = parsed_arguments(wishes.arguments)
    identity = identity_files(wishes.identity) if wishes.identity is not None else {}
    there = Path(target) / STORE / "identity"  # of a root that was flashed before, where it stays
    own = there if Identities(there).held().has_any else wishes.identity
    check_device(run, bundle, trust=wishes.trust, extra=wishes.extra, identity=own)
    held = None if own is None else Identities(own).held()
    is_claim = held is not None and held.claim is not None and held.current is None
    lacks = partial(what_it_lacks, wishes.extra, is_claim=is_claim)
    if target.startswith("ssh://"):
        host = host_of(target)
        card, notes = _card(bundle, wishes, run.sensors, identity, tuple(PROCESSORS))
        report = flash_host(host, card, wishes.ssh)
        notes += lacks(None, has_openssl=report.pop("openssl"))
    elif _kind(target, is_written=True) == "root":
        processor = processor_of(Path(target))
        card, notes = _card(bundle, wishes, run.sensors, identity, (processor,) if processor else ())
        report = flash_root(Path(target), card, identity, processor)
        has_openssl = any((Path(target) / folder / "openssl").exists() for folder in ("usr/bin", "bin"))
        notes += lacks(Path(target), has_openssl=has_openssl)
    else:
        card, notes = _card(bundle, wishes, run.sensors, identity, tuple(PROCESSORS))
        report = flash_partition(_Opener(target), target, card)
        notes += report.pop("notes") + lacks(None, has_openssl=None)
    about = {"bundle": card.bundle, "name": card.name, "kernels": list(card.kernels), "identity": bool(identity)}
    return {"target": target, **about, **report, "notes": notes}


def verify(target: str, ssh: tuple[str, ...] = ()) -> dict[str, Any]:
    """What is on a target.

    Raises
    ------
    HardcaseError
        Nothing is, or it is not whole.
    """
    if target.startswith("ssh://"):
        return {"target": target, **verify_host(host_of(target), ssh)}
    if _kind(target) == "root":
        return {"target": target, **verify_root(Path(target))}
    return {"target": target, **verify_partition(_Opener(target), target)}


def offer(bundle: str, target: str, options: Mapping[str, str | None]) -> int:
    """Hand a bundle for a device behind a broker to ``hardcase cloud offer``; returns its exit status.

    ``options``: those of that command by their names, None for those that were not given.

    Raises
    ------
    InputError
        The URL is not ``mqtts://broker/device``.
    """
    match = _BROKER.fullmatch(target)
    if match is None:
        raise InputError(f"{target} is not mqtts://broker/device; correct it")
    command = [sys.executable, "-m", "hardcase.cli", "cloud", "offer", bundle]
    where = ["--broker", match[1], "--device", match[2]]
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", value)]
    return subprocess.run([*command, *where, *words], check=False).returncode


def _kind(target: str, *, is_written: bool = False) -> str:
    """What a target is: ``root`` or ``boot`` for a folder, ``image`` or ``device`` for a file."""
    try:
        mode = os.stat(target).st_mode
    except OSError as error:
        raise InputError(f"{target}: {error.strerror}; name a folder, an image, a device or ssh://user@host") from error
    if stat.S_ISDIR(mode):
        if is_written and os.path.realpath(target) in RUNNING:
            raise InputError(f"{target} is the running system's own; name the folder where a card is mounted")
        return "root" if is_root(Path(target)) else "boot"
    if stat.S_ISBLK(mode):
        if is_written:
            check_card(Path(target))
        return "device"
    if not stat.S_ISREG(mode):
        raise InputError(f"{target} is neither a folder, an image file nor a card; name one of these")
    if is_written:
        check_image(Path(target))
    return "image"


class _Opener:
    """Opens a target's boot partition."""

    def __init__(self, target: str) -> None:
        self._path = Path(target)

    def __call__(self, can_write: bool) -> AbstractContextManager[Volume]:
        if self._path.is_dir():
            return nullcontext(FolderVolume(self._path))
        return open_image(self._path, can_write=can_write)


def _card(
    bundle: str, wishes: Wishes, sensors: Sequence[str], identity: Mapping[str, bytes], processors: tuple[str, ...]
) -> tuple[Card, list[str]]:
    kernels, notes = kernels_for(processors, wishes.wheels)
    card = make_card(
        bundle, wishes.arguments, kernels, identity,
        trust=wishes.trust, root=wishes.root, metadata_folder=wishes.metadata, extra=wishes.extra,
        devices=wishes.devices, groups=wishes.groups, sensors=sensors,
    )  # fmt: skip
    return card, notes


def kernels_for(processors: tuple[str, ...], wheels: str | None) -> tuple[dict[str, bytes], list[str]]:
    """Kernels from wheels, else compiled here, else none, with a line that says so."""
    if wheels is not None:
        kernels = kernels_in(Path(wheels), hardcase_edge.__version__)
        kernels = {name: kernels[name] for name in processors if name in kernels}
    elif can_compile():
        kernels = {name: compile_kernel(name) for name in processors}
    else:
        kernels = {}
    absent = [name for name in processors if name not in kernels]
    remedy = "make wheels, and --wheels dist" if wheels is None else "make wheels"
    note = (
        f"no kernel for {', '.join(absent)}: there the device decides in Python, more slowly; for the kernel: {remedy}"
    )
    return kernels, [note] if absent else []


# A boot partition is flashed and verified: the archive, the identity, the script, and last what starts the script.
#
# Until its last write a card boots as it did before, so an interrupted flash puts nothing down; ``verify`` sees it, and
# the same command again mends it.


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
