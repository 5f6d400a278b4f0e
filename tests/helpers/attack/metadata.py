# SPDX-License-Identifier: Apache-2.0
"""Mutated files of signed metadata: the device and python-tuf must accept the same ones, and neither may crash.

The device refuses a little more, by rule 1 of docs/SPEC-store-v1.md, section 5; ``beyond_tuf`` is that rule once more,
written apart from the device. Every other difference is a finding.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Generator
from functools import lru_cache
from typing import Any

import pytest

from hardcase_edge.bundle.ed25519 import is_signed
from hardcase_edge.errors import TrustError
from hardcase_edge.fleet.store.trust import Trust, first_trust, updated
from tests.helpers.attack.outcome import Attack, Outcome, spoilt
from tests.helpers.edge.repository import NOW, Files, Repository, signed_again, tuf_accepts

BOTH = "of these, accepted by the device and by python-tuf"
ALONE = "of these, refused by the device alone, by a rule of its own"
Case = tuple[Trust, Files, bytes, str]  # what is trusted, an update, and its mutated file with its role
VALUES: list[Any] = [
    None, True, -1, 0, 1, 3, 2**53 - 1, 2**53, 2**70, 1.5, 1.0, "", "x", "1.9", "\U0001f600", "\ud83d", [], {}, [[]],
    {"": 0}, "2030-1-12T13:46:40Z",
]  # fmt: skip
NAMES = ("twin", "targets.json", "hashes", "")
CALLS = 20_000  # of the check of a signature, which most mutants leave as it was


def updates(rng: random.Random) -> Generator[Case, None, None]:
    """Updates of which one file is mutated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hardcase_edge.fleet.store.metadata.is_signed", lru_cache(CALLS)(is_signed))
        repository = Repository()
        trust = updated(first_trust(repository.roots[0]), *repository.publish(b"one"), now=NOW)
        repository.rotate()
        good = repository.publish(b"two")
        signers = {"root": repository.root_keys} | {role: [key] for role, key in repository.keys.items()}
        while True:
            role = rng.choice([*signers])
            old = good.roots[0] if role == "root" else getattr(good, role)
            envelope = spoilt(rng, json.loads(old), VALUES, NAMES)
            data = json.dumps(envelope).encode()
            if rng.random() < 0.7:  # by a maker who holds the keys and errs
                try:
                    data = signed_again(old, *signers[role], signed=envelope["signed"])
                except (KeyError, TypeError, ValueError, AssertionError):  # nobody can sign that
                    continue
            if rng.random() < 0.1:  # outside of what is signed, or within it
                at = rng.randrange(len(data))
                data = data[:at] + rng.choice((b"", b" ", b'"', b"0", data[at - 9 : at + 1])) + data[at + 1 :]
            yield trust, good._replace(**{"roots": [data]} if role == "root" else {role: data}), data, role


def as_tuf(case: Case, trust: Any) -> bool | Outcome:
    """Accepted and refused as by python-tuf, but for a rule of the device's own."""
    is_accepted, is_taken = bool(trust) and not isinstance(trust, TrustError), accepted_by_tuf(*case[:2])
    if is_taken and not is_accepted and beyond_tuf(*case[2:]):
        return Outcome(ALONE, 1, 0, 0)
    return Outcome(BOTH, 1, 0, 0) if is_accepted and is_taken else is_accepted == is_taken


attack = Attack(
    "TUF metadata beside python-tuf", updates, lambda case: updated(case[0], *case[1], now=NOW), as_tuf, (TrustError,),
    (BOTH, ALONE),
)  # fmt: skip


def accepted_by_tuf(trust: Trust, files: Files) -> bool:
    """python-tuf's verdict; an exception of another kind is a refusal, too."""
    try:
        return tuf_accepts(trust, files)
    except Exception:
        return False


def beyond_tuf(data: bytes, role: str) -> bool:
    """Whether the file breaks rule 1, of which python-tuf does not know."""
    faults: list[str] = []

    def whole(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        faults.extend("twice" for _ in range(len(pairs) - len(dict(pairs))))
        for name, value in pairs:
            if name in ("version", "threshold", "length") and (isinstance(value, bool) or value >= 2**53):
                faults.append(name)
        return dict(pairs)

    signed = json.loads(data, object_pairs_hook=whole, parse_float=faults.append)["signed"]
    if signed["spec_version"] is None:
        faults.append("spec_version")
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T([0-9]{2}:){2}[0-9]{2}Z", signed["expires"]):
        faults.append("expires")
    if role == "timestamp" and set(signed["meta"]) != {"snapshot.json"}:
        faults.append("meta")
    if role == "root":
        publics = [key["keyval"]["public"] for key in signed["keys"].values()]
        faults.extend(key for key in publics if not re.fullmatch("[0-9a-f]{64}", str(key)))
        if set(signed["roles"]) != {"root", "timestamp", "snapshot", "targets"}:
            faults.append("roles")
        if not isinstance(signed.get("consistent_snapshot", False), bool):
            faults.append("consistent_snapshot")
    return bool(faults)
