# SPDX-License-Identifier: Apache-2.0
"""The desk with a real authority: what comes from outside is dropped or refused, and a reply is on the disk first."""

from __future__ import annotations

import os
import random
import subprocess

import pytest
from cryptography import x509

from hardcase_cloud.rollout.enrolment.certificates import SKEW_S
from hardcase_cloud.rollout.enrolment.desk import Desk
from hardcase_cloud.rollout.enrolment.folder import AuthorityFolder
from hardcase_cloud.rollout.enrolment.journal import Journal
from hardcase_cloud.rollout.enrolment.worker import MOST_OF_ONE, EnrolmentWorker
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.identity import messages
from hardcase_edge.fleet.identity.der import read_certificate
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Message
from tests.helpers.cloud.enrolment import DAY, NOW, key, request


@pytest.fixture
def authority(tmp_path):
    return AuthorityFolder.init(tmp_path / "authority", "test", NOW)


@pytest.fixture
def claim(authority, tmp_path):
    return authority.claim(tmp_path / "claim", now=NOW).name


def ask(desk: Desk, sender: str, der: bytes, now: int = NOW) -> messages.Enrolled | None:
    reply = desk.receive(messages.enrol_topic(sender), messages.pack_enrol(der), now)
    if reply is None:
        return None
    assert reply[0] == sender
    return messages.unpack_enrolled(reply[1])


def test_a_request_gets_a_certificate_for_its_key_and_its_name_and_for_nothing_that_it_wishes(authority, claim):
    reply = ask(Desk(authority), claim, request("pi-1", extensions=True))
    assert reply is not None
    assert reply.status == messages.ISSUED
    certificate = x509.load_der_x509_certificate(reply.certificate)
    facts = read_certificate(reply.certificate)
    assert (facts.name, facts.begins, facts.ends) == ("pi-1", NOW - SKEW_S, NOW + 365 * DAY)
    assert certificate.public_key() == key().public_key()
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    purposes = list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert purposes == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    with pytest.raises(x509.ExtensionNotFound):
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_a_claim_used_twice_is_refused_also_by_another_worker_after_a_restart(authority, claim):
    assert ask(Desk(authority), claim, request("pi-1")).status == messages.ISSUED
    other = Desk(AuthorityFolder(authority.folder))
    assert ask(other, claim, request("pi-2", key(1))).status == messages.BAD_CLAIM


def test_the_same_request_again_gets_the_same_certificate_and_so_does_the_same_key_signed_anew(authority, claim):
    desk, der = Desk(authority), request("pi-1")
    first = ask(desk, claim, der)
    assert ask(desk, claim, der, NOW + 60) == first
    again = ask(Desk(AuthorityFolder(authority.folder)), claim, request("pi-1"), NOW + 120)
    assert again.certificate == first.certificate
    assert len(authority.read().entries) == 2


def test_a_device_renews_its_own_name_only_and_not_once_it_is_revoked(authority, tmp_path):
    authority.device("pi-1", tmp_path / "pi-1", now=NOW)
    desk = Desk(authority)
    assert ask(desk, "pi-1", request("pi-2")).status == messages.BAD_NAME
    assert ask(desk, "pi-1", request("pi-1")).status == messages.ISSUED
    authority.revoke("pi-1", now=NOW)
    assert ask(desk, "pi-1", request("pi-1")).status == messages.REVOKED


@pytest.mark.parametrize(
    "der",
    [
        pytest.param(b"", id="empty"),
        pytest.param(request("pi-1")[:-1], id="cut"),
        pytest.param(request("pi-1") + b"\0", id="longer"),
        pytest.param(request("pi-1", key(kind="RSA")), id="RSA"),
        pytest.param(request("pi-1", key(kind="P-384")), id="P-384"),
        pytest.param(request("pi-1", key(kind="Ed25519")), id="Ed25519"),
        pytest.param(request(["pi-1", "pi-2"]), id="two names"),
        pytest.param(request([]), id="no name"),
        pytest.param(bytes(messages.MAX_REQUEST_BYTES + 1), id="oversized"),
    ],
)
def test_what_is_not_a_request_is_dropped_and_uses_up_nothing(authority, claim, der):
    desk = Desk(authority)
    assert ask(desk, claim, der) is None
    assert desk.counters["malformed"] + desk.counters["oversized"] == 1
    assert ask(desk, claim, request("pi-1")).status == messages.ISSUED


@pytest.mark.parametrize("topic", ["hardcase/v1//enrol", "hardcase/v1/a/b/enrol", "hardcase/v1/+/enrol", "enrol", "x"])
def test_a_topic_that_names_no_sender_is_dropped(authority, topic):
    assert Desk(authority).receive(topic, messages.pack_enrol(request("pi-1")), NOW) is None


