"""Ed25519 signatures of bundles, detached in ``<bundle>.sig``, checked before a byte of the bundle is parsed.

The signature is over ``b"hardcase-bundle-v1\\0"`` and the file's bytes; the .sig file is its 64 raw bytes. Keys are
PEM. Needs the ``cryptography`` package: ``pip install hardcase-edge[signed]``.
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
    """Where the signature of a bundle lies."""
    from pathlib import Path  # 6 ms of a device's start, for those who do without

    return Path(f"{bundle}.sig")


def check_signature(data: bytes, signature: bytes, public_pem: bytes) -> None:
    """Return if the signature is this key's, over these bytes.

    Raises
    ------
    SignatureError
        It is not, or it cannot be checked here.
    InputError
        The key is no Ed25519 public key.
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
        raise InputError(f"the trusted key is a {type(key).__name__}, an Ed25519 public key is needed")
    if len(signature) != SIGNATURE_BYTES:
        raise SignatureError(f"the signature has {len(signature)} bytes, {SIGNATURE_BYTES} are expected")
    try:
        key.verify(signature, _CONTEXT + data)
    except InvalidSignature as error:
        raise SignatureError("the bundle is not signed by the trusted key; do not use it") from error


def sign(data: bytes, private_pem: bytes) -> bytes:
    """The signature of these bytes.

    Raises
    ------
    InputError
        The key is no Ed25519 private key, or nothing can be signed here.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise InputError(f"bundles cannot be signed here: {_MISSING}") from error
    try:
        key = load_pem_private_key(private_pem, password=None)
    except Exception as error:  # as above
        raise InputError("the signing key is not a PEM private key; make a pair with hardcase keygen") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"the signing key is a {type(key).__name__}, an Ed25519 private key is needed")
    return key.sign(_CONTEXT + data)


def make_keys() -> tuple[bytes, bytes]:
    """A new pair: private and public PEM.

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
