# SPDX-License-Identifier: Apache-2.0
"""A release: an archive with what a device runs, and what it leaves out stays as it is.

Its parts are a bundle with its signature, a runtime (``hardcase_edge``, paho and kernels), the files beside it such as
plug-ins, settings (``run.toml``) and the authority of the broker's certificate (``ca.pem``). What the archive says of
the machine, of Python and of the store is compared before anything is kept. docs/SPEC-store-v1.md, section 9, is
normative.
"""

from __future__ import annotations

import platform
import struct
import sys
from typing import TYPE_CHECKING, Any

from ...base.record import record
from ...base.toml import parse_toml
from ...errors import BundleError, InputError
from .archive import Archive, is_archive, pack_archive, read_archive

if TYPE_CHECKING:
    from collections.abc import Mapping

STORE_FORMAT = 1  # of the store's state and of the way in which a runtime is started (docs/SPEC-store-v1.md)
BUNDLE, SIGNATURE = "card/model.hcb", "card/model.hcb.sig"
SETTINGS, AUTHORITY, KERNELS = "card/run.toml", "card/ca.pem", "card/kernels/"
KERNEL = "hardcase_edge/kernel/_kernel.abi3.so"
PARTS = ("bundle", "runtime", "files", "settings", "authority")
DEVICE_KEYS = ("store", "trust", "identity", "cert", "key", "device_id")  # settings that stay a device's own
RUNTIME = ("hardcase_edge", "paho", "hardcase_edge-", "paho_mqtt-")  # how the first folders of the runtime begin
ABOUT = ("runtime", "machines", "python", "store")  # of the runtime, in a manifest


@record(frozen=True, slots=True)
class Content:
    """What a slot gets."""

    sha256: str  # of what was offered, in hex
    bundle: bytes
    signature: bytes = b""
    archive: bytes = b""  # all other parts; empty: the device's own ones

    @property
    def n_bytes(self) -> int:
        """What it takes on the disk, its files unpacked, too, which zip halves twice at most."""
        return len(self.bundle) + len(self.signature) + 5 * len(self.archive)


def processor(machine: str = "", pointer_bytes: int = 0) -> str:
    """The processor that this Python runs on, as kernels are named; "" if there is no kernel for it."""
    machine, n = machine or platform.machine(), pointer_bytes or struct.calcsize("P")
    if n == 4:
        return "armv6" if machine.startswith("arm") or machine == "aarch64" else ""
    return {"aarch64": "aarch64", "arm64": "aarch64", "x86_64": "x86_64"}.get(machine, "")


def part_of(name: str) -> str:
    """The part of a release to which a file belongs, by its name in the archive; "" if to none."""
    if name in (BUNDLE, SIGNATURE):
        return "bundle"
    if name in (SETTINGS, AUTHORITY):
        return "settings" if name == SETTINGS else "authority"
    if name.startswith(KERNELS):
        return "runtime"
    first = name.partition("/")[0]
    if first in ("card", "__main__.py"):
        return ""
    is_runtime = first in RUNTIME[:2] or (first.startswith(RUNTIME[2:]) and first.endswith(".dist-info"))
    return "runtime" if is_runtime else "files"


def check_offered(data: bytes) -> Archive | None:
    """The release in the bytes that are to be signed or offered, which is None where they are a bundle.

    Raises
    ------
    BundleError
        No device takes them.
    """
    from ...bundle.load import load_bytes

    release = read_release(data, is_here=False) if is_archive(data) else None
    bundle = data if release is None else release.files.get(BUNDLE)
    if bundle is not None:
        load_bytes(bundle, allow_joint=True)
    return release


def bundle_in(data: bytes) -> bytes:
    """The bundle in what is offered: the bytes themselves, or those in a release; empty if that has none."""
    return read_release(data, is_here=False).files.get(BUNDLE, b"") if is_archive(data) else data


