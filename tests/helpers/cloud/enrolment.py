# SPDX-License-Identifier: Apache-2.0
"""Certificate requests of all kinds, made with ``cryptography``, and authorities to ask."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from hardcase_cloud.rollout.enrolment.certificates import make_key

NOW, DAY = 1_800_000_000, 86_400


def key(number: int = 0, kind: str = "P-256") -> Any:
    """One private key for each number."""
    return _key(number, kind)


@cache
def _key(number: int, kind: str) -> Any:
    if kind == "P-256":
        return make_key()
    if kind == "RSA":
        return rsa.generate_private_key(65_537, 2_048)
    return ec.generate_private_key(ec.SECP384R1()) if kind == "P-384" else ed25519.Ed25519PrivateKey.generate()


def request(names: str | Sequence[str], of: Any = None, *, extensions: bool = False) -> bytes:
    """A certificate request (DER) for these common names, signed by its key."""
    of = key() if of is None else of
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, n) for n in ([names] if isinstance(names, str) else names)]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if extensions:  # an authority must not copy them
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("broker.example")]), critical=False)
    is_edwards = isinstance(of, ed25519.Ed25519PrivateKey)
    return builder.sign(of, None if is_edwards else hashes.SHA256()).public_bytes(Encoding.DER)
