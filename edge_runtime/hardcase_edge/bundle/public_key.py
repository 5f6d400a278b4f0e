# SPDX-License-Identifier: Apache-2.0
"""Reads an Ed25519 public key from PEM, strictly: one block, and in it the 44 bytes that RFC 8410 has for such a key.

    -----BEGIN PUBLIC KEY-----
    base64 of SubjectPublicKeyInfo: 12 bytes that say Ed25519, and the key's 32 bytes
    -----END PUBLIC KEY-----

Text around the block, which OpenSSL skips, is refused: a device needs only the form that ``hardcase keygen`` and
``openssl pkey -pubout`` write.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64

from ..errors import InputError
from .ed25519 import KEY_BYTES, is_point

__all__ = ["public_key_of"]

_BEGIN, _END = b"-----BEGIN PUBLIC KEY-----", b"-----END PUBLIC KEY-----"
_PREFIX = bytes.fromhex("302a300506032b6570032100")  # SEQUENCE {SEQUENCE {OID 1.3.101.112}, BIT STRING of 33 bytes}
_REMEDY = "make a pair with hardcase keygen"


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
