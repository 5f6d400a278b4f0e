# SPDX-License-Identifier: Apache-2.0
"""Wherever the power is cut, a device has the identity that it had or the new one, and asks with the same key again."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from hardcase_cloud.enrolment.certificates import issue, key_pem, make_authority
from hardcase_edge.errors import HardcaseError
from hardcase_edge.identity import folder as module
from hardcase_edge.identity.der import from_pem, to_pem
from hardcase_edge.identity.folder import Identities, put_claim, put_identity
from tests.helpers.cloud.enrolment import NOW, key, request
from tests.helpers.edge.power_cuts import (
    Operation,
    Recorder,
    Tree,
    cuts,
    cuts_behind,
    materialise,
    read_tree,
    without_leftovers,
)

BY = make_authority("test", now=NOW, days=9)
KEYS = [key_pem(key(k)) for k in range(6)]
REQUESTS = [request("pi-1", key(k)) for k in range(6)]
CERTIFICATES = [
    issue(BY, key(k).public_key(), "pi-1", purpose="client", now=NOW, days=1).public_bytes(Encoding.DER)
    for k in range(6)
]
numbers = itertools.count()


@pytest.fixture(autouse=True)
def _without_openssl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys come in order, requests follow from keys, and a test's files need not outlive its machine."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(module, "make_key", lambda: KEYS[next(made) % len(KEYS)])
    monkeypatch.setattr(module, "make_request", lambda path, device: REQUESTS[KEYS.index(path.read_bytes())])
    monkeypatch.setattr(module, "check_issued", lambda pem, ca: None)


made = itertools.count()


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
    asked: int  # by the request that is sent next
    goes_on: bool  # whether that request's certificate serves in the end


DAMAGED = View(-2, -2, -2, False)


def whole(identity: module.Identity | None) -> int:
    """Which certificate an identity has; -1 if none, -2 if its files do not belong together."""
    if identity is None:
        return -1
    number = CERTIFICATES.index(from_pem(identity.cert.read_bytes()))
    is_right = identity.key.read_bytes() == KEYS[number] and identity.ca.read_bytes() == BY.pem
    return number if is_right else -2


class Cuts:
    """Cuts the power at every call of every step."""

    def __init__(self, tmp: Path, is_left_out: Callable[[Operation], bool] = lambda _: False) -> None:
        self.tmp, self.is_left_out = tmp, is_left_out
        self.n_states, self.wrong = 0, set[str]()
        self._views: dict[frozenset[tuple[str, bytes | None]], View] = {}

    def view(self, tree: Tree) -> View:
        shape = without_leftovers(tree)
        if shape not in self._views:
            root = self.tmp / str(next(numbers))
            materialise(dict(shape), root)
            self._views[shape] = view(Identities(root / "identity"))
        return self._views[shape]

    def run(self) -> Cuts:
        root = self.tmp / "run"
        (root / "identity").mkdir(parents=True)
        (root / "ca.pem").write_bytes(BY.pem)
        for name, step in STEPS:
            before, recorder = read_tree(root), Recorder(root, self.is_left_out)
            with recorder.recording():
                step(Identities(root / "identity"))
            self._check(name, before, recorder, read_tree(root))
            if self.wrong:
                break
        return self

    def _check(self, name: str, before: Tree, recorder: Recorder, after: Tree) -> None:
        old, new = self.view(before), self.view(after)
        for tree in cuts(before, recorder.log):
            self.n_states += 1
            seen = self.view(tree)
            is_one = seen.current in (old.current, new.current) and seen.pending in (old.pending, new.pending)
            keeps_key = name != "finish" or seen.pending == new.pending or seen.asked == old.asked
            if not (is_one and keeps_key and seen.goes_on):
                self.wrong.add(name)
        if {self.view(tree) for tree in cuts_behind(before, recorder.log)} != {new}:  # what was acknowledged stays
            self.wrong.add(f"behind {name}")


def view(identities: Identities) -> View:
    try:
        current, pending = whole(identities.current()), whole(identities.pending())
        asked = REQUESTS.index(begin(identities)) if is_open(identities) else -1
        finish(identities)
        accept(identities)
        return View(current, pending, asked, whole(identities.current()) >= 0)
    except (HardcaseError, ValueError, OSError, AssertionError):
        return DAMAGED


def is_open(identities: Identities) -> bool:
    folders = sorted(identities.folder.glob("[0-9]*"))
    return bool(folders) and (folders[-1] / "request.der").exists() and not (folders[-1] / "cert.pem").exists()


def test_a_cut_anywhere_leaves_an_identity_that_serves_and_the_request_that_was_sent(tmp_path):
    done = Cuts(tmp_path).run()
    assert done.wrong == set()
    assert done.n_states > 400


def flush_of(name: str) -> Callable[[Operation], bool]:
    return lambda operation: operation[0] == "sync" and Path(operation[1]).name.startswith(name)


@pytest.mark.parametrize("name", [".key.pem", ".ca.pem", ".request.der", ".cert.pem", ".current", "0001", "identity"])
def test_without_one_kind_of_flush_a_cut_is_found(tmp_path, name):
    assert Cuts(tmp_path, flush_of(name)).run().wrong


def test_an_identity_or_claim_for_a_card_is_whole_or_none(tmp_path):
    root = tmp_path / "card"
    root.mkdir()
    recorder = Recorder(root)
    with recorder.recording():
        put_identity(root / "identity", KEYS[0], to_pem(CERTIFICATES[0]), BY.pem)
        put_claim(root / "claim", KEYS[1], to_pem(CERTIFICATES[1]), BY.pem, "mqtts://broker.example:8885")
    for shape in {without_leftovers(tree) for tree in cuts({}, recorder.log)}:
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        materialise(dict(shape), tmp_path / "cut")
        own, claim = Identities(tmp_path / "cut" / "identity"), Identities(tmp_path / "cut" / "claim").claim()
        assert whole(own.current()) in (-1, 0)
        assert whole(own.pending()) in (-1, 0)
        assert whole(claim) in (-1, 1)
