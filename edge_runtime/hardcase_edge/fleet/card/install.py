# SPDX-License-Identifier: Apache-2.0
"""Puts an archive down below a root folder: runtime, command, store, identity, settings and unit, in this order.

The runtime goes to a folder of its own, which a link then names; the store takes the bundle by its own routine; the
unit is enabled last. A power cut anywhere leaves something that the next run of this mends, because each step finds
what it has done before. No network, pip or compiler is needed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.files import read_bounded, sync_folder, write_whole
from ...base.sha256 import sha256
from ...errors import HardcaseError, InputError
from ..identity.folder import Identities, is_file_of_identity
from ..release.archive import MANIFEST, MAX_ARCHIVE_BYTES, Archive, read_archive, read_zip
from ..release.content import KERNEL
from ..release.content import processor as own_processor
from ..store.first_boot import REPORT
from ..store.folder import Store
from ..store.receive import begin_trust, receive
from . import first_boot
from .places import COMMAND, RUNTIME, SETTINGS, STORE, UNITS, check_links, link, put, safe_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEMCTL_S = 60
SCRIPT = """\
#!/bin/sh
PYTHONPATH=/usr/local/lib/hardcase${PYTHONPATH:+:$PYTHONPATH} exec python3 -P -m hardcase_edge.cli "$@"
"""
FIRST_BOOT = """\
[Unit]
Description=hardcase: what the first boot of a flashed system checks and reports
ConditionPathExists=!/var/lib/hardcase/first-boot.json
Before=hardcase-edge.service

[Service]
Type=oneshot
Environment=PYTHONPATH=/usr/local/lib/hardcase
ExecStart=/usr/bin/python3 -B -m hardcase_edge.fleet.card.first_boot /

