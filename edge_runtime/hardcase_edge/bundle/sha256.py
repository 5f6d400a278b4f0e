"""SHA-256 without OpenSSL: ``hashlib`` loads libcrypto, a fifth of the device's memory, for a few checksums."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["sha256", "sha256_twice"]


def sha256(data: bytes | memoryview) -> bytes:
    """The 32 bytes of the digest."""
    digest: bytes = _new(data).digest()
    return digest


def sha256_twice(data: bytes, end: int) -> tuple[bytes, bytes]:
    """The digests of the bytes before ``end`` and of all, each byte looked at once."""
    view = memoryview(data)
    digest = _new(view[:end])
    before: bytes = digest.digest()
    digest.update(view[end:])
    return before, digest.digest()


def _find() -> Any:
    for name in ("_sha2", "_sha256", "hashlib"):  # Python 3.12 and later, 3.11, any
        try:
            return import_module(name).sha256
        except ImportError:
            continue
    raise ImportError("this Python has no SHA-256")


_new = _find()
