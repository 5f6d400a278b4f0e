# SPDX-License-Identifier: Apache-2.0
"""Requests for a certificate and their replies, as bytes, and the topics they go to.

    request: version u8 | kind u8 = 3 | reserved u16 | certificate request (PKCS#10, DER)
    reply:   version u8 | kind u8 = 4 | status u8 | reserved u8 | SHA-256 of the certificate request | certificate (DER)

docs/SPEC-wire-v1.md section 6 defines them. The sender is whom the *topic* names: a device that renews its certificate,
or a claim, whose name begins with ``claim-``.
"""

from __future__ import annotations

from ...base.record import record
from ...errors import WireError
from ...link.wire import ROOT, WIRE_VERSION, device_of_topic

MAX_REQUEST_BYTES = 1_024  # of a certificate request; one for P-256 has about 250
MAX_CERTIFICATE_BYTES = 2_048
HEAD_BYTES = 4
DIGEST_BYTES = 32
CLAIM = "claim-"
ISSUED, BAD_CLAIM, BAD_NAME, REVOKED, TOO_OFTEN = range(5)
REFUSALS = {
    BAD_CLAIM: "the claim is unknown, used up, over or revoked; make a new one with hardcase ca claim",
    BAD_NAME: "the name is not a device's, another's, or has a certificate already; revoke that, or choose another id",
    REVOKED: "the device has no certificate that could be renewed; give it a new claim",
    TOO_OFTEN: "the device has asked too often today; it asks again by itself",
}


@record(frozen=True, slots=True)
class Enrolled:
    """The reply to a request for a certificate."""

    status: int  # ISSUED, or a key of ``REFUSALS``
    digest: bytes  # SHA-256 of the certificate request
    certificate: bytes = b""  # DER; empty unless issued


def pack_enrol(request: bytes) -> bytes:
    """The message with a certificate request.

    >>> pack_enrol(b"0...").hex()
    '01030000302e2e2e'
    """
    return bytes((WIRE_VERSION, 3, 0, 0)) + request


def unpack_enrol(payload: bytes) -> bytes:
    """The certificate request in a message, at most 1,024 bytes, which nobody has looked at yet.

    Raises
    ------
    WireError
        Drop the message; ``reason`` is ``oversized`` or ``malformed``.
    """
    if len(payload) > HEAD_BYTES + MAX_REQUEST_BYTES:
        raise WireError("oversized", f"a certificate request has {len(payload)} bytes")
    if payload[:HEAD_BYTES] != bytes((WIRE_VERSION, 3, 0, 0)) or len(payload) == HEAD_BYTES:
        raise WireError("malformed", "a message is not a certificate request of this version")
    return payload[HEAD_BYTES:]


def pack_enrolled(reply: Enrolled) -> bytes:
    """The bytes of a reply.

    >>> reply = Enrolled(BAD_CLAIM, bytes(32))
    >>> unpack_enrolled(pack_enrolled(reply)) == reply
    True
    """
    return bytes((WIRE_VERSION, 4, reply.status, 0)) + reply.digest + reply.certificate


def unpack_enrolled(payload: bytes) -> Enrolled:
    """The reply in these bytes; its certificate is not looked at.

    Raises
    ------
    WireError
        Drop the message; ``reason`` is ``oversized`` or ``malformed``.
    """
    head = HEAD_BYTES + DIGEST_BYTES
    if len(payload) > head + MAX_CERTIFICATE_BYTES:
        raise WireError("oversized", f"a reply with a certificate has {len(payload)} bytes")
    if len(payload) < head or payload[:2] != bytes((WIRE_VERSION, 4)) or payload[3]:
        raise WireError("malformed", "a message is not a reply with a certificate of this version")
    status, certificate = payload[2], payload[head:]
    if status not in (ISSUED, *REFUSALS) or (status == ISSUED) != bool(certificate):
        raise WireError("malformed", f"a reply has status {status} and {len(certificate)} bytes of a certificate")
    return Enrolled(status, payload[HEAD_BYTES:head], certificate)


def is_claim(name: str) -> bool:
    """Whether this is the name of a claim, and not of a device."""
    return name.startswith(CLAIM)


def enrol_topic(sender: str) -> str:
    """The topic on which a device, or a claim, asks for a certificate; ``+`` stands for all."""
    return f"{ROOT}/{sender}/enrol"


def enrolled_topic(sender: str) -> str:
    """The topic on which the reply comes."""
    return f"{ROOT}/{sender}/enrolled"


def sender_of_topic(topic: str) -> str:
    """The device or claim that such a topic names.

    Raises
    ------
    WireError
        The topic is not of this kind; ``reason`` is ``malformed``.

    Examples
    --------
    >>> sender_of_topic(enrol_topic("pump-7"))
    'pump-7'
    """
    name = topic.removesuffix("/enrol")
    if name == topic:
        raise WireError("malformed", f"topic {topic[:120]!r} is not {enrol_topic('<sender>')}")
    if "/" in (sender := device_of_topic(f"{name}/request")):
        raise WireError("malformed", f"topic {topic[:120]!r} is of a tenant's device, which has no certificate")
    return sender
