# SPDX-License-Identifier: Apache-2.0
"""Receives a bundle or a release: signature, metadata, damage, verifier and golden cases, and only then the store."""

from __future__ import annotations

from pathlib import Path

from ...base.clock import Clock
from ...base.files import read_bounded
from ...base.sha256 import sha256
from ...bundle.compatible import OTHER_PROGRAM, differences, identity_in, identity_of
from ...bundle.ed25519 import SIGNATURE_BYTES
from ...bundle.file import read_bundle_bytes
from ...bundle.load import Loaded, load_bytes
from ...bundle.signature import MAX_KEY_BYTES, MAX_SIGNATURES, are_signatures, check_signature, signature_path
from ...errors import BundleError, InputError, OtherProgramError, SignatureError, StoreError, TrustError
from ..release.archive import is_archive
from ..release.content import content_of, read_release
from .folder import Store
from .repository import read_metadata, read_repository
from .trust import Trust, first_trust, release_of, trust_from, updated


def receive(
    store: Store,
    bundle: str | Path,
    *,
    key: str | Path | None = None,
    metadata: str | Path | None = None,
    now: float | None = None,
    replaces: bool = False,
) -> tuple[str, str]:
    """Check a bundle and put it into the store's idle slot.

    Parameters
    ----------
    key : a public key in PEM that must have signed the bundle, or None
    metadata : a folder of newer metadata; None: those that the store has
    now : seconds since 1970; None: the clock's, or the time that the store has noted if that is later
    replaces : whether it may be another program than the one that runs here (``bundle.compatible``)

    Returns
    -------
    tuple of str
        The slot, or "" if the store has the bundle already, and its SHA-256 in hex.

    Raises
    ------
    InputError, BundleError, StoreError
        The bundle is not received, and the store runs what it ran.
    """
    now = Clock(store.noted_time()).now() if now is None else now
    data = read_bundle_bytes(bundle)
    trust, signature = _trusted(store, metadata, now), _signature(bundle)
    remedy = "put it with --replace-program if that is meant"
    slot = take(store, data, signature, key=key, trust=trust, now=now, replaces=replaces, remedy=remedy)
    return slot, sha256(data).hex()


def take(
    store: Store,
    data: bytes,
    signature: bytes,
    *,
    key: str | Path | None,
    trust: Trust | None,
    now: float,
    replaces: bool = False,
    remedy: str = "offer it with --replace-program if that is meant",
) -> str:
    """As ``receive``, for a bundle or a release that has come by another way than as a file.

    Parameters
    ----------
    signature : the bytes of its ``.sig`` file; empty if it has none
    trust : what the store trusts, or None

    Returns
    -------
    str
        The slot, or "" if the store has the bundle already.

    Raises
    ------
    InputError, BundleError, StoreError
        The bundle is not received, and the store runs what it ran.
    """
    release = (0, 0) if trust is None else release_of(trust, data, now=now)
    archive = None
    if is_archive(data):
        if trust is None:
            raise SignatureError("a release is taken by signed metadata alone; give the store a root with store trust")
        archive = read_release(data)
    content = content_of(data, signature, archive, store.base())
    if key is not None:
        own = "name the public key that hardcase keygen wrote"
        check_signature(content.bundle, content.signature, read_bounded(key, MAX_KEY_BYTES, "trusted key", remedy=own))
    loaded = load_bytes(content.bundle, allow_joint=True)
    if not replaces:
        _check_same(store, loaded, remedy)
    return store.put(content, b"", release, trust.to_bytes() if trust is not None else b"")


def _check_same(store: Store, new: Loaded, remedy: str) -> None:
    """Refuse another program than that of the bundle which the device runs; a store without one takes any."""
    slots = store.slots()
    if not slots.runs:
        return
    try:
        old = identity_in(store.content_of(slots.runs).bundle)
    except (BundleError, InputError, StoreError):  # the bundle that runs is damaged: the new one may only be better
        return
    ours = identity_of(new.manifest, new.bundle.program, is_joint=new.joint is not None)
    if found := differences(ours, old):
        raise OtherProgramError(f"{OTHER_PROGRAM}: {'; '.join(found)}; {remedy}")


def begin_trust(store: Store, root: str | Path) -> Trust:
    """Make a root the beginning of what the store trusts.

    Raises
    ------
    StoreError
        The store trusts a root already.
    InputError, TrustError
        The file is not a root that enough of its own keys have signed.
    """
    trust = first_trust(read_metadata(Path(root)))
    if store.trust() is not None:
        raise StoreError(f"the store {store.folder} trusts a root already; a newer one comes with --metadata")
    store.write_trust(trust.to_bytes())
    return trust


def _trusted(store: Store, metadata: str | Path | None, now: float) -> Trust | None:
    data = store.trust()
    if data is None:
        if metadata is not None or store.slots().newest > (0, 0):
            raise TrustError(f"the store {store.folder} trusts no root; give it one with hardcase-edge store trust")
        return None
    trust = trust_from(data)
    return trust if metadata is None else _updated(trust, Path(metadata), now)


def _updated(trust: Trust, folder: Path, now: float) -> Trust:
    files = read_repository(folder, trust.root)
    return updated(trust, files.roots, files.timestamp, files.snapshot, files.targets, now=now)


def _signature(bundle: str | Path) -> bytes:
    path = signature_path(bundle)
    if not path.exists():
        return b""
    limit = MAX_SIGNATURES * SIGNATURE_BYTES
    data = read_bounded(path, limit, "signature", remedy="copy the .sig file again", refusal=SignatureError)
    if not are_signatures(data):
        raise SignatureError(
            f"the signature {path} has {len(data)} bytes, which is not a multiple of 64; copy it again"
        )
    return data
