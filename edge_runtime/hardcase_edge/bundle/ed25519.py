# SPDX-License-Identifier: Apache-2.0
"""Checks Ed25519 signatures (RFC 8032) on Python's integers, because OpenSSL takes 10 MB of a device's memory.

Only checking is here, and only public numbers pass through it, so its time may depend on them. It is as strict as RFC
8032 and accepts nothing that OpenSSL refuses: S must be below the group's order, the public key must be the one
encoding of a point, and the encoding of [S]B - [k]A must equal R byte for byte. In homogeneous coordinates
(X : Y : Z : T) a point has x = X / Z, y = Y / Z and xy = T / Z.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

KEY_BYTES = 32
SIGNATURE_BYTES = 64
_P = 2**255 - 19  # the field
_L = 2**252 + 27742317777372353535851937790883648493  # the order of the base point
_D = -121665 * pow(121666, -1, _P) % _P  # the curve: -x^2 + y^2 = 1 + d x^2 y^2
_ROOT = pow(2, (_P - 1) // 4, _P)  # a square root of -1

Point = tuple[int, int, int, int]
_ZERO: Point = (0, 1, 1, 0)


def is_signed(message: bytes, signature: bytes, public: bytes, *, context: bytes = b"") -> bool:
    """Whether the holder of a key has signed these bytes.

    Parameters
    ----------
    message : the bytes
    context : bytes that were signed in front of them; apart, so that a long message is not copied
    signature : R and S of RFC 8032, 64 bytes; any other length is not a signature
    public : the public key, 32 bytes; any other length is not a key

    Examples
    --------
    The first test of RFC 8032, section 7.1:

    >>> key = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    >>> signature = bytes.fromhex(
    ...     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
    ...     "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    ... )
    >>> is_signed(b"", signature, key), is_signed(b"!", signature, key)
    (True, False)
    """
    if len(signature) != SIGNATURE_BYTES or len(public) != KEY_BYTES:
        return False
    key, s = _decode(public), int.from_bytes(signature[32:], "little")
    if key is None or s >= _L:
        return False
    digest = _sha512(signature[:32] + public + context)
    digest.update(message)
    k = int.from_bytes(digest.digest(), "little") % _L
    return _encode(_sum_of_multiples(s, _BASE, k, _minus(key))) == signature[:32]


def is_point(data: bytes) -> bool:
    """Whether these 32 bytes are a public key: the one encoding of a point of the curve."""
    return len(data) == KEY_BYTES and _decode(data) is not None


def _decode(data: bytes) -> Point | None:
    """The point of an encoding; None if no point has it (RFC 8032, section 5.1.3)."""
    number = int.from_bytes(data, "little")
    y, sign = number & (2**255 - 1), number >> 255
    if y >= _P:
        return None
    u, v = (y * y - 1) % _P, (_D * y * y + 1) % _P
    x = u * v**3 * pow(u * v**7, (_P - 5) // 8, _P) % _P
    if v * x * x % _P != u:
        x = x * _ROOT % _P
        if v * x * x % _P != u:
            return None
    if x == 0 and sign:
        return None
    x = _P - x if x % 2 != sign else x
    return x, y, 1, x * y % _P


def _encode(point: Point) -> bytes:
    x, y, z, _ = point
    inverse = pow(z, -1, _P)
    return (y * inverse % _P | (x * inverse % _P & 1) << 255).to_bytes(32, "little")


def _minus(point: Point) -> Point:
    x, y, z, t = point
    return -x % _P, y, z, -t % _P


def _add(one: Point, other: Point) -> Point:
    """The sum of any two points, equal ones too (RFC 8032, section 5.1.4)."""
    x1, y1, z1, t1 = one
    x2, y2, z2, t2 = other
    a, b = (y1 - x1) * (y2 - x2) % _P, (y1 + x1) * (y2 + x2) % _P
    c, d = 2 * _D * t1 * t2 % _P, 2 * z1 * z2 % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _double(point: Point) -> Point:
    x, y, z, _ = point
    a, b, c = x * x % _P, y * y % _P, 2 * z * z
    h = a + b
    e, g = h - (x + y) ** 2, a - b
    f = c + g
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _sum_of_multiples(m: int, one: Point, n: int, other: Point) -> Point:
    """[m]one + [n]other, bit by bit of both at once."""
    terms = (_ZERO, one, other, _add(one, other))
    total = _ZERO
    for at in range(max(m.bit_length(), n.bit_length()) - 1, -1, -1):
        total = _double(total)
        which = (m >> at & 1) + 2 * (n >> at & 1)
        if which:
            total = _add(total, terms[which])
    return total


def _find_sha512() -> Any:
    for name in ("_sha2", "_sha512", "hashlib"):  # in Python 3.12 and later, in 3.11, and in any version
        try:
            return import_module(name).sha512
        except ImportError:
            continue
    raise ImportError("this Python has no SHA-512")


_sha512 = _find_sha512()
_base = _decode((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))
assert _base is not None
_BASE: Point = _base
