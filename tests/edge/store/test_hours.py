# SPDX-License-Identifier: Apache-2.0
"""The time that a store notes: it rises with what was counted, follows a clock slowly, and nothing lowers it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from hardcase_edge.base.clock import RELEASED, Clock, risen
from hardcase_edge.errors import TrustError
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.receive import receive
from hardcase_edge.fleet.store.run import Hours, Run, clock_of, signed_time_in
from hardcase_edge.fleet.store.trial import Rules
from hardcase_edge.fleet.store.trust import first_trust, release_of, updated
from tests.helpers.edge.device import make_bundle_bytes
from tests.helpers.edge.repository import NOW, Repository

YEAR = 365 * 86_400


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.put(make_bundle_bytes())
    return store


def test_time_is_noted_at_most_hourly_and_never_falls(store: Store) -> None:
    rng, hours, now, writes, noted = random.Random(4), Hours(store), 0.0, 0, 0
    for _ in range(300):
        now += rng.uniform(0, 1_000)
        hours.passed(now, wall=rng.choice([0.0, RELEASED - YEAR, RELEASED + now, 9e9]))
        writes, noted = writes + (store.noted_time() != noted), store.noted_time()
        assert noted == 0 or RELEASED <= noted <= RELEASED + 24 * now
    assert 10 < writes <= now / 3_600
    assert noted >= RELEASED + now - 3 * 3_600 - writes  # whole seconds
    Hours(store).passed(0.0, wall=0.0)  # another process, whose clock has begun again
    store.note_time(RELEASED)
    assert store.noted_time() == noted
    assert clock_of(store).floor() >= noted


def test_a_clock_that_is_wrong_for_an_hour_puts_the_floor_a_day_ahead_and_no_more() -> None:
    assert risen(RELEASED, 3_600, RELEASED + 50 * YEAR) == RELEASED + 86_400
    assert risen(RELEASED, 3_600, RELEASED + 7_200) == RELEASED + 7_200
    assert risen(RELEASED, 3_600, 0.0) == RELEASED + 3_600


def test_a_run_notes_the_time_and_a_full_disk_does_not_end_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    run = Run(store, store.start(), Rules(), told.append)
    monkeypatch.setattr("hardcase_edge.fleet.store.run.time.time", lambda: 0.0)
    for hour in (0, 1, 2):
        assert run.decided(hour * 3_600.0, is_connected=False, memory_bytes=lambda: 1)
    assert (store.noted_time(), told) == (RELEASED + 7_200, [])
    (store.folder / "trust").write_bytes(b"damaged")
    assert run.clock().floor() >= RELEASED + 7_200
    os.unlink(store.folder / "lock")
    os.mkdir(store.folder / "lock")  # nothing can be written
    assert run.decided(3 * 3_600.0, is_connected=False, memory_bytes=lambda: 1)
    assert len(told) == 1
    assert told[0].endswith("decisions go on")


def test_one_damaged_byte_is_mended_by_the_other_half_and_two_are_no_time(store: Store) -> None:
    store.note_time(RELEASED + 5)
    path = store.folder / "time"
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert store.noted_time() == RELEASED + 5
    for wrong in (b"", b"x" * 600, good[:40], b"\xff" * len(good)):
        path.write_bytes(wrong)
        assert store.noted_time() == 0
        assert clock_of(store).floor() >= RELEASED
    store.note_time(RELEASED + 6)
    assert store.noted_time() == RELEASED + 6


def test_what_was_noted_makes_metadata_expire_for_a_device_without_a_clock(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository()
    repository.timestamp_expires = NOW + 100
    (tmp_path / "bundle.hcb").write_bytes(make_bundle_bytes(name="other"))
    repository.write(tmp_path, (tmp_path / "bundle.hcb").read_bytes())
    store.write_trust(first_trust(repository.roots[0]).to_bytes())
    monkeypatch.setattr("hardcase_edge.base.clock.time", lambda: 0.0)
    store.note_time(int(NOW) + 100)
    with pytest.raises(TrustError, match="timestamp 1 expired"):
        receive(store, tmp_path / "bundle.hcb", metadata=tmp_path)
    os.unlink(store.folder / "time")
    assert receive(store, tmp_path / "bundle.hcb", metadata=tmp_path)[0] == "b"


def test_new_keys_end_a_time_that_a_thief_has_signed() -> None:
    repository = Repository()
    repository.issued = NOW + 7_000 * YEAR  # with a stolen key
    repository.timestamp_expires = repository.issued + 10
    trust = first_trust(repository.roots[0])
    with pytest.raises(TrustError, match="root 1 expired"):
        updated(trust, *repository.publish(b"theirs"), now=0)
    repository.issued = NOW + 5e6  # below the expiry of the root, which they cannot sign
    repository.timestamp_expires = NOW + 6e6
    trust = updated(trust, *repository.publish(b"theirs"), now=0)
    assert trust.floor == signed_time_in(trust.to_bytes()) == NOW + 5e6
    repository.issued, repository.timestamp_expires = NOW, NOW + 1e6
    with pytest.raises(TrustError, match="timestamp 3 expired"):
        updated(trust, *repository.publish(b"ours"), now=NOW)
    repository.rotate("snapshot")
    with pytest.raises(TrustError, match="timestamp 4 expired"):  # the key that has signed the time still counts
        updated(trust, *repository.publish(b"ours"), now=NOW)
    repository.rotate("timestamp")
    trust = updated(trust, *repository.publish(b"ours"), now=NOW)
    assert (trust.floor, release_of(trust, b"ours", now=NOW)) == (NOW, (3, 5))


@pytest.mark.parametrize("data", [None, b"", b"[]", b"{}", b'{"floor": "x"}', b'{"floor": 1e999}', b"[" * 100_000])
def test_a_trust_file_without_a_time_is_no_floor(data: bytes | None) -> None:
    assert signed_time_in(data) == 0
    assert Clock(signed_time_in(data)).floor() >= RELEASED
