# SPDX-License-Identifier: Apache-2.0
"""Power cuts at every call of an enrolment and of renewals: which identity serves, and with which key it goes on."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from cryptography.hazmat.primitives.serialization import Encoding

from hardcase_cloud.rollout.enrolment.certificates import issue, key_pem, make_authority
from hardcase_edge.errors import HardcaseError
from hardcase_edge.fleet.identity import folder as module
from hardcase_edge.fleet.identity.der import from_pem, to_pem
from hardcase_edge.fleet.identity.folder import Identities, put_claim, put_identity
from tests.helpers.cloud.enrolment import NOW, key, request
from tests.helpers.edge import cut_runs
from tests.helpers.edge.cut_runs import Act, Run, State
from tests.helpers.edge.power_cuts import Recorder

BY = make_authority("test", now=NOW, days=9)
KEYS = [key_pem(key(k)) for k in range(6)]
REQUESTS = [request("pi-1", key(k)) for k in range(6)]
CERTIFICATES = [
    issue(BY, key(k).public_key(), "pi-1", purpose="client", now=NOW, days=1).public_bytes(Encoding.DER)
    for k in range(6)
]
BROKER = "mqtts://broker.example:8885"
RENEWALS = 4  # of a random run
Step = Callable[[Identities], object]
made = itertools.count()


@contextmanager
def without_openssl() -> Iterator[None]:
    """Keys come in order, and requests follow from keys."""
    with (
        patch.object(module, "make_key", lambda: KEYS[next(made) % len(KEYS)]),
        patch.object(module, "make_request", lambda path, device: REQUESTS[KEYS.index(path.read_bytes())]),
        patch.object(module, "check_issued", lambda pem, ca: None),
    ):
        yield


def begin(identities: Identities) -> bytes:
    return identities.begin("pi-1", identities.folder.parent / "ca.pem").request


def finish(identities: Identities) -> None:
    opened = identities.begin("pi-1", identities.folder.parent / "ca.pem")
    identities.finish(opened.number, CERTIFICATES[REQUESTS.index(opened.request)])


def accept(identities: Identities) -> None:
    pending = identities.pending()
    assert pending is not None
    identities.accept(pending)


STEPS = [(name, step) for _ in range(3) for name, step in (("begin", begin), ("finish", finish), ("accept", accept))]


@dataclass(frozen=True)
class View:
    """What a device has after a cut, by numbers of certificates; -1: none, -2: files that do not belong together."""

    current: int
    pending: int
    claim: int  # -1 beside an identity, which goes before it
    asked: int  # by the request that is sent next
    goes_on: bool  # whether that request's certificate serves in the end


DAMAGED = View(-2, -2, -2, -2, False)


def whole(identity: module.Identity | None) -> int:
    """Which certificate an identity has; -1 if none, -2 if its files do not belong together."""
    if identity is None:
        return -1
    number = CERTIFICATES.index(from_pem(identity.cert.read_bytes()))
    is_right = identity.key.read_bytes() == KEYS[number] and identity.ca.read_bytes() == BY.pem
    return number if is_right else -2


@dataclass
class IdentityRun(Run):
    """Steps of one device; ``first``: "claim", "identity" or "", what it has before."""

    named: Iterable[tuple[str, Step]] = tuple(STEPS)
    first: str = ""

    def steps(self, root: Path) -> Iterator[tuple[str, Act]]:
        (root / "ca.pem").write_bytes(BY.pem)
        if self.first == "claim":
            put_claim(root / "identity", KEYS[5], to_pem(CERTIFICATES[5]), BY.pem, BROKER)
        elif self.first == "identity":
            put_identity(root / "identity", KEYS[5], to_pem(CERTIFICATES[5]), BY.pem)
        for name, step in self.named:

            def act(_: Recorder, step: Step = step) -> None:
                with suppress(HardcaseError):
                    step(Identities(root / "identity"))

            yield name, act

    def wrong(self, step: cut_runs.Step, started: object = None) -> Callable[[State], str]:
        """All but the old and the new identity, each with its request; behind the step, all but the new."""
        old, new = step.old, step.new

        def what(state: State) -> str:
            seen = state.seen
            is_one = seen.current in (old.current, new.current) and seen.pending in (old.pending, new.pending)
            is_known = seen.claim == old.claim or max(seen.current, seen.pending) >= 0
            keeps_key = step.name != "finish" or seen.pending == new.pending or seen.asked == old.asked
            is_kept = not state.is_last or seen == new  # what was acknowledged stays
            return "" if is_one and is_known and keeps_key and seen.goes_on and is_kept else str(seen)

        return what

    def look(self, root: Path) -> View:
        identities = Identities(root / "identity")
        try:
            current, pending = whole(identities.current()), whole(identities.pending())
            claim = whole(identities.claim()) if max(current, pending) < 0 else -1
            asked = REQUESTS.index(begin(identities)) if is_open(identities) else -1
            finish(identities)
            accept(identities)
            return View(current, pending, claim, asked, whole(identities.current()) >= 0)
        except (HardcaseError, ValueError, OSError, AssertionError):
            return DAMAGED


def identity_runs(rng: random.Random) -> Iterator[Run]:
    """Some renewals, of a device that begins with nothing, with a claim or with an identity of its image."""
    steps = [
        step
        for _ in range(RENEWALS)
        for step in (*[("begin", begin)] * rng.randint(1, 2), ("finish", finish), ("accept", accept))
    ]
    yield IdentityRun(steps, rng.choice(["", "claim", "identity"]))


class CardRun(IdentityRun):
    """An identity and a claim that are put on a card, each whole or not there."""

    def steps(self, root: Path) -> Iterator[tuple[str, Act]]:

        def act(_: Recorder) -> None:
            put_identity(root / "identity", KEYS[0], to_pem(CERTIFICATES[0]), BY.pem)
            put_claim(root / "claim", KEYS[1], to_pem(CERTIFICATES[1]), BY.pem, BROKER)

        yield "put", act

    def look(self, root: Path) -> tuple[int, int, int]:
        own, claim = Identities(root / "identity"), Identities(root / "claim").claim()
        return whole(own.current()), whole(own.pending()), whole(claim)

    def wrong(self, step: cut_runs.Step, started: object = None) -> Callable[[State], str]:
        allowed = [(a, b, c) for a in (-1, 0) for b in (-1, 0) for c in (-1, 1)]
        return lambda state: "" if state.seen in allowed else str(state.seen)


def is_open(identities: Identities) -> bool:
    folders = sorted(identities.folder.glob("[0-9]*"))
    return bool(folders) and (folders[-1] / "request.der").exists() and not (folders[-1] / "cert.pem").exists()
