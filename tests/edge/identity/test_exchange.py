# SPDX-License-Identifier: Apache-2.0
"""The device's exchange: what is sent when, and that only the answer to its request ends it."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from hardcase_cloud.rollout.enrolment.certificates import issue, make_authority
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import InputError, WireError
from hardcase_edge.fleet.identity import messages
from hardcase_edge.fleet.identity.der import Facts
from hardcase_edge.fleet.identity.exchange import CLAIM, RENEW, RESEND_S, TRY, WAIT, Exchange, plan
from tests.helpers.cloud.enrolment import NOW, key, request

REQUEST = request("pi-1")
BY = make_authority("test", now=NOW, days=9)


def certificate(name: str = "pi-1", of: int = 0) -> bytes:
    public = key(of).public_key()
    return issue(BY, public, name, purpose="client", now=NOW, days=1).public_bytes(Encoding.DER)


def reply(der: bytes, status: int = messages.ISSUED, to: bytes = REQUEST) -> bytes:
    return messages.pack_enrolled(messages.Enrolled(status, sha256(to), der))


def test_a_request_is_sent_again_until_its_certificate_comes():
    exchange = Exchange(REQUEST)
    assert exchange.due(0.0) == messages.pack_enrol(REQUEST)
    assert exchange.due(RESEND_S - 0.1) is None
    assert exchange.due(RESEND_S) == messages.pack_enrol(REQUEST)
    exchange.unsent()
    assert exchange.due(RESEND_S) == messages.pack_enrol(REQUEST)
    exchange.receive(reply(certificate()))
    assert exchange.certificate == certificate_of(exchange)
    assert exchange.due(9 * RESEND_S) is None


def certificate_of(exchange: Exchange) -> bytes:
    assert exchange.is_over
    assert not exchange.refusal
    return exchange.certificate


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        pytest.param(reply(certificate())[:-1], "malformed", id="cut"),
        pytest.param(reply(b"0" * 9), "malformed", id="not a certificate"),
        pytest.param(reply(certificate("pi-2")), "other", id="another name"),
        pytest.param(reply(certificate(of=1)), "other", id="another key"),
        pytest.param(reply(certificate(), to=b"another"), "unknown", id="another request"),
        pytest.param(reply(b"", messages.BAD_CLAIM, to=b"another"), "unknown", id="refusal of another request"),
        pytest.param(reply(b"", messages.ISSUED), "malformed", id="no certificate"),
        pytest.param(reply(b"x", messages.BAD_CLAIM), "malformed", id="refusal with a certificate"),
        pytest.param(reply(b"", 99), "malformed", id="unknown status"),
        pytest.param(reply(bytes(messages.MAX_CERTIFICATE_BYTES + 1)), "oversized", id="oversized"),
        pytest.param(b"", "malformed", id="empty"),
        pytest.param(b"\2" + reply(certificate())[1:], "malformed", id="another version"),
        pytest.param(messages.pack_enrol(REQUEST), "malformed", id="a request"),
    ],
)
def test_whatever_is_not_the_answer_is_counted_and_ends_nothing(payload, reason):
    exchange = Exchange(REQUEST)
    exchange.receive(payload)
    assert not exchange.is_over
    assert exchange.counters == {reason: 1}
    exchange.receive(reply(certificate()))
    assert exchange.is_over


def test_a_refusal_ends_it_in_words_and_what_comes_later_is_late():
    exchange = Exchange(REQUEST)
    exchange.receive(reply(b"", messages.BAD_CLAIM))
    exchange.receive(reply(certificate()))
    assert (exchange.refusal, exchange.certificate) == (messages.REFUSALS[messages.BAD_CLAIM], b"")
    assert exchange.counters == {"late": 1}


def test_messages_are_bounded_and_come_back_as_they_were():
    assert messages.unpack_enrol(messages.pack_enrol(REQUEST)) == REQUEST
    refusal = messages.Enrolled(messages.BAD_CLAIM, bytes(32))
    assert messages.unpack_enrolled(messages.pack_enrolled(refusal)) == refusal
    for payload, reason in ((bytes(4 + messages.MAX_REQUEST_BYTES + 1), "oversized"), (b"\1\3\0\1x", "malformed")):
        with pytest.raises(WireError) as caught:
            messages.unpack_enrol(payload)
        assert caught.value.reason == reason
    with pytest.raises(InputError):
        Exchange(b"not a request")


def test_a_claim_is_used_where_there_is_no_certificate_or_an_older_one():
    own, claim, new = Facts("pi-1", 10, 310, b""), Facts("claim-1", 10, 1_000, b""), Facts("pi-1", 200, 500, b"")
    assert [plan(own, None, claim, now) for now in (0, 250, 1_000)] == [WAIT, RENEW, RENEW]
    assert plan(own, None, Facts("claim-2", 11, 1_000, b""), 20) == CLAIM
    assert plan(own, new, claim, 250) == TRY
    assert plan(None, None, claim, 5_000) == CLAIM  # a clock that is wrong must not keep a device out
