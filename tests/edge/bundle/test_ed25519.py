# SPDX-License-Identifier: Apache-2.0
"""Ed25519 on Python's integers beside RFC 8032's own vectors and OpenSSL: nothing is accepted that OpenSSL refuses."""

from __future__ import annotations

import random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hardcase_edge.bundle import ed25519
from hardcase_edge.bundle.ed25519 import is_point, is_signed
from tests.helpers.attack.signatures import SMALL_Y, L, P, case, encodings, openssl_accepts

# secret, public, message and signature of RFC 8032, section 7.1: tests 1, 2, 3 and SHA(abc)
RFC_8032 = [
    ("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"),
    ("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"),
    ("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"),
    ("833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
     "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
     "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
     "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704"),
]  # fmt: skip


@pytest.mark.parametrize(("secret", "public", "message", "signature"), RFC_8032)
def test_the_vectors_of_the_rfc_are_accepted(secret: str, public: str, message: str, signature: str) -> None:
    secret_, public_, message_, signature_ = map(bytes.fromhex, (secret, public, message, signature))
    key = Ed25519PrivateKey.from_private_bytes(secret_)
    assert key.public_key().public_bytes_raw() == public_  # the vector is copied right
    assert key.sign(message_) == signature_
    assert is_signed(message_, signature_, public_)
    assert not is_signed(message_ + b"\0", signature_, public_)


def test_what_openssl_signs_is_accepted_and_every_other_bit_is_refused() -> None:
    rng = random.Random(1)
    for _ in range(20):
        key = Ed25519PrivateKey.from_private_bytes(rng.randbytes(32))
        public, message = key.public_key().public_bytes_raw(), rng.randbytes(rng.randrange(200))
        signature = key.sign(message)
        assert is_signed(message, signature, public)
        at = rng.randrange(512)
        other = (int.from_bytes(signature, "little") ^ 1 << at).to_bytes(64, "little")
        assert not is_signed(message, other, public)
        at = rng.randrange(256)
        other = (int.from_bytes(public, "little") ^ 1 << at).to_bytes(32, "little")
        assert not is_signed(message, signature, other)


def test_a_point_has_one_encoding() -> None:
    assert is_point(bytes(32))
    assert not is_point(P.to_bytes(32, "little"))  # y = 0 once more


def test_s_plus_the_order_is_refused() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    public, signature = key.public_key().public_bytes_raw(), key.sign(b"x")
    s = int.from_bytes(signature[32:], "little")
    for k in range(1, 16):
        other = signature[:32] + (s + k * L).to_bytes(32, "little")
        assert not is_signed(b"x", other, public)
        assert not openssl_accepts(b"x", other, public)


def test_of_small_orders_and_non_canonical_points_nothing_is_accepted_that_openssl_refuses() -> None:
    points = encodings(SMALL_Y)
    messages = [bytes([k]) for k in range(8)]
    verdicts = []
    for public in points:
        for r in points:
            signature, message = r + bytes(32), messages[len(verdicts) % 8]
            verdicts.append((is_signed(message, signature, public), openssl_accepts(message, signature, public)))
    assert not [v for v in verdicts if v == (True, False)]
    assert verdicts.count((True, True)) > 5  # small orders verify in both: the test reaches the last comparison


def test_on_crafted_signatures_the_device_and_openssl_agree() -> None:
    rng, verdicts = random.Random(7), []
    for _ in range(60):
        message, signature, public = case(rng)
        verdicts.append((is_signed(message, signature, public), openssl_accepts(message, signature, public)))
        assert verdicts[-1][0] == verdicts[-1][1] or (verdicts[-1] == (False, True) and not is_point(public))
    assert verdicts.count((True, True)) > 5
    assert verdicts.count((False, False)) > 20


def test_what_is_signed_in_two_parts_is_signed_as_one() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    public, signature = key.public_key().public_bytes_raw(), key.sign(b"context message")
    assert is_signed(b"message", signature, public, context=b"context ")
    assert not is_signed(b"message", signature, public)
    assert not is_signed(b"message", signature, public, context=b"context")


def test_a_non_canonical_key_is_refused_though_its_equation_holds() -> None:
    zero = (1).to_bytes(32, "little")  # the neutral point as key and as R, with S = 0
    assert is_signed(b"", zero + bytes(32), zero)
    for other in ((1 + P).to_bytes(32, "little"), (1 | 1 << 255).to_bytes(32, "little")):
        assert not is_signed(b"", zero + bytes(32), other)
        assert not is_signed(b"", other + bytes(32), zero)


def test_lengths_other_than_32_and_64_are_refused() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    public, signature = key.public_key().public_bytes_raw(), key.sign(b"x")
    assert is_signed(b"x", signature, public)
    for wrong in (b"", signature[:-1], signature + b"\0"):
        assert not is_signed(b"x", wrong, public)
    for wrong in (b"", public[:-1], public + b"\0"):
        assert not is_signed(b"x", signature, wrong)


def test_a_checker_without_the_bound_on_s_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    public, signature = key.public_key().public_bytes_raw(), key.sign(b"x")
    other = signature[:32] + (int.from_bytes(signature[32:], "little") + L).to_bytes(32, "little")
    assert not is_signed(b"x", other, public)
    monkeypatch.setattr(ed25519, "_L", 16 * L)
    assert is_signed(b"x", other, public)
