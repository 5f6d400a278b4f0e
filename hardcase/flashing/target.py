# SPDX-License-Identifier: Apache-2.0
"""A target by its name: a folder, an image file, a block device, a host over ssh, or a device behind a broker.

A target is looked at, and refused, before anything is made for it; what is made is checked before anything is written.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import hardcase_edge
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.card.places import STORE
from hardcase_edge.fleet.identity.folder import Identities
from hardcase_export.zig import can_compile

from .contents import Card, check_device, identity_files, make_card, parsed_arguments, what_it_lacks
from .devices import check_card, check_image
from .kernels import PROCESSORS, compile_kernel
from .partition import flash_partition, verify_partition
from .remote import flash_host, host_of, verify_host
from .rootfs import flash_root, is_root, processor_of, verify_root
from .volumes import FolderVolume, Volume, open_image
from .wheels import kernels_in

__all__ = ["Wishes", "flash", "kernels_for", "offer", "verify"]

RUNNING = ("/", "/boot", "/boot/efi", "/boot/firmware")  # of the machine that flashes
_BROKER = re.compile(r"(mqtts?://[A-Za-z0-9.:@_\[\]-]{1,300})/([A-Za-z0-9._-]{1,64})", re.ASCII)


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
