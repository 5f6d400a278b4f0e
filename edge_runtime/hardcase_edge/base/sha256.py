# SPDX-License-Identifier: Apache-2.0
"""SHA-256 without OpenSSL, because ``hashlib`` loads libcrypto, which takes a fifth of a device's memory."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def sha256(data: bytes | memoryview) -> bytes:
    """The digest of these bytes, 32 bytes long.

    >>> sha256(b"abc").hex()[:16]
    'ba7816bf8f01cfea'
    """
    digest: bytes = _new(data).digest()
    return digest


def sha256_twice(data: bytes, end: int) -> tuple[bytes, bytes]:
    """The digests of ``data[:end]`` and of ``data``, computed in one pass."""
    view = memoryview(data)
    digest = _new(view[:end])
    head_digest: bytes = digest.digest()
    digest.update(view[end:])
    return head_digest, digest.digest()


def _find() -> Any:
    for name in ("_sha2", "_sha256", "hashlib"):  # in Python 3.12 and later, in 3.11, and in any version
        try:
            return import_module(name).sha256
        except ImportError:
            continue
    raise ImportError("this Python has no SHA-256")


_new = _find()
