# SPDX-License-Identifier: Apache-2.0
"""Power cuts at every call of an enrolment and of renewals: which identity serves, and with which key it goes on."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from cryptography.hazmat.primitives.serialization import Encoding

from hardcase_cloud.enrolment.certificates import issue, key_pem, make_authority
from hardcase_edge.errors import HardcaseError
from hardcase_edge.identity import folder as module
from hardcase_edge.identity.der import from_pem, to_pem
from hardcase_edge.identity.folder import Identities, put_claim, put_identity
from tests.helpers.cloud.enrolment import NOW, key, request
from tests.helpers.edge.cut_runs import CutRuns
from tests.helpers.edge.power_cuts import Tree, cuts, cuts_behind, read_tree

__all__ = ["BY", "CERTIFICATES", "KEYS", "STEPS", "Cuts", "Step", "whole", "without_openssl"]

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


class Cuts(CutRuns[View]):
    """Cuts the power at every call of every step; ``wrong`` has the names of the steps in which a state was wrong."""

    def sample(self, seed: int) -> None:
        """Some renewals, of a device that begins with nothing, with a claim or with an identity of its image."""
        rng = random.Random(seed)
        steps = [
            step
            for _ in range(RENEWALS)
            for step in (*[("begin", begin)] * rng.randint(1, 2), ("finish", finish), ("accept", accept))
        ]
        self.run(steps, rng.choice(["", "claim", "identity"]))

    def run(self, steps: Iterable[tuple[str, Step]] = STEPS, first: str = "") -> Cuts:
        """Until a state is wrong; ``first``: "claim", "identity" or "", what the device has before."""
        root = self.new_folder()
        (root / "ca.pem").write_bytes(BY.pem)
        if first == "claim":
            put_claim(root / "identity", KEYS[5], to_pem(CERTIFICATES[5]), BY.pem, BROKER)
        elif first == "identity":
            put_identity(root / "identity", KEYS[5], to_pem(CERTIFICATES[5]), BY.pem)
        for name, step in steps:
            before, recorder = self.record(root, lambda step=step: step(Identities(root / "identity")))  # type: ignore[misc]
            self._check(name, before, recorder.log, read_tree(root))
            if self.wrong:
                break
        return self

    def _check(self, name: str, before: Tree, log: list, after: Tree) -> None:
        old, new = self.view(before), self.view(after)
        for tree in cuts(before, log):
            self.n_states += 1
            seen = self.view(tree)
            is_one = seen.current in (old.current, new.current) and seen.pending in (old.pending, new.pending)
            is_known = seen.claim == old.claim or max(seen.current, seen.pending) >= 0
            keeps_key = name != "finish" or seen.pending == new.pending or seen.asked == old.asked
            if not (is_one and is_known and keeps_key and seen.goes_on):
                self.wrong.add(name)
        if {self.view(tree) for tree in cuts_behind(before, log)} != {new}:  # what was acknowledged stays
            self.wrong.add(f"behind {name}")

    def look(self, root: Path) -> View:
        """What a device has, and what comes of its next request."""
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


def is_open(identities: Identities) -> bool:
    folders = sorted(identities.folder.glob("[0-9]*"))
    return bool(folders) and (folders[-1] / "request.der").exists() and not (folders[-1] / "cert.pem").exists()