[Install]
WantedBy=multi-user.target
"""
_WANTS = f"{UNITS}/multi-user.target.wants"


def install(
    archive: Archive, root: Path, how: str, processor: str, identity: Mapping[str, bytes], *, is_here: bool
) -> dict[str, Any]:
    """Put everything down, and return what was done.

    Parameters
    ----------
    root : "/" on the device itself, or the folder where its root file system is mounted
    how : who does it, for the report, such as "cloud-init"
    processor : which kernel to take; "" for none
    identity : files for the device's identity; empty for none
    is_here : whether the root is of the system that runs this, so that the kernel can be tried at once

    Raises
    ------
    HardcaseError
        Something cannot be written, or the store refuses the bundle.
    """
    umask = os.umask(0o022)  # the device's user reads what is put down, however private whoever flashes is
    try:
        return _install(archive, root, how, processor, identity, is_here=is_here)
    finally:
        os.umask(umask)


def _install(
    archive: Archive, root: Path, how: str, processor: str, identity: Mapping[str, bytes], *, is_here: bool
) -> dict[str, Any]:
    files, manifest = archive.files, archive.manifest
    check_links(root)
    runtime = _put_runtime(archive, root, processor)
    link(root, RUNTIME, runtime.name)
    put(root, COMMAND, SCRIPT.encode(), 0o755)
    report: dict[str, Any] = {"format": 1, "how": how, "archive": archive.sha256, "runtime": manifest["runtime"]}
    report["store"] = _fill_store(Store(safe_folder(root, STORE)), runtime, files)
    report["identity"] = _put_identity(root, identity)
    if "card/trust.pub" in files:
        put(root, f"{SETTINGS}/trust.pub", files["card/trust.pub"])
    if "card/run.toml" in files:  # not on cards of before: their unit has the arguments
        put(root, f"{SETTINGS}/run.toml", files["card/run.toml"])
    put(root, f"{UNITS}/hardcase-edge.service", files["card/hardcase-edge.service"])
    if is_here:
        report = first_boot.finish(root, report)
    else:
        write_whole(runtime / "card" / "put.json", json.dumps(report, sort_keys=True).encode())
        (root / STORE / REPORT).unlink(missing_ok=True)
        put(root, f"{UNITS}/hardcase-first-boot.service", FIRST_BOOT.encode())
        link(root, f"{_WANTS}/hardcase-first-boot.service", "../hardcase-first-boot.service")
    link(root, f"{_WANTS}/hardcase-edge.service", "../hardcase-edge.service")
    for old in runtime.parent.glob(f"{Path(RUNTIME).name}-*"):
        if old != runtime and old.is_dir() and not old.is_symlink():
            shutil.rmtree(old, ignore_errors=True)
    return report


def read_identity(data: bytes, archive: Archive) -> dict[str, bytes]:
    """The files of the identity's zip file that belongs to an archive, by their paths in the identity's folder.

    Raises
    ------
    InputError
        It is damaged, belongs to another archive, or holds something else.
    """
    if sha256(data).hex() != archive.manifest["identity"]:
        raise InputError("identity.zip is not the one of card.pyz; flash again")
    files = read_zip(data, "the identity")
    strange = [name for name in files if not is_file_of_identity(name)]
    if strange or not files:
        stranger = min(strange, default="nothing")
        raise InputError(f"identity.zip has {stranger} in it, and no device reads that; flash again")
    return files


def _put_runtime(archive: Archive, root: Path, processor: str) -> Path:
    """A folder with all files of this archive, on the disk.

    It is never the one that the link names, unless that is whole already: so nothing runs what is being written.
    """
    link = root / RUNTIME
    safe_folder(root, str(Path(RUNTIME).parent))
    names = [f"{link.name}-{archive.sha256[:12]}", f"{link.name}-{archive.sha256[:12]}-again"]
    files = {**archive.files, MANIFEST: json.dumps(archive.manifest, sort_keys=True).encode()}
    kernel = files.get(f"card/kernels/{processor}.so")
    if kernel is not None:
        files[KERNEL] = kernel
    try:
        current = os.readlink(link) if link.is_symlink() else ""
        if current in names and _is_whole(link.parent / current, files):
            return link.parent / current
        folder = link.parent / next(name for name in names if name != current)
        if folder.is_symlink():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        os.sync()
    except OSError as error:
        raise InputError(f"{link} cannot be written: {error.strerror}; make room, and repeat") from error
    return folder


def _is_whole(folder: Path, files: Mapping[str, bytes]) -> bool:
    return all((folder / n).is_file() and (folder / n).read_bytes() == data for n, data in files.items())


def _fill_store(store: Store, runtime: Path, files: Mapping[str, bytes]) -> str:
    card = runtime / "card"
    if "card/root.json" in files and store.trust() is None:
        begin_trust(store, card / "root.json")
    has_metadata = any(name.startswith("card/metadata/") for name in files)
    slot, _ = receive(
        store,
        card / "model.hcb",
        key=card / "trust.pub" if "card/trust.pub" in files else None,
        metadata=card / "metadata" if has_metadata else None,
    )
    return f"the bundle is in slot {slot}" if slot else "the bundle was there already"


def _put_identity(root: Path, files: Mapping[str, bytes]) -> str:
    """Write an identity once: one that is there stays if a device can read it, because a broker may know no other."""
    folder = safe_folder(root, STORE)
    place, new = folder / "identity", folder / ".identity.new"
    if Identities(place).held().has_any:
        return "one was there already"
    if not files:
        return "none was given"
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        for name, data in files.items():
            (new / name).parent.mkdir(mode=0o700, exist_ok=True)
            write_whole(new / name, data, mode=0o600)
        _give(new, folder.stat())
        sync_folder(new)
        if place.exists():
            shutil.rmtree(place)
        new.rename(place)
        sync_folder(folder)
    except OSError as error:
        raise InputError(f"{place} cannot be written: {error.strerror}; make room, and repeat") from error
    return "put down"


def _give(folder: Path, owner: os.stat_result) -> None:
    """Make a folder's files those of the store's owner, which is the service's user once it has run.

    systemd gives a service the files of its folder only while that folder is another user's.
    """
    if owner.st_uid in (0, os.geteuid()):
        return
    for path in (*folder.rglob("*"), folder):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        sync_folder(path)


def main(argv: list[str]) -> int:
    """``card.pyz FOLDER HOW [ROOT]``: what the first boot runs, from the folder that holds the archive."""
    folder, how, root = Path(argv[0]), argv[1] if len(argv) > 1 else "hand", Path(argv[2] if len(argv) > 2 else "/")
    try:
        data = read_bounded(folder / "card.pyz", MAX_ARCHIVE_BYTES, "archive", remedy="flash again")
        archive, identity = read_archive(data, str(folder / "card.pyz")), {}
        zip_file, has_own = folder / "identity.zip", Identities(root / STORE / "identity").held().has_any
        if archive.manifest["identity"] and (zip_file.exists() or not has_own):  # a cut may have come behind its end
            zipped = read_bounded(zip_file, MAX_ARCHIVE_BYTES, "identity", remedy="flash again")
            identity = read_identity(zipped, archive)
        report = install(archive, root, how, own_processor(), identity, is_here=True)
        zip_file.unlink(missing_ok=True)  # first: nobody looks for it any more once the work is done
        write_whole(folder / "done.txt", json.dumps(report, sort_keys=True).encode() + b"\n")
    except HardcaseError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    if how != "firstrun" and root == Path("/"):
        _start()
    print(json.dumps(report, sort_keys=True))
    return 0


def _start() -> None:
    """Start the unit, or start it again; under firstrun.sh the system reboots anyway."""
    for words in (["daemon-reload"], ["--no-block", "restart", "hardcase-edge.service"]):
        try:
            subprocess.run(["systemctl", *words], timeout=SYSTEMCTL_S, check=True, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"hardcase-edge.service starts at the next boot: {error}", file=sys.stderr)
            return
