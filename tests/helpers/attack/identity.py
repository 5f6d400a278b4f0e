# SPDX-License-Identifier: Apache-2.0
"""Requests and replies of enrolment that are cut, flipped, repeated, for other names and from other senders."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from hardcase_cloud.enrolment.certificates import key_digest
from hardcase_cloud.enrolment.desk import Desk
from hardcase_cloud.enrolment.folder import AuthorityFolder
from hardcase_edge.errors import InputError
from hardcase_edge.identity.der import read_certificate
from hardcase_edge.identity.exchange import Exchange
from hardcase_edge.identity.messages import ISSUED, enrol_topic, pack_enrol, unpack_enrolled

from ..cloud.enrolment import DAY, NOW, key, request
from .outcome import Outcome

__all__ = ["attack"]

NAMES = ("pi-1", "pi-2", "claim-x", "+")


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Half of the time for the desk, and half for devices."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        return [_desk(Path(folder), seconds / 2, chance), _device(seconds / 2, chance)]


def _mutated(data: bytes, chance: random.Random) -> bytes:
    kind, at = chance.randrange(5), chance.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + chance.randbytes(chance.randrange(1, 400)) + data[at:]
    if kind == 2:
        return data[:at] + bytes((data[at] ^ 1 << chance.randrange(8),)) + data[at + 1 :]
    return data if kind == 3 else data[:at] + chance.randbytes(1) + data[at + 1 :]


def _desk(folder: Path, seconds: float, chance: random.Random) -> Outcome:
    """No reply holds a certificate for another key or name than asked, and each claim serves as many as it says."""
    authority = AuthorityFolder.init(folder / "authority", "test", NOW)
    claims = [authority.claim(folder / f"claim {k}", now=NOW, uses=k + 1).name for k in range(3)]
    authority.device("pi-1", folder / "pi-1", now=NOW)
    desk, n, crashes, wrong, until = Desk(authority), 0, 0, 0, time.monotonic() + seconds
    while time.monotonic() < until:
        n += 1
        number, name = chance.randrange(4), chance.choice([*NAMES, f"pi-{n}"])
        sender, der = chance.choice([*claims, *NAMES, "claim-none"]), request(name, key(number))
        payload = pack_enrol(der) if chance.random() < 0.5 else _mutated(pack_enrol(der), chance)
        try:
            reply = desk.receive(enrol_topic(sender), payload, NOW + chance.randrange(DAY))
        except Exception:
            crashes += 1
            continue
        if reply is None or (answer := unpack_enrolled(reply[1])).status != ISSUED:
            continue
        facts = read_certificate(answer.certificate)
        is_own = sender in claims or facts.name == sender
        wrong += not is_own or facts.name != name or not _is_for(facts.key, number) or name in NAMES[2:]
    book = authority.read()
    wrong += sum(book.n_uses(name) > k + 1 for k, name in enumerate(claims))
    return Outcome("requests for certificates", n, crashes, wrong)


def _is_for(der: bytes, number: int) -> bool:
    import hashlib

    return hashlib.sha256(der).hexdigest() == key_digest(key(number).public_key())


def _device(seconds: float, chance: random.Random) -> Outcome:
    """No device takes a certificate for another key or name, or a reply to another request."""
    with tempfile.TemporaryDirectory() as folder:
        authority = AuthorityFolder.init(Path(folder) / "authority", "test", NOW)
        claim = authority.claim(Path(folder) / "claim", now=NOW, uses=99).name
        desk, replies = Desk(authority), []
        for k in range(4):
            reply = desk.receive(enrol_topic(claim), pack_enrol(request(f"pi-{k}", key(k))), NOW)
            assert reply is not None
            replies.append(reply[1])
        own = request("pi-0", key(0))
        n, crashes, wrong, until = 0, 0, 0, time.monotonic() + seconds
        while time.monotonic() < until:
            n += 1
            exchange = Exchange(own)
            payload = chance.choice(replies)
            if chance.random() < 0.5:  # somebody at the broker who knows the digest
                payload = payload[:4] + exchange.digest + payload[36:]
            try:
                exchange.receive(_mutated(payload, chance))
                if exchange.certificate:
                    facts = read_certificate(exchange.certificate)
                    wrong += facts.name != "pi-0" or not _is_for(facts.key, 0)
            except InputError:
                crashes += 1
        return Outcome("replies with certificates", n, crashes, wrong)
