# SPDX-License-Identifier: Apache-2.0
"""Requests and replies of enrolment that are cut, flipped, repeated, for other names and from other senders."""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from hardcase_cloud.rollout.enrolment.certificates import key_digest
from hardcase_cloud.rollout.enrolment.desk import Desk
from hardcase_cloud.rollout.enrolment.folder import AuthorityFolder
from hardcase_edge.fleet.identity.der import read_certificate
from hardcase_edge.fleet.identity.exchange import Exchange
from hardcase_edge.fleet.identity.messages import ISSUED, enrol_topic, pack_enrol, unpack_enrolled

from ..cloud.enrolment import DAY, NOW, key, request
from .outcome import Attack, each, mutated

NAMES = ("pi-1", "pi-2", "claim-x", "+")


def desk_cases(chance: random.Random) -> Generator[Any, None, None]:
    """Messages to a desk of which each claim must serve as many as it says."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = AuthorityFolder.init(folder / "authority", "test", NOW)
        claims = [authority.claim(folder / f"claim {k}", now=NOW, uses=k + 1).name for k in range(3)]
        authority.device("pi-1", folder / "pi-1", now=NOW)
        desk, n, given = Desk(authority), 0, set[bytes]()
        try:
            while True:
                n += 1
                number, name = chance.randrange(4), chance.choice([*NAMES, f"pi-{n}"])
                sender, der = chance.choice([*claims, *NAMES, "claim-none"]), request(name, key(number))
                payload = pack_enrol(der) if chance.random() < 0.5 else mutated(chance, pack_enrol(der))
                yield desk, claims, sender, name, number, (authority, given), payload, NOW + chance.randrange(DAY)
        finally:
            book = authority.read()
            assert all(book.n_uses(claim) <= k + 1 for k, claim in enumerate(claims)), "a claim served too often"


def is_due(case: Any, reply: tuple[str, bytes] | None) -> bool:
    """No reply holds a certificate for another key or name than asked, and no claim serves more than it says."""
    _, claims, sender, name, number, (authority, given), *_ = case
    if reply is None or (answer := unpack_enrolled(reply[1])).status != ISSUED:
        return True
    facts = read_certificate(answer.certificate)
    is_own = (sender in claims or facts.name == sender) and facts.name == name and name not in NAMES[2:]
    is_within = True
    if sender in claims and answer.certificate not in given:
        given.add(answer.certificate)
        is_within = authority.read().n_uses(sender) <= claims.index(sender) + 1
    return is_own and is_within and _is_for(facts.key, number)


def _is_for(der: bytes, number: int) -> bool:
    return hashlib.sha256(der).hexdigest() == key_digest(key(number).public_key())


def device_cases(chance: random.Random) -> Generator[tuple[Exchange, bytes], None, None]:
    """Replies to one device, for it and for others."""
    with tempfile.TemporaryDirectory() as folder:
        authority = AuthorityFolder.init(Path(folder) / "authority", "test", NOW)
        claim = authority.claim(Path(folder) / "claim", now=NOW, uses=99).name
        desk, replies = Desk(authority), []
        for k in range(4):
            reply = desk.receive(enrol_topic(claim), pack_enrol(request(f"pi-{k}", key(k))), NOW)
            assert reply is not None
            replies.append(reply[1])
        own = request("pi-0", key(0))
        while True:
            exchange, payload = Exchange(own), chance.choice(replies)
            if chance.random() < 0.5:  # somebody at the broker who knows the digest
                payload = payload[:4] + exchange.digest + payload[36:]
            yield exchange, mutated(chance, payload)


def is_own(case: tuple[Exchange, bytes], _: object) -> bool:
    """No device takes a certificate for another key or name, or a reply to another request."""
    if not case[0].certificate:
        return True
    facts = read_certificate(case[0].certificate)
    return facts.name == "pi-0" and _is_for(facts.key, 0)


attack = each(
    Attack(
        "requests for certificates", desk_cases, lambda case: case[0].receive(enrol_topic(case[2]), *case[6:]), is_due,
        is_timed=False, least=21,
    ),
    Attack("replies with certificates", device_cases, lambda case: case[0].receive(case[1]), is_own, is_timed=False),
)  # fmt: skip
