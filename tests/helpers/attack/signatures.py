# SPDX-License-Identifier: Apache-2.0
"""Crafted Ed25519 signatures: the device must accept nothing that OpenSSL refuses.

A case is a signature by OpenSSL, or one in which something is wrong that has deceived checkers: a changed bit, S plus
a multiple of the order, a point of small order added to the key or to R (with S made to fit), and points of small order
and other spellings of points for the key and R. The device may refuse more: keys that are not written as RFC 8032 asks.
"""

from __future__ import annotations

import random
from hashlib import sha512

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hardcase_edge.bundle import ed25519
from hardcase_edge.bundle.ed25519 import is_point, is_signed
from tests.helpers.attack.outcome import Attack, Outcome, forever

P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7  # y of a point of order 8
SMALL_Y = (0, 1, P - 1, ORDER_8, P - ORDER_8)  # of all points whose order divides 8

BOTH = "of these, accepted by both"
ALONE = "of these, refused by the device alone, for a key in another spelling"
Case = tuple[bytes, bytes, bytes]  # message, signature, public key


def openssl_accepts(message: bytes, signature: bytes, public: bytes) -> bool:
    """OpenSSL's verdict."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def encodings(ys: tuple[int, ...]) -> list[bytes]:
    """Each y with both signs, and as y + p where that fits 255 bits."""
    spelled = [n for y in ys for n in (y, y + P) if n < 2**255]
    return [(n | sign << 255).to_bytes(32, "little") for n in spelled for sign in (0, 1)]


SMALL = encodings(SMALL_Y)
TORSION = [point for data in SMALL if (point := ed25519._decode(data)) is not None]


def case(rng: random.Random) -> Case:
    """A message, a signature and a key of one of the kinds."""
    kind = rng.choice((_good, _flipped, _beyond_order, _small, _shifted, _shifted))
    return kind(rng)


def _good(rng: random.Random) -> Case:
    key = Ed25519PrivateKey.from_private_bytes(rng.randbytes(32))
    message = rng.randbytes(rng.choice((0, 1, 47, 48, 63, 64, 111, 112, 128, 1023)))
    return message, key.sign(message), key.public_key().public_bytes_raw()


def _flipped(rng: random.Random) -> Case:
    parts = [bytearray(part) for part in _good(rng)]
    part = rng.choice([part for part in parts if part])
    part[rng.randrange(len(part))] ^= 1 << rng.randrange(8)
    message, signature, public = map(bytes, parts)
    return message, signature, public


def _beyond_order(rng: random.Random) -> Case:
    message, signature, public = _good(rng)
    s = int.from_bytes(signature[32:], "little") + rng.randrange(1, 16) * L
    return message, signature[:32] + s.to_bytes(32, "little"), public


def _small(rng: random.Random) -> Case:
    s = rng.choice((0, 0, 0, 1, L - 1, L, 2**252, rng.randrange(L)))
    return rng.randbytes(1), rng.choice(SMALL) + s.to_bytes(32, "little"), rng.choice(SMALL)


def _shifted(rng: random.Random) -> Case:
    """A signer whose key or R has a part of small order; for one message in 1, 2, 4 or 8 it cancels out."""
    secret, r, message = rng.randrange(L), rng.randrange(L), rng.randbytes(rng.randrange(3))
    public, point = _times(secret), _times(r)
    if rng.random() < 0.7:
        public = ed25519._add(public, rng.choice(TORSION))
    if rng.random() < 0.7:
        point = ed25519._add(point, rng.choice(TORSION))
    key, start = ed25519._encode(public), ed25519._encode(point)
    k = int.from_bytes(sha512(start + key + message).digest(), "little") % L
    return message, start + ((r + k * secret) % L).to_bytes(32, "little"), key


def _times(n: int) -> ed25519.Point:
    return ed25519._sum_of_multiples(n, ed25519._BASE, 0, ed25519._BASE)


def as_openssl(case: Case, is_accepted: bool) -> bool | Outcome:
    """Accepted without OpenSSL, or refused with a proper key, is wrong."""
    by_openssl = openssl_accepts(*case)
    if by_openssl and not is_accepted and not is_point(case[2]):
        return Outcome(ALONE, 1, 0, 0)
    return Outcome(BOTH, 1, 0, 0) if is_accepted and by_openssl else is_accepted == by_openssl


attack = Attack(
    "Ed25519 signatures beside OpenSSL", forever(case), lambda case: is_signed(*case), as_openssl, rows=(BOTH, ALONE)
)
