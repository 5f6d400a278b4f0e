# SPDX-License-Identifier: Apache-2.0
"""Who gets a certificate: the rules, without files and without X.509."""

from __future__ import annotations

import pytest

from hardcase_cloud.rollout.enrolment.book import MOST_A_DAY, Book, Entry, Refused
from hardcase_edge.fleet.identity.messages import BAD_CLAIM, BAD_NAME, REVOKED, TOO_OFTEN

DAY = 86_400


def claim(name: str = "claim-1", **fields) -> Entry:
    return Entry("claim", name, 0, **{"expires": 7 * DAY, "serial": name, "uses": 1, **fields})


def device(name: str, key: str, **fields) -> Entry:
    return Entry("device", name, **{"at": 0, "expires": 365 * DAY, "serial": f"{name} {key}", "key": key, **fields})


def status(answer: object) -> object:
    return answer.status if isinstance(answer, Refused) else answer


def test_a_claim_is_good_for_as_many_devices_as_it_says_and_no_more():
    book = Book([claim(uses=2)])
    for name in ("pi-1", "pi-2"):
        assert book.grant("claim-1", name, name, 1) is None
        book.add(device(name, name, claim="claim-1"))
    assert status(book.grant("claim-1", "pi-3", "pi-3", 1)) == BAD_CLAIM
    assert book.n_uses("claim-1") == 2


def test_the_same_key_gets_the_same_certificate_again_and_another_key_does_not():
    book = Book([claim(uses=2)])
    first = device("pi-1", "k", claim="claim-1")
    book.add(first)
    assert book.grant("claim-1", "pi-1", "k", 1) is first
    assert status(book.grant("claim-1", "pi-1", "another", 1)) == BAD_NAME


@pytest.mark.parametrize(
    ("sender", "name", "now", "expected"),
    [
        pytest.param("claim-2", "pi-1", 1, BAD_CLAIM, id="unknown claim"),
        pytest.param("claim-1", "pi-1", 7 * DAY, BAD_CLAIM, id="claim that is over"),
        pytest.param("claim-only", "pi-1", 1, BAD_NAME, id="claim for another device"),
        pytest.param("claim-1", "claim-9", 1, BAD_NAME, id="name of a claim"),
        pytest.param("claim-1", "a/b", 1, BAD_NAME, id="name that is none"),
        pytest.param("claim-1", "pi-old", 1, BAD_NAME, id="name that is taken"),
        pytest.param("claim-gone", "pi-1", 1, BAD_CLAIM, id="revoked claim"),
        pytest.param("pi-old", "pi-1", 1, BAD_NAME, id="device for another"),
        pytest.param("pi-gone", "pi-gone", 1, REVOKED, id="revoked device"),
        pytest.param("pi-old", "pi-old", 366 * DAY, REVOKED, id="device whose certificate is over"),
        pytest.param("pi-new", "pi-new", 1, REVOKED, id="device that never had one"),
    ],
)
def test_what_is_not_allowed_is_refused_under_its_reason(sender, name, now, expected):
    entries = [claim(), claim("claim-only", device="pi-9"), claim("claim-gone"), device("pi-old", "k")]
    entries += [device("pi-gone", "k"), Entry("revoked", "pi-gone", 0), Entry("revoked", "claim-gone", 0)]
    assert status(Book(entries).grant(sender, name, "new key", now)) == expected


def test_a_renewal_is_granted_so_many_times_a_day():
    book = Book([device("pi-1", "0")])
    for k in range(1, MOST_A_DAY):
        assert book.grant("pi-1", "pi-1", str(k), 1) is None
        book.add(device("pi-1", str(k)))
    assert status(book.grant("pi-1", "pi-1", "more", 1)) == TOO_OFTEN
    assert book.grant("pi-1", "pi-1", "more", DAY) is None
    assert book.grant("pi-1", "pi-1", "1", 1) is book.live("pi-1", 1)[1]


def test_a_revocation_ends_all_certificates_of_a_name_and_not_those_that_come_later():
    book = Book([device("pi-1", "a"), device("pi-1", "b"), Entry("revoked", "pi-1", 5), device("pi-1", "c")])
    assert [entry.key for entry in book.live("pi-1", 6)] == ["c"]
    assert [(entry.key, at) for entry, at in book.revoked(6)] == [("a", 5), ("b", 5)]
    assert book.revoked(367 * DAY) == []


def test_a_claim_of_one_use_stays_used_when_its_device_is_revoked():
    book = Book([claim(), device("pi-1", "a", claim="claim-1"), Entry("revoked", "pi-1", 5)])
    assert status(book.grant("claim-1", "pi-1", "a", 6)) == BAD_CLAIM