# ---------------------------------------------------------------- the journal


def test_nobody_gets_a_certificate_that_is_not_on_the_disk(authority, claim, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    desk = Desk(authority)
    before = (authority.folder / "issued.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left"):
            ask(desk, claim, request("pi-1"))
    assert (authority.folder / "issued.jsonl").read_bytes() == before
    assert ask(desk, claim, request("pi-2", key(1))).status == messages.ISSUED


def test_a_journal_cut_anywhere_in_its_last_line_is_the_journal_without_it(authority, claim):
    path = authority.folder / "issued.jsonl"
    short = path.read_bytes()
    assert ask(Desk(authority), claim, request("pi-1")).status == messages.ISSUED
    whole = path.read_bytes()
    for end in random.Random(1).sample(range(len(short), len(whole)), 20):
        path.write_bytes(whole[:end])
        assert len(AuthorityFolder(authority.folder).read().entries) == 1
        assert path.read_bytes() == short
    path.write_bytes(whole)
    assert len(AuthorityFolder(authority.folder).read().entries) == 2


def test_a_damaged_line_of_the_journal_is_refused_and_named(authority, claim):
    path = authority.folder / "issued.jsonl"
    path.write_bytes(path.read_bytes() + b'{"kind": "device", "name": 7, "at": 1}\n')
    with pytest.raises(InputError, match="line 2, is damaged"):
        AuthorityFolder(authority.folder).read()


def test_two_who_share_a_journal_see_each_others_entries(authority, claim):
    other = AuthorityFolder(authority.folder)
    assert ask(Desk(other), claim, request("pi-1")).status == messages.ISSUED
    assert authority.revoke("pi-1", now=NOW) == 1
    assert ask(Desk(other), "pi-1", request("pi-1")).status == messages.REVOKED


def test_an_authority_that_is_over_issues_nothing(authority, claim):
    with pytest.raises(InputError, match="authority's own certificate is over"):
        authority.server(["localhost"], now=NOW + 21 * 365 * DAY)


def test_openssl_knows_the_certificates_and_the_list(authority, claim, tmp_path):
    authority.device("pi-1", tmp_path / "pi-1", now=NOW)

    def verify(cert: object, purpose: str) -> bool:
        command = ["openssl", "verify", "-CAfile", authority.folder / "public" / "devices.pem", "-attime", str(NOW)]
        command += ["-crl_check", "-CRLfile", authority.folder / "public" / "crl.pem", "-purpose", purpose, cert]
        return subprocess.run(command, capture_output=True).returncode == 0

    own, server = tmp_path / "pi-1" / "0001" / "cert.pem", authority.server(["localhost"], now=NOW) / "cert.pem"
    assert (verify(own, "sslclient"), verify(own, "sslserver")) == (True, False)
    assert (verify(server, "sslclient"), verify(server, "sslserver")) == (False, True)
    assert not verify(tmp_path / "claim" / "claim" / "cert.pem", "sslclient")
    authority.revoke("pi-1", now=NOW)
    assert not verify(own, "sslclient")


def test_each_list_begins_later_than_the_one_before_it_and_none_in_the_future(authority, tmp_path):
    authority.device("pi-1", tmp_path / "pi-1", now=NOW)
    path, began = authority.folder / "public" / "crl.pem", [0]
    for _ in range(3):
        authority.revoke("pi-1", now=NOW)
        began.append(int(x509.load_pem_x509_crl(path.read_bytes()).last_update_utc.timestamp()))
    assert began == sorted(set(began))
    assert began[-1] < NOW


def test_a_worker_whose_disk_is_full_goes_on_and_keeps_a_bounded_number_of_requests_of_each_sender(
    authority, claim, monkeypatch
):
    said: list[str] = []
    worker = EnrolmentWorker(Desk(authority), parse_address("mqtt://127.0.0.1", environment={}), said.append)
    for k in range(MOST_OF_ONE + 3):
        worker._take(Message(messages.enrol_topic(claim), messages.pack_enrol(request(f"pi-{k}", key(k)))))
    worker._take(Message(messages.enrol_topic("pi-9"), b"garbage"))
    assert worker.lost == 3

    def full(path):
        raise InputError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", lambda journal, entry: full(journal))
        worker._step()
    for _ in range(MOST_OF_ONE):
        worker._step()
    assert worker.counters() == {"failed": 1, "issued": 1, "refused": MOST_OF_ONE - 2, "malformed": 1, "lost": 3}
    assert said[0] == "no room"
    worker._take(Message(messages.enrol_topic(claim), b"garbage"))
    assert worker.lost == 3
    worker.stop()
    worker.run()
