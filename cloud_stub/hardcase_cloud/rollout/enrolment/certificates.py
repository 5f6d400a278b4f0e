# SPDX-License-Identifier: Apache-2.0
"""X.509 with fixed choices: P-256 and SHA-256, one common name, one purpose, and no wish of a requester but its key.

Times are Unix seconds. Certificates begin ``SKEW_S`` before they are made, so that a clock which is a little behind
does not refuse them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hardcase_edge.errors import InputError, WireError

SKEW_S = 3_600
MAX_NAME = 64  # characters of a common name, by X.520
Purpose = Literal["client", "server"]
_PURPOSES = {"client": ExtendedKeyUsageOID.CLIENT_AUTH, "server": ExtendedKeyUsageOID.SERVER_AUTH}


@dataclass(frozen=True, slots=True)
class Authority:
    """A key that signs, and its own certificate."""

    key: EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def expires(self) -> int:
        """When the certificate ends."""
        return int(self.certificate.not_valid_after_utc.timestamp())


@dataclass(frozen=True, slots=True)
class Asked:
    """What a certificate request asks for: this name for this key, whose holder has signed the request."""

    name: str
    key: EllipticCurvePublicKey


def make_key() -> EllipticCurvePrivateKey:
    """A new key on the curve P-256."""
    return generate_private_key(SECP256R1())


def key_pem(key: EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM, not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def key_digest(key: EllipticCurvePublicKey) -> str:
    """The SHA-256 of a public key's DER, in hex."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def make_authority(name: str, *, now: int, days: int) -> Authority:
    """A new authority, whose certificate it signs itself; it signs certificates of ends and lists, nothing below.

    Raises
    ------
    InputError
        The name is empty, or longer than 64 characters.
    """
    key, subject = make_key(), _name(name)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # certificates and lists
    builder = (
        _begun(subject, subject, key.public_key(), now, now + days * 86_400)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Authority(key, builder.sign(key, hashes.SHA256()))


def read_authority(private: bytes, certificate: bytes) -> Authority:
    """An authority from the PEM of its key and of its certificate.

    Raises
    ------
    InputError
        One of them is not such a PEM, or they do not belong together.
    """
    try:
        key = load_pem_private_key(private, password=None)
        own = x509.load_pem_x509_certificate(certificate)
    except (ValueError, TypeError) as error:
        raise InputError("the authority's key or certificate is not readable PEM; restore its folder") from error
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != own.public_key():
        raise InputError("the authority's key is not that of its certificate; restore its folder")
    return Authority(key, own)


def issue(
    by: Authority,
    key: EllipticCurvePublicKey,
    name: str,
    *,
    purpose: Purpose,
    now: int,
    days: float,
    hosts: Sequence[str] = (),
) -> x509.Certificate:
    """A certificate for a key, for one purpose only: a device's does not serve as a broker's, nor the reverse.

    Parameters
    ----------
    hosts : names and addresses of a server; empty for a client

    Raises
    ------
    InputError
        The name is empty, or longer than 64 characters, or the authority's own certificate is over.
    """
    if now >= by.expires:
        raise InputError("the authority's own certificate is over; make a new one with hardcase ca init")
    until = min(now + int(days * 86_400), by.expires)
    builder = (
        _begun(_name(name), by.certificate.subject, key, now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(True, False, False, False, False, False, False, False, False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_PURPOSES[purpose]]), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return builder.sign(by.key, hashes.SHA256())


def make_crl(by: Authority, revoked: Sequence[tuple[int, int]], *, number: int, at: int) -> bytes:
    """The list of revoked certificates, in PEM.

    It ends with the authority itself: a broker whose list has ended refuses every device.

    Parameters
    ----------
    revoked : serial number of each certificate, and when it was revoked
    number : greater than that of every earlier list
    at : when the list begins, which must not be in the future of a broker's clock
    """
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(by.certificate.subject)
        .last_update(_time(at))
        .next_update(_time(by.expires))
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key()), critical=False)
    )
    for serial, when in revoked:
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(_time(when)).build()
        builder = builder.add_revoked_certificate(one)
    return builder.sign(by.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def read_request(der: bytes) -> Asked:
    """What a certificate request (PKCS#10, DER) asks for; everything in it but name and key is disregarded.

    Raises
    ------
    WireError
        It is not a request, its signature is not by its own key, the key is not on P-256, or it does not have exactly
        one name; ``reason`` is ``malformed``.
    """
    try:
        request = x509.load_der_x509_csr(der)
        key, names = request.public_key(), list(request.subject)
        is_own = request.is_signature_valid
    except Exception as error:  # cryptography raises ValueError, TypeError, UnsupportedAlgorithm and others
        raise WireError("malformed", "a certificate request cannot be read") from error
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1) or not is_own:
        raise WireError("malformed", "a certificate request is not signed by a key on P-256 of its own")
    if len(names) != 1 or names[0].oid != NameOID.COMMON_NAME or not isinstance(names[0].value, str):
        raise WireError("malformed", "a certificate request does not have exactly one common name")
    return Asked(names[0].value, key)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePublicKey, now: int, until: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_time(now - SKEW_S))
        .not_valid_after(_time(until))
    )


def _name(text: str) -> x509.Name:
    if not 1 <= len(text) <= MAX_NAME or not text.isprintable():
        raise InputError(f"name {text[:80]!r} is not 1 to {MAX_NAME} printable characters; choose another")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise InputError(f"host {host[:80]!r} is not ASCII; give a name in its ASCII form, or an address") from error


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
