# SPDX-License-Identifier: Apache-2.0
"""Signs bundles with Ed25519, and checks the signature of a bundle before the bundle is parsed.

A bundle's signature is detached: the file ``<bundle>.sig`` holds its 64 raw bytes. It covers
``b"hardcase-bundle-v1\\0"`` followed by the bundle file's bytes. Keys are PEM files. This module needs the
``cryptography`` package: ``pip install hardcase-edge[signed]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InputError, SignatureError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MAX_KEY_BYTES", "SIGNATURE_BYTES", "check_signature", "make_keys", "sign", "signature_path"]

MAX_KEY_BYTES = 16_384

SIGNATURE_BYTES = 64
_CONTEXT = b"hardcase-bundle-v1\0"
_MISSING = "the cryptography package is missing; pip install 'hardcase-edge[signed]'"


def signature_path(bundle: str | Path) -> Path:
    """The path of a bundle's signature file."""
    from pathlib import Path  # imported here: it takes 6 ms, and a device without --trust does not need it

    return Path(f"{bundle}.sig")


def check_signature(data: bytes, signature: bytes, public_pem: bytes) -> None:
    """Return if the holder of the key has signed these bytes; raise an error if not.

    Parameters
    ----------
    data : the bundle file's bytes
    signature : the 64 bytes of the ``.sig`` file
    public_pem : an Ed25519 public key in PEM

    Raises
    ------
    SignatureError
        The signature does not match, or the cryptography package is missing.
    InputError
        The key is not an Ed25519 public key.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise SignatureError(f"the bundle's signature cannot be checked: {_MISSING}") from error
    try:
        key = load_pem_public_key(public_pem)
    except Exception as error:  # cryptography raises ValueError, TypeError and its own
        raise InputError("the trusted key is not a PEM public key; make a pair with hardcase keygen") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(
            f"the trusted key is a {type(key).__name__}, not an Ed25519 public key; make a pair with hardcase keygen"
        )
    if len(signature) != SIGNATURE_BYTES:
        raise SignatureError(
            f"the signature has {len(signature)} bytes, {SIGNATURE_BYTES} are expected; copy the .sig file again"
        )
    try:
        key.verify(signature, _CONTEXT + data)
    except InvalidSignature as error:
        raise SignatureError("the bundle is not signed by the trusted key; do not use it") from error


def sign(data: bytes, private_pem: bytes) -> bytes:
    """The signature of these bytes, 64 bytes long.

    Raises
    ------
    InputError
        The key is not an Ed25519 private key, or the cryptography package is missing.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise InputError(f"bundles cannot be signed here: {_MISSING}") from error
    try:
        key = load_pem_private_key(private_pem, password=None)
    except Exception as error:  # cryptography raises ValueError, TypeError and its own
        raise InputError("the signing key is not a PEM private key; make a pair with hardcase keygen") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(
            f"the signing key is a {type(key).__name__}, not an Ed25519 private key; make a pair with hardcase keygen"
        )
    return key.sign(_CONTEXT + data)


def make_keys() -> tuple[bytes, bytes]:
    """A new key pair: the private key and the public key, both in PEM.

    Raises
    ------
    InputError
        The cryptography package is missing.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
    except ImportError as error:
        raise InputError(f"keys cannot be made here: {_MISSING}") from error
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private, public
