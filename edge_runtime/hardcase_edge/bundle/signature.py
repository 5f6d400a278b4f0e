# SPDX-License-Identifier: Apache-2.0
"""Signs bundles with Ed25519, and checks the signature of a bundle before the bundle is parsed.

A bundle's signature is detached: the file ``<bundle>.sig`` holds its 64 raw bytes. It covers
``b"hardcase-bundle-v1\\0"`` followed by the bundle file's bytes. Keys are PEM files. This module needs the
``cryptography`` package: ``pip install hardcase-edge[signed]``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..errors import InputError, SignatureError
from .ed25519 import SIGNATURE_BYTES, is_signed
from .public_key import public_key_of

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "MAX_KEY_BYTES", "MAX_SIGNATURES", "SIGNATURE_BYTES", "are_signatures", "check_signature", "make_keys",
    "private_key_of", "public_of", "sign", "signature_path",
]  # fmt: skip

MAX_KEY_BYTES = 16_384

MAX_SIGNATURES = 8  # in a file: each interrupted export leaves one more
_CONTEXT = b"hardcase-bundle-v1\0"
_OPENSSL = "cryptography.hazmat.primitives.asymmetric.ed25519"
_MISSING = "the cryptography package is missing; pip install 'hardcase-edge[signed]'"


def signature_path(bundle: str | Path) -> Path:
    """The path of a bundle's signature file."""
    from pathlib import Path  # imported here: it takes 6 ms, and a device without a store does not need it

    return Path(f"{bundle}.sig")


def check_signature(data: bytes, signature: bytes, public_pem: bytes) -> None:
    """Return if the holder of the key has signed these bytes; raise an error if not.

    Parameters
    ----------
    data : the bundle file's bytes
    signature : the bytes of the ``.sig`` file, 64 for each of 1 to ``MAX_SIGNATURES`` signatures
    public_pem : an Ed25519 public key in PEM

    Raises
    ------
    SignatureError
        No signature matches.
    InputError
        The key is not an Ed25519 public key.
    """
    key = public_key_of(public_pem)
    if not are_signatures(signature):
        raise SignatureError(
            f"the signature has {len(signature)} bytes, {SIGNATURE_BYTES} are expected; copy the .sig file again"
        )
    for k in range(0, len(signature), SIGNATURE_BYTES):
        if _is_signed(data, signature[k : k + SIGNATURE_BYTES], key):
            return
    raise SignatureError("the bundle is not signed by the trusted key; do not use it")


def _is_signed(data: bytes, signature: bytes, key: bytes) -> bool:
    """By OpenSSL if another part of this process has loaded it already, which gives the same verdicts on such keys."""
    openssl = getattr(sys.modules.get(_OPENSSL), "Ed25519PublicKey", None)
    if openssl is None:
        return is_signed(data, signature, key, context=_CONTEXT)
    try:
        openssl.from_public_bytes(key).verify(signature, _CONTEXT + data)
    except Exception:  # InvalidSignature, whose module is not imported for its name
        return False
    return True


def are_signatures(data: bytes) -> bool:
    """Whether the bytes have the length of a ``.sig`` file."""
    return len(data) in range(SIGNATURE_BYTES, MAX_SIGNATURES * SIGNATURE_BYTES + 1, SIGNATURE_BYTES)


def sign(data: bytes, private_pem: bytes) -> bytes:
    """The signature of these bytes, 64 bytes long.

    Raises
    ------
    InputError
        The key is not an Ed25519 private key, or the cryptography package is missing.
    """
    return private_key_of(private_pem).sign(_CONTEXT + data)


def public_of(private_pem: bytes) -> bytes:
    """The public key of a private key, both in PEM.

    Raises
    ------
    InputError
        The key is not an Ed25519 private key, or the cryptography package is missing.
    """
    key = private_key_of(private_pem).public_key()
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private_key_of(pem: bytes) -> Ed25519PrivateKey:
    """The private key in a PEM file.

    Raises
    ------
    InputError
        The file is not an Ed25519 private key without a password, or the cryptography package is missing.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise InputError(f"bundles cannot be signed here: {_MISSING}") from error
    try:
        key = load_pem_private_key(pem, password=None)
    except Exception as error:  # cryptography raises ValueError, TypeError and its own
        raise InputError("the signing key is not a PEM private key; make a pair with hardcase keygen") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(
            f"the signing key is a {type(key).__name__}, not an Ed25519 private key; make a pair with hardcase keygen"
        )
    return key


def make_keys() -> tuple[bytes, bytes]:
    """A new key pair: the private key and the public key, both in PEM.

    Raises
    ------
    InputError
        The cryptography package is missing.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ImportError as error:
        raise InputError(f"keys cannot be made here: {_MISSING}") from error
    private = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private, public_of(private)
