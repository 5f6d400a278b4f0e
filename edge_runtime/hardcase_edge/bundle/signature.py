# SPDX-License-Identifier: Apache-2.0
"""Signs bundles with Ed25519, and checks the signature of a bundle before the bundle is parsed.

A bundle's signature is detached: the file ``<bundle>.sig`` holds its 64 raw bytes. It covers
``b"hardcase-bundle-v1\\0"`` followed by the bundle file's bytes. Keys are PEM files. This module needs the
``cryptography`` package: ``pip install hardcase-edge[signed]``, but for what a device does with public keys.

A public key is read strictly: one block of PEM, and in it the 44 bytes that RFC 8410 has for such a key. Text around
the block, which OpenSSL skips, is refused: a device needs only the form that ``hardcase keygen`` and
``openssl pkey -pubout`` write.
"""

from __future__ import annotations

import sys
from binascii import a2b_base64, b2a_base64
from typing import TYPE_CHECKING

from ..errors import InputError, SignatureError
from .ed25519 import KEY_BYTES, SIGNATURE_BYTES, is_point, is_signed

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAX_KEY_BYTES = 16_384

MAX_SIGNATURES = 8  # in a file: each interrupted export leaves one more
_CONTEXT = b"hardcase-bundle-v1\0"
_BEGIN, _END = b"-----BEGIN PUBLIC KEY-----", b"-----END PUBLIC KEY-----"
_PREFIX = bytes.fromhex("302a300506032b6570032100")  # SEQUENCE {SEQUENCE {OID 1.3.101.112}, BIT STRING of 33 bytes}
_REMEDY = "make a pair with hardcase keygen"
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
    if not signature:
        raise SignatureError("the bundle's .sig file is missing or has 0 bytes; copy it beside the bundle")
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


def public_key_of(pem: bytes) -> bytes:
    """The 32 bytes of a public key.

    Raises
    ------
    InputError
        The file is not a public key in PEM, is another kind of key, or its bytes are not a point of the curve.

    Examples
    --------
    >>> key = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    >>> from base64 import b64encode
    >>> body = b64encode(bytes.fromhex("302a300506032b6570032100") + key)
    >>> public_key_of(b"-----BEGIN PUBLIC KEY-----\\n" + body + b"\\n-----END PUBLIC KEY-----\\n") == key
    True
    """
    lines = pem.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")
    if len(lines) < 3 or lines[0] != _BEGIN or lines[-1] != _END:
        raise InputError(f"the trusted key is not a PEM public key; {_REMEDY}")
    body = b"".join(lines[1:-1])
    try:
        data = a2b_base64(body, strict_mode=True)
        if b2a_base64(data, newline=False) != body:
            raise ValueError("bits behind its last byte")
    except ValueError as error:
        raise InputError(f"the trusted key is not a PEM public key ({error}); {_REMEDY}") from error
    if len(data) < len(_PREFIX):
        raise InputError(f"the trusted key is not a PEM public key, because it has only {len(data)} bytes; {_REMEDY}")
    key = data[len(_PREFIX) :]
    if data[: len(_PREFIX)] != _PREFIX or len(key) != KEY_BYTES:
        raise InputError(f"the trusted key is a key of another kind, not an Ed25519 public key; {_REMEDY}")
    if not is_point(key):
        raise InputError(f"the trusted key is damaged, because its bytes are not an Ed25519 public key; {_REMEDY}")
    return key
