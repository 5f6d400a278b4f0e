# SPDX-License-Identifier: Apache-2.0
"""Makes the offer of a bundle from its file and the signed metadata, and sees first that a device would take it."""

from __future__ import annotations

import time
from pathlib import Path

from hardcase_edge.base.files import read_bounded
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.bundle.ed25519 import SIGNATURE_BYTES
from hardcase_edge.bundle.file import read_bundle_bytes
from hardcase_edge.bundle.signature import MAX_SIGNATURES, signature_path
from hardcase_edge.errors import InputError, TrustError
from hardcase_edge.fleet.release.content import check_offered
from hardcase_edge.fleet.store.repository import Files, read_metadata, read_repository
from hardcase_edge.fleet.store.trust import first_trust, release_for, updated
from hardcase_edge.fleet.update.messages import MAX_MESSAGE_BYTES, Offer, digests_of, pack_offer

CHUNK_BYTES = 16_384
NO_FILES = Files((), b"", b"", b"")


def make_offer(
    bundle: str | Path, metadata: str | Path | None, *, now: float | None = None, replaces: bool = False
) -> tuple[bytes, Offer, tuple[int, int]]:
    """A bundle's bytes, its offer, and the release that the metadata give it.

    Parameters
    ----------
    bundle : path of the file; its signatures are read from ``<bundle>.sig`` if there is such a file
    metadata : the folder of a TUF repository's metadata with the roots from some version on, or None
    now : seconds since 1970; None: the clock's
    replaces : whether devices are to take it in place of another program

    Raises
    ------
    InputError
        A file cannot be read, nobody has signed anything, or the offer is too long for a device.
    BundleError
        No device would take this bundle with these metadata.
    """
    data = read_bundle_bytes(bundle)
    check_offered(data)
    files, release = NO_FILES, (0, 0)
    if metadata is not None:
        files, release = _checked(Path(metadata), data, time.time() if now is None else now)
    signature = _signature(bundle)
    if metadata is None and not signature:
        raise InputError(
            f"no device takes {bundle} unsigned over the air; name signed metadata with --metadata, or export it with "
            "--key"
        )
    offer = _offer(data, files, signature, replaces=replaces)
    if len(pack_offer(offer)) > MAX_MESSAGE_BYTES:
        raise InputError(
            f"the offer has {len(pack_offer(offer))} bytes of metadata, and devices read {MAX_MESSAGE_BYTES}; sign "
            "targets that list fewer bundles, or move roots away that all devices have"
        )
    return data, offer, release


def _offer(data: bytes, files: Files, signature: bytes, *, replaces: bool = False) -> Offer:
    return Offer(
        size=len(data), sha256=sha256(data), chunk_bytes=CHUNK_BYTES, digests=digests_of(data, CHUNK_BYTES),
        roots=files.roots, timestamp=files.timestamp, snapshot=files.snapshot, targets=files.targets,
        signature=signature, replaces=replaces,
    )  # fmt: skip


def _checked(folder: Path, data: bytes, now: float) -> tuple[Files, tuple[int, int]]:
    """The metadata, after the checks that a device makes which trusts the oldest root in the folder."""
    numbers = sorted(int(name) for p in folder.glob("*.root.json") if (name := p.name.split(".")[0]).isdigit())
    if not numbers:
        raise TrustError(f"{folder} has no 1.root.json or later root; name the folder of a TUF repository's metadata")
    trust = first_trust(read_metadata(folder / f"{numbers[0]}.root.json"))
    files = read_repository(folder, trust.root)
    trust = updated(trust, files.roots, files.timestamp, files.snapshot, files.targets, now=now)
    return files, release_for(trust, len(data), sha256(data).hex(), now=now)


def _signature(bundle: str | Path) -> bytes:
    path = signature_path(bundle)
    if not path.exists():
        return b""
    return read_bounded(path, MAX_SIGNATURES * SIGNATURE_BYTES, "signature", remedy="export the bundle again")
