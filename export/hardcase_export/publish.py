# SPDX-License-Identifier: Apache-2.0
"""Publishing a bundle: pack it, load it as a device does, sign it with the private key, and write both files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hardcase_edge.base.files import check_private, check_replaceable, read_bounded, write_whole
from hardcase_edge.bundle.ed25519 import SIGNATURE_BYTES
from hardcase_edge.bundle.file import Bundle, is_bundle_head, pack_bundle
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.bundle.signature import MAX_KEY_BYTES, MAX_SIGNATURES, are_signatures, sign, signature_path
from hardcase_edge.errors import InputError
from hardcase_edge.verifier.verify import Report


@dataclass(frozen=True)
class Published:
    """A bundle that has passed every check; ``path`` is None if it was not written."""

    path: Path | None
    sha256: str
    n_bytes: int
    is_signed: bool
    n_golden: int
    report: Report


def read_key(path: str | Path) -> bytes:
    """The bytes of a private key's file.

    Raises
    ------
    InputError
        The file cannot be read, is too large for a key, or can be read by others than its owner.
    """
    check_private(path, "signing key")
    return read_bounded(path, MAX_KEY_BYTES, "signing key", remedy="make one with hardcase keygen")


def check_out(out: str | Path | None, force: bool) -> None:
    """Check, before long work too, that a bundle may be written here: over nothing, or over a bundle.

    Raises
    ------
    InputError
        Something else stands there, or beside it in place of a signature; ``force`` allows both.
    """
    if out is not None:
        check_replaceable(out, "a bundle", is_bundle_head, force=force)
        check_replaceable(signature_path(out), "a signature", are_signatures, force=force)


def checked(bundle: Bundle) -> tuple[bytes, Loaded]:
    """A bundle's bytes, and what a device makes of them.

    Raises
    ------
    BundleError
        A device would refuse the bundle.
    """
    data = pack_bundle(bundle)
    return data, load_bytes(data, allow_joint=bundle.joint is not None)


def publish(
    bundle: Bundle,
    out: Path | None,
    key: bytes | None,
    *,
    force: bool = False,
) -> Published:
    """Pack a bundle, load it as a device does, and only then sign and write it.

    Parameters
    ----------
    out : path of the bundle; the signature goes beside it. None: the bundle is checked, but not written
    key : a private key in PEM, or None for a bundle without a signature; an older signature is then removed
    force : whether it may replace a file that is not a bundle

    Raises
    ------
    BundleError
        A device would refuse the bundle.
    InputError
        The key cannot sign, or a file cannot be written or may not be replaced.
    """
    check_out(out, force)
    data, loaded = checked(bundle)
    if out is not None:
        publish_bytes(data, out, key)
    return Published(out, loaded.bundle.sha256, len(data), key is not None, len(bundle.golden), loaded.report)


def publish_bytes(data: bytes, out: Path, key: bytes | None) -> None:
    """Sign and write the bytes of a bundle that has passed every check; ``key`` is as for ``publish``."""
    write_pair(out, data, None if key is None else sign(data, key))


def write_pair(out: Path, data: bytes, signature: bytes | None) -> None:
    """Write the bundle and its signature, so that at every moment a device that trusts the key finds a pair that fits.

    While the bundle is replaced, the signature file holds the signatures of both bundles. Without a key, a crash
    between the two files leaves a bundle that a device with a key refuses, as it refuses one without a signature.
    """
    path = signature_path(out)
    if signature is not None:
        write_whole(path, signature + _signatures(path))
        write_whole(out, data)
        write_whole(path, signature)
        return
    write_whole(out, data)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"the old signature {path} cannot be removed: {error.strerror}; remove it, for it no longer fits"
        ) from error


def _signatures(path: Path) -> bytes:
    """The signatures that stand there, the newest first, all but the last of as many as a file may hold."""
    most = (MAX_SIGNATURES - 1) * SIGNATURE_BYTES
    try:
        with open(path, "rb") as file:
            signatures = file.read(most + SIGNATURE_BYTES + 1)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; name another file") from error
    return signatures[:most] if are_signatures(signatures) else b""
