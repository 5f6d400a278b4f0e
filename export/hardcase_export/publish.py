"""A bundle on its way out: the private key, the signature, the file."""

from __future__ import annotations

from pathlib import Path

from hardcase_edge.base.files import write_whole
from hardcase_edge.bundle.signature import MAX_KEY_BYTES, signature_path
from hardcase_edge.errors import InputError

__all__ = ["read_key", "write_signed"]


def read_key(path: Path) -> bytes:
    """The private key's file, bounded."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_KEY_BYTES)
    except OSError as error:
        raise InputError(f"signing key {path} cannot be read: {error.strerror}; make one with hardcase keygen") from (
            error
        )


def write_signed(out: Path, data: bytes, signature: bytes | None) -> None:
    """The bundle, then its signature: a crash between them leaves a bundle that a device with a key refuses."""
    write_whole(out, data)
    beside = signature_path(out)
    if signature is not None:
        write_whole(beside, signature)
        return
    try:
        beside.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"the old signature {beside} cannot be removed: {error.strerror}") from error
