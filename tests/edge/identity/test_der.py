# SPDX-License-Identifier: Apache-2.0
"""The device's reader of certificates: what ``cryptography`` reads, and nothing but its own error on anything else."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hardcase_cloud.rollout.enrolment.certificates import issue, make_authority
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.identity.der import Facts, _time, from_pem, read_certificate, read_request, to_pem
from tests.helpers.cloud.enrolment import NOW, key, request

BY = make_authority("test", now=NOW, days=40_000)
SPKI = key().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def certificate(name: str = "pi-1", days: float = 365, **fields) -> x509.Certificate:
    return issue(BY, key().public_key(), name, purpose="client", now=NOW, days=days, **fields)


@pytest.mark.parametrize("name", ["pi-1", "a" * 64, "grüße", "x"])
@pytest.mark.parametrize("days", [1, 365, 20_000])  # beyond 2049 a time has another form
def test_the_facts_are_those_that_cryptography_reads(name, days):
    one = certificate(name, days, hosts=["broker.example", "192.0.2.7"])
    ends = int(one.not_valid_after_utc.timestamp())
    begins = int(one.not_valid_before_utc.timestamp())
    assert read_certificate(one.public_bytes(Encoding.DER)) == Facts(name, begins, ends, SPKI)


def test_a_request_has_its_name_and_its_key():
    assert read_request(request("pi-1", extensions=True)) == ("pi-1", SPKI)
    with pytest.raises(InputError, match="not one common name"):
        read_request(request(["pi-1", "pi-2"]))


def test_pem_is_what_cryptography_writes():
    one = certificate()
    pem = one.public_bytes(Encoding.PEM)
    assert to_pem(from_pem(pem)) == pem
    assert from_pem(b"text before it\n" + pem + pem) == one.public_bytes(Encoding.DER)


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN CERTIFICATE-----", b"-----BEGIN CERTIFICATE-----A-----END", b"\xff"])
def test_what_is_not_pem_is_refused(pem):
    with pytest.raises(InputError, match="not readable PEM"):
        from_pem(pem)


def test_a_certificate_or_a_request_cut_anywhere_is_refused():
    for read, der in ((read_certificate, certificate().public_bytes(Encoding.DER)), (read_request, request("pi-1"))):
        for end in range(len(der)):
            with pytest.raises(InputError):
                read(der[:end])
        with pytest.raises(InputError):
            read(der + b"\0")


def test_flipped_and_random_bytes_are_read_or_refused():
    chance = random.Random(1)
    der = certificate().public_bytes(Encoding.DER)
    n_refused = 0
    for k in range(1_000):
        data = bytearray(der if k % 2 else request("pi-1"))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            (read_certificate if k % 2 else read_request)(bytes(data))
        except InputError:
            n_refused += 1
    assert n_refused > 100


@pytest.mark.parametrize(
    "head", [b"\x30\x80", b"\x30\x81\x05", b"\x30\x82\x00\x05", b"\x30\x83\x00\x01\x2c", b"\x3f\x05"]
)
def test_a_length_in_another_form_than_der_is_refused(head):
    with pytest.raises(InputError):
        read_certificate(head + b"\x04" * 300)


def test_every_day_of_four_hundred_years_is_the_calendars():
    for day in range(-7_000, 140_000, 13):
        at = datetime.fromtimestamp(day * 86_400 + 86_399, UTC)
        assert _time((0x18, at.strftime("%Y%m%d%H%M%SZ").encode(), b"")) == int(at.timestamp())
    for text in (b"20261301000000Z", b"20260100000000Z", b"20260101240000Z", b"20260101000000+", b"2026010100000Z"):
        with pytest.raises(ValueError, match="not a time"):
            _time((0x18, text, b""))
