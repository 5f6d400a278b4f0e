# SPDX-License-Identifier: Apache-2.0
"""A mounted root file system is flashed and verified: its system, Python and processor are read from its own files."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardcase_edge.base.files import read_bounded
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.card.install import install
from hardcase_edge.fleet.card.places import RUNTIME, STORE, UNITS
from hardcase_edge.fleet.release.archive import MANIFEST, MAX_ARCHIVE_BYTES, read_archive, read_manifest
from hardcase_edge.fleet.store.first_boot import REPORT
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.show import describe
from hardcase_edge.fleet.store.slots import NAMES

from .contents import Card
from .kernels import PROCESSORS

MAX_JSON_BYTES = 1_048_576


def is_root(folder: Path) -> bool:
    """Whether a folder is the root of a system."""
    return any((folder / name).exists() for name in ("etc/os-release", "usr/lib/os-release"))


def processor_of(folder: Path) -> str:
    """The processor of a root's Python, as kernels are named; "" if there is no kernel for it.

    Raises
    ------
    InputError
        The system has no systemd, or no Python from 3.11 on.
    """
    if not any((folder / name).exists() for name in ("usr/lib/systemd/systemd", "lib/systemd/systemd")):
        raise InputError(f"the system in {folder} has no systemd, which starts the device; prepare one that has")
    versions = [re.fullmatch(r"python3\.(\d+)", p.name) for p in sorted((folder / "usr" / "bin").glob("python3.*"))]
    newest = max((int(m[1]) for m in versions if m), default=0)
    if newest < 11:
        has = f"Python 3.{newest}" if newest else "no Python"
        raise InputError(f"the system in {folder} has {has}, and 3.11 or later is needed; prepare a newer system")
    python = folder / "usr" / "bin" / f"python3.{newest}"
    if not os.path.realpath(python).startswith(os.path.realpath(folder) + os.sep) or not python.is_file():
        raise InputError(f"{python} leads out of {folder}; name the root of a whole system")
    with open(python, "rb") as file:
        head = file.read(20)
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return ""
    bits, (machine,) = 32 * head[4], struct.unpack_from("<H", head, 18)
    return next((n for n, p in PROCESSORS.items() if (p.bits, p.machine) == (bits, machine)), "")


def flash_root(folder: Path, card: Card, identity: Mapping[str, bytes], processor: str) -> dict[str, Any]:
    """Put a card's files down below a root, and read them back from the disk.

    Raises
    ------
    HardcaseError
        Something cannot be written, reads back otherwise, or the store there refuses the bundle.
    """
    archive = read_archive(card.archive, "the archive")
    report = install(archive, folder, "folder", processor, identity, is_here=False)
    verify_root(folder)
    return {"system": "root folder", "store": report["store"], "identity": report["identity"]}


def verify_root(folder: Path) -> dict[str, Any]:
    """What is on a root file system.

    Raises
    ------
    HardcaseError
        Nothing was flashed, or what was is not whole.
    """
    runtime = folder / RUNTIME
    if not runtime.is_symlink() or "/" in os.readlink(runtime):
        raise InputError(f"{folder} has nothing of hardcase on it, or a flash was interrupted; flash it")
    try:
        manifest = read_manifest(_read(runtime / MANIFEST))
        for name, digest in manifest["files"].items():
            if sha256(_read(runtime / name)).hex() != digest:
                raise InputError(f"{runtime / name} is not what was written; flash again")
        kept = Store(folder / STORE)
        bundle, store, slots = manifest["bundle"], describe(kept), kept.slots()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{runtime / MANIFEST} is damaged; flash again") from error
    for name in NAMES:
        is_held = slots[name].state in ("ready", "trial", "good")
        if is_held and kept.content_of(name).sha256 != slots[name].sha256:
            raise InputError(f"the bundle of slot {name} in {folder / STORE} is damaged; flash again")
    if bundle not in f"{store['slot_a']} {store['slot_b']}" or not store["runs"]:
        raise InputError(f"the store in {folder} does not have the bundle that was flashed; flash again")
    if not (folder / UNITS / "multi-user.target.wants" / "hardcase-edge.service").is_symlink():
        raise InputError(f"nothing in {folder} starts what was flashed; the flash was interrupted: repeat it")
    return {
        "bundle": bundle,
        "name": manifest["name"],
        "runtime": manifest["runtime"],
        "run": manifest["run"],
        "system": "root folder",
        "identity": (folder / STORE / "identity").is_dir(),
        "first_boot": _first_boot(folder / STORE / REPORT),
        "store": {k: v for k, v in store.items() if k.startswith("slot") or k == "runs"},
    }


def _first_boot(path: Path) -> object:
    """What the first boot's report says, or that there is none."""
    if not path.exists():
        return "has not been yet"
    try:
        return json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged; remove it, and boot the device again") from error


def _read(path: Path) -> bytes:
    """A file's bytes, from the disk where the system lets us."""
    if not path.is_file():
        raise InputError(f"{path} is missing; flash again")
    if hasattr(os, "posix_fadvise"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return read_bounded(path, MAX_ARCHIVE_BYTES, "file", remedy="flash again")
