# SPDX-License-Identifier: Apache-2.0
"""A campaign: whom it offers the bundle, how often, how much one device may fetch, and what it says of each."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from hardcase_cloud.rollout.updates.campaign import COPIES, FIRST_PAUSE_S, LEAST_CHUNKS, MOST_PAUSE_S, Campaign
from hardcase_cloud.rollout.updates.offer import CHUNK_BYTES, make_offer
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import InputError, TrustError
from hardcase_edge.fleet.store.slots import DAMAGED
from hardcase_edge.fleet.update.messages import (
    CHUNK,
    OFFER,
    Offer,
    digests_of,
    kind_of,
    name_of,
    pack_fetch,
    unpack_chunk,
)
from tests.helpers.edge.device import make_bundle_bytes
from tests.helpers.edge.repository import NOW, Repository

DATA = bytes(5_000) + b"end"
SHA = sha256(DATA).hex()
OFFERED = Offer(size=len(DATA), sha256=sha256(DATA), chunk_bytes=4_096, digests=digests_of(DATA, 4_096))


def status(state: str = "online") -> bytes:
    return json.dumps({"state": state}).encode()


def facts(bundle: str = "0" * 64, **more: object) -> bytes:
    return json.dumps({"bundle": bundle, **more}).encode()


def campaign(*named: str) -> Campaign:
    return Campaign(DATA, OFFERED, (1, 2), frozenset(named) if named else None)


def drain(it: Campaign, now: float) -> list[tuple[str, int]]:
    """All that it publishes now: devices and kinds."""
    out = []
    while (message := it.outgoing(now)) is not None:
        out.append((message[0], kind_of(message[1])))
    return out


def test_a_device_that_has_gone_with_its_broker_is_not_there_when_that_comes_back() -> None:
    it = campaign("stays", "gone")
    for device in ("stays", "gone"):
        it.status(0, device, status())
    assert sorted(drain(it, 0)) == [("gone", OFFER), ("stays", OFFER)]
    it.connected()
    it.status(1, "stays", status())
    assert drain(it, 1) == [("stays", OFFER)]
    assert [it.is_online(device) for device in ("stays", "gone")] == [True, False]


def test_a_device_that_does_not_fetch_is_offered_the_bundle_ever_more_rarely() -> None:
    it = campaign("a")
    assert drain(it, 0) == []  # it is not online
    it.status(0, "a", status())
    times = [t / 4 for t in range(40_000) if drain(it, t / 4) == [("a", OFFER)]]
    pauses = [b - a for a, b in pairwise(times)]
    assert pauses[:4] == [FIRST_PAUSE_S * 2**k for k in range(4)]
    assert pauses[-1] <= MOST_PAUSE_S
    it.status(20_000, "a", status("offline"))
    it.status(20_000, "a", status())
    assert drain(it, 20_000) == [("a", OFFER)]


def test_chunks_go_to_those_who_ask_in_turn() -> None:
    it = campaign("a", "b")
    for device in "ab":
        it.fetch(0, device, pack_fetch(name_of(OFFERED.sha256), [0, 1]))
    messages = [it.outgoing(0) for _ in range(4)]
    chunks = [(device, unpack_chunk(payload)) for device, payload in filter(None, messages)]
    assert [(device, chunk.index) for device, chunk in chunks] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert {chunk.data for _, chunk in chunks} == {DATA[:4_096], DATA[4_096:]}


def test_what_one_device_may_fetch_is_bounded() -> None:
    it = campaign("a")
    for _ in range(1_000):
        it.fetch(0, "a", pack_fetch(name_of(OFFERED.sha256), [0, 1]))
        while it.outgoing(0):
            pass
    assert it.sent_chunks == max(COPIES * OFFERED.n_chunks, LEAST_CHUNKS)
    it.fetch(3_600, "a", pack_fetch(name_of(OFFERED.sha256), [0, 1]))
    assert len(drain(it, 3_600)) == 2


@pytest.mark.parametrize(
    "payload", [b"", pack_fetch(bytes(16), [0]), pack_fetch(name_of(OFFERED.sha256), [2]), bytes(100)]
)
def test_a_fetch_of_something_else_is_dropped(payload: bytes) -> None:
    it = campaign("a")
    it.fetch(0, "a", payload)
    assert (it.dropped, drain(it, 0)) == (1, [])


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b"\xff", b"[" * 9_000])
def test_a_status_that_is_not_one_is_dropped(payload: bytes) -> None:
    it = campaign("a")
    it.status(0, "a", payload)
    assert (it.dropped, drain(it, 0)) == (1, [])


@pytest.mark.parametrize("payload", [b"", b"[]", b"\xff", b'{"store": 3}', b"[" * 9_000])
def test_facts_that_are_none_are_dropped(payload: bytes) -> None:
    it = campaign("a")
    it.facts("a", payload)
    assert (it.dropped, it.states()["a"][0]) == (1, "unknown")


def test_a_campaign_says_what_a_device_runs() -> None:
    it, failed = campaign("a"), {"sha256": SHA, "release": "1.2", "reason": "slow"}
    damaged = {**failed, "reason": DAMAGED}
    for payload, state in (
        (facts(store={"state": "good"}), "unknown"),
        (facts(store={"state": "good", "failed": damaged}), "unknown"),  # before it was offered
        (facts(update={"state": "loading", "sha256": SHA, "have": 1, "of": 2}), "loading 1/2"),
        (facts(bundle=SHA, store={"state": "trial"}), "trial"),
        (facts(store={"state": "good", "failed": {**failed, "release": "1.1"}}), "unknown"),  # of an older offer
        (facts(store={"state": "good", "failed": failed}), "rolled back"),
        (facts(bundle=SHA, store={"state": "trial"}), "trial"),
        (facts(store={"state": "good", "failed": damaged}), "rolled back"),  # and not offered again and again
        (facts(update={"state": "refused", "sha256": SHA, "reason": "?"}), "refused"),
        (facts(bundle=SHA, store={"state": "good"}), "good"),
    ):
        it.facts("a", payload)
        assert it.states()["a"][0] == state
        assert it.is_done == (state in ("good", "refused", "rolled back"))


def test_a_campaign_says_what_a_trial_waits_for_and_that_both_bundles_of_a_device_failed() -> None:
    it = campaign("a")
    for payload, state in (
        (facts(bundle=SHA, store={"state": "trial"}), ("trial", "")),
        (
            facts(bundle=SHA, store={"state": "trial", "waits_for": "30 answers of f0, has 0\x1b"}),
            ("trial", "waits for 30 answers of f0, has 0?"),
        ),
        (
            facts(bundle="", store={"state": "none", "failed": {"sha256": "ab" * 32, "release": "1.1", "reason": "x"},
                "failed_before": {"sha256": SHA, "release": "1.2", "reason": "no sensor"}}),
            ("rolled back", "no sensor"),
        ),
    ):  # fmt: skip
        it.facts("a", payload)
        assert it.states()["a"] == state


def test_only_named_devices_are_served_unless_all_are() -> None:
    few, every = campaign("a"), campaign()
    for it in (few, every):
        for device in "ab":
            it.status(0, device, status())
    assert {device for device, _ in drain(few, 0)} == {"a"}
    assert {device for device, _ in drain(every, 0)} == {"a", "b"}
    assert not campaign().is_done
    assert CHUNK != OFFER


def test_an_offer_has_what_a_device_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "x.hcb"
    path.write_bytes(make_bundle_bytes())
    data, offer, release = make_offer(path, Repository().write(tmp_path, path.read_bytes()), now=NOW)
    assert (data, release) == (path.read_bytes(), (1, 1))
    assert (offer.size, offer.chunk_bytes, offer.signature, len(offer.roots)) == (len(data), CHUNK_BYTES, b"", 0)


@pytest.mark.parametrize(
    ("prepare", "error", "words"),
    [
        (lambda folder, data: None, InputError, "unsigned"),
        (lambda folder, data: folder, TrustError, "no 1.root.json"),
        (lambda folder, data: Repository().write(folder, b"another"), TrustError, "do not list"),
    ],
)
def test_what_no_device_would_take_is_not_offered(tmp_path: Path, prepare, error, words) -> None:
    path = tmp_path / "x.hcb"
    path.write_bytes(make_bundle_bytes())
    with pytest.raises(error, match=words):
        make_offer(path, prepare(tmp_path, path.read_bytes()), now=NOW)


def test_an_offer_that_no_device_could_read_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.hcb"
    path.write_bytes(make_bundle_bytes())
    monkeypatch.setattr("hardcase_cloud.rollout.updates.offer.MAX_MESSAGE_BYTES", 1_000)
    with pytest.raises(InputError, match="bytes of metadata"):
        make_offer(path, Repository().write(tmp_path, path.read_bytes()), now=NOW)