def read_release(data: bytes, *, is_here: bool = True) -> Archive:
    """The release in these bytes, if it is one for this machine, this Python and this store.

    ``is_here``: whether it is to run on this machine.

    Raises
    ------
    BundleError
        It is damaged, or for another machine, another Python or another store.
    """
    try:
        archive = read_archive(data, "the release")
    except InputError as error:
        raise BundleError(str(error).replace("flash again", "make it again")) from error
    about, names = archive.manifest, archive.files
    strange = min((name for name in names if not part_of(name)), default="")
    if strange or not names:
        raise BundleError(f"the release has {strange or 'no file'} in it, which no device reads; make it again")
    machines, python, store = about.get("machines", []), about.get("python", [3, 11]), about.get("store")
    if not _is_list(machines, str) or not _is_list(python, int):
        raise BundleError("a part of the release's manifest is of another type; make it again")
    if store != STORE_FORMAT:
        raise BundleError(f"the release is for stores of format {store!r}, and this one has {STORE_FORMAT}")
    if is_here and machines and processor() not in machines:
        own = processor() or platform.machine()
        raise BundleError(f"the release is for {', '.join(machines)}, and this machine is {own}; offer it another one")
    if is_here and list(sys.version_info[:2]) < python:
        own = ".".join(map(str, sys.version_info[:2]))
        raise BundleError(f"the release needs Python {'.'.join(map(str, python))}, and this system has {own}")
    if SETTINGS in names:
        try:
            own_keys = [key for key in parse_toml("run.toml", names[SETTINGS]) if key in (*DEVICE_KEYS, "bundle")]
        except InputError as error:
            raise BundleError(f"the release's settings: {error}") from error
        if own_keys:
            raise BundleError(f"the release's run.toml names {own_keys[0]!r}, which is each device's own; leave it out")
    is_runtime = any(part_of(name) == "runtime" for name in names)
    if is_runtime and ("hardcase_edge/cli.py" not in names or not about["runtime"]):
        raise BundleError("the release has a part of a runtime; make it again")
    return archive


def content_of(data: bytes, signature: bytes, release: Archive | None, base: Content | None) -> Content:
    """What a slot gets for an offered bundle or release: what that leaves out is what the device has.

    Parameters
    ----------
    data, signature : what was offered, and its detached signature
    release : the archive in the data; None: they are a bundle
    base : the content of the slot that stays; None: there is none

    Raises
    ------
    BundleError
        The release has no bundle, and neither has the device.
    """
    from ...base.sha256 import sha256

    old = read_archive(base.archive, "the slot's archive") if base is not None and base.archive else None
    old_files: Mapping[str, bytes] = old.files if old is not None else {}
    if release is None:
        return Content(sha256(data).hex(), data, signature, base.archive if base is not None else b"")
    bundle, own = release.files.get(BUNDLE, b""), release.files.get(SIGNATURE, b"")
    if not bundle:
        if base is None:
            raise BundleError("the release has no bundle, and the store has none; offer one with a bundle")
        bundle, own = base.bundle, base.signature
    rest = {name: text for name, text in release.files.items() if part_of(name) != "bundle"}
    given = {part_of(name) for name in rest}
    kept = {name: text for name, text in old_files.items() if part_of(name) not in given}
    if not rest and old is None:
        return Content(release.sha256, bundle, own)
    source = release.manifest if "runtime" in given or old is None else old.manifest
    about = {key: source[key] for key in ABOUT if key in source}
    names = {"bundle": "", "name": "", "identity": "", "run": []}
    return Content(release.sha256, bundle, own, pack_archive({**kept, **rest}, {**names, **about}))


def unpacked_files(archive: Archive) -> dict[str, bytes]:
    """The files of a slot's archive as they lie unpacked: the kernel of this processor at its place, and no other."""
    files = {name: data for name, data in archive.files.items() if not name.startswith(KERNELS)}
    kernel = archive.files.get(f"{KERNELS}{processor()}.so")
    if kernel is not None and "hardcase_edge/cli.py" in files:
        files[KERNEL] = kernel
    return files


def _is_list(value: Any, kind: type) -> bool:
    return type(value) is list and all(type(v) is kind for v in value)
