# SPDX-License-Identifier: Apache-2.0
"""Wherever the power is cut, a device has the identity that it had or the new one, and asks with the same key again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from hardcase_edge.identity.der import to_pem
from hardcase_edge.identity.folder import Identities, put_claim, put_identity
from tests.helpers.edge.identity_cuts import BY, CERTIFICATES, KEYS, STEPS, Cuts, whole, without_openssl
from tests.helpers.edge.power_cuts import Recorder, cuts, materialise, without_leftovers


@pytest.fixture(autouse=True)
def _by_hand() -> Iterator[None]:
    with without_openssl():
        yield


def test_a_cut_anywhere_leaves_an_identity_that_serves_and_the_request_that_was_sent(tmp_path):
    done = Cuts(tmp_path).run()
    assert done.wrong == set()
    assert done.n_states > 400


@pytest.mark.parametrize("name", [".key.pem", ".ca.pem", ".request.der", ".cert.pem", ".current", "number", "identity"])
def test_without_one_kind_of_flush_a_cut_is_found(tmp_path, name):
    assert Cuts(tmp_path, lambda kind: kind == f"sync {name}").run().wrong


def test_a_claim_serves_until_there_is_an_identity(tmp_path):
    done = Cuts(tmp_path).run(STEPS[:3], "claim")
    assert (done.wrong, done.n_states > 200) == (set(), True)


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
