# SPDX-License-Identifier: Apache-2.0
"""A device's side of an update on a real disk: what it takes, what it counts and drops, full disks and power cuts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.signature import make_keys, sign
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.store import folder, receive
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.receive import begin_trust
from hardcase_edge.fleet.store.slots import failed
from hardcase_edge.fleet.update.incoming import MOST_TRIES, Incoming
from hardcase_edge.fleet.update.messages import Chunk, name_of, pack_chunk
from hardcase_edge.fleet.update.metered import Metered
from tests.helpers.edge.device import FEATURES, make_bundle_bytes
from tests.helpers.edge.repository import NOW, Repository
from tests.helpers.edge.update_rig import NEW, NEWER, OLD, SIZE, Rig


@pytest.fixture(scope="module")
def keys() -> tuple[bytes, bytes]:
    return make_keys()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, Repository())


def test_a_bundle_that_the_metadata_list_becomes_ready(rig):
    rig.offer(rig.offer_of(NEW))
    rig.feed(NEW)
    assert rig.updater.is_ready
    assert rig.states == ("good", "ready", "a")
    assert rig.store.slots().newest == (1, 1)
    assert list(Incoming(rig.store).folder.iterdir()) == []


def test_a_restart_goes_on_with_what_is_there(rig):
    offer = rig.offer_of(NEW)
    rig.offer(offer)
    rig.feed(NEW, 9)
    rig.restart()
    rig.fetched.clear()
    rig.offer(offer)
    assert rig.fetched[0] == 9
    rig.feed(NEW)
    assert rig.updater.is_ready
    assert rig.updater.counters["written"] == offer.n_chunks - 9


def test_a_newer_offer_takes_the_place_of_an_older_one_and_never_the_reverse(rig):
    first = rig.offer_of(NEW)
    second = rig.offer_of(NEWER)
    rig.offer(first)
    rig.feed(NEW, 5)
    rig.offer(second)
    rig.fetched.clear()
    rig.offer(first)
    assert rig.fetched == []
    assert [p.name for p in Incoming(rig.store).folder.iterdir()] == [sha256(NEWER).hex()]
    rig.restart()  # the metadata were written when the offer was taken
    rig.offer(first)
    assert rig.updater.counters["refused"] == 1
    rig.offer(second)
    rig.feed(NEWER)
    assert rig.updater.is_ready


def test_newer_metadata_count_also_where_the_bundle_is_there_already(rig):
    withdrawn = rig.offer_of(NEW)
    rig.offer(rig.offer_of(OLD))  # the only bundle that newer targets list, which the store runs
    assert rig.fetched == []
    rig.offer(withdrawn)
    assert (rig.updater.counters["refused"], rig.fetched) == (1, [])
    assert "timestamp 1 is older than 2" in rig.notes[-1]


def test_an_offer_that_the_metadata_do_not_allow_is_refused_before_a_byte_comes(rig):
    files = rig.repository.publish(NEW)
    rig.offer(rig.offer_of(NEWER, files))
    strange = Repository()
    rig.offer(rig.offer_of(NEW, strange.publish(NEW)))
    assert rig.fetched == []
    assert rig.updater.counters["refused"] == 2
    assert rig.states == ("good", "empty", "a")


def test_what_has_expired_by_the_noted_time_is_refused_whatever_the_devices_clock_says(tmp_path):
    repository = Repository()
    repository.timestamp_expires = NOW + 100
    floor = [NOW + 100]
    rig = Rig(tmp_path, repository, wall=lambda: 0.0, floor=lambda: floor[0])
    offer = rig.offer_of(NEW)
    rig.offer(offer)
    assert "timestamp 1 expired" in rig.notes[-1]
    assert (rig.updater.counters["refused"], rig.fetched) == (1, [])
    floor[0] = NOW + 99
    rig.offer(offer)
    floor[0] = NOW + 100  # it expires while it comes
    rig.feed(NEW)
    assert "timestamp 1 expired" in rig.notes[-1]
    assert not rig.updater.is_ready


def test_what_is_wrong_double_oversized_or_of_another_offer_is_counted_and_dropped(rig):
    rig.offer(rig.offer_of(NEW))
    name = name_of(sha256(NEW))
    for payload in (
        pack_chunk(Chunk(name, 0, b"wrong" * 9)), pack_chunk(Chunk(bytes(16), 0, NEW[:SIZE])),
        pack_chunk(Chunk(name, 0, bytes(32_769))), bytes(70_000), b"", b"\1\4", bytes(40),
    ):  # fmt: skip
        rig.updater.handle(rig.now, payload)
    good = pack_chunk(Chunk(name, 0, NEW[:SIZE]))
    rig.updater.handle(rig.now, good)
    rig.updater.handle(rig.now, good)
    counted = {"wrong": 1, "other_offer": 1, "oversized": 2, "malformed": 3, "written": 1, "double": 1}
    assert rig.updater.counters == counted
    rig.feed(NEW)
    assert rig.updater.is_ready


def test_without_metadata_only_the_signature_of_the_named_key_is_taken(tmp_path, keys):
    private, public = keys
    (tmp_path / "key.pub").write_bytes(public)
    rig = Rig(tmp_path, key=tmp_path / "key.pub")
    rig.offer(rig.offer_of(NEW))
    assert rig.fetched == []
    rig.offer(rig.offer_of(NEW, signature=sign(OLD, private)))
    rig.feed(NEW)
    assert (rig.updater.is_ready, rig.updater.counters["refused"]) == (False, 2)
    rig.now += 100  # the pause after an offer that was false
    rig.offer(rig.offer_of(NEW, signature=sign(NEW, private)))
    assert rig.fetched == []  # all is here
    assert rig.updater.is_ready


def test_a_device_without_root_and_key_takes_nothing(tmp_path):
    rig = Rig(tmp_path)
    rig.offer(rig.offer_of(NEW, signature=bytes(64)))
    assert (rig.fetched, rig.updater.counters["refused"]) == ([], 1)


def test_a_bundle_that_failed_its_trial_is_taken_again_only_from_newer_targets(rig):
    offer = rig.offer_of(NEW)
    rig.offer(offer)
    rig.feed(NEW)
    rig.store.start()
    rig.store.apply(lambda slots: failed(slots, sha256(NEW).hex(), "it was slow"))
    rig.restart()
    rig.offer(offer)
    assert (rig.fetched, rig.notes[-1].count("has failed here")) == ([], 1)
    rig.offer(rig.offer_of(NEW))
    assert rig.fetched != []


def test_a_bundle_whose_file_was_damaged_here_is_taken_again(rig):
    offer = rig.offer_of(NEW)
    rig.offer(offer)
    rig.feed(NEW)
    (rig.store.folder / "b" / "bundle.hcb").write_bytes(NEW[:-1])
    assert (rig.store.start().name, rig.states) == ("a", ("good", "bad", "a"))
    rig.restart()
    rig.offer(offer)
    rig.feed(NEW)
    assert rig.states == ("good", "ready", "a")


def test_a_whole_bundle_that_cannot_be_used_is_not_fetched_again(rig):
    bad = NEW[:-40] + bytes(40)  # its own checksum is wrong, and the metadata list it all the same
    offer = rig.offer_of(bad)
    rig.offer(offer)
    rig.feed(bad)
    assert rig.updater.facts()["update"]["state"] == "refused"
    rig.restart()
    rig.offer(offer)
    assert rig.fetched == []
    assert rig.updater.facts()["update"]["sha256"] == sha256(bad).hex()
    assert rig.states == ("good", "empty", "a")


def test_nothing_is_fetched_in_metered_hours(tmp_path):
    rig = Rig(tmp_path, Repository(), metered=Metered(0, 1439))
    rig.offer(rig.offer_of(NEW))
    assert (rig.fetched, rig.updater.facts()["update"]["state"]) == ([], "paused")
    rig.updater._metered = None
    rig.updater.act(rig.now)
    assert rig.fetched != []


def test_an_install_that_is_asked_for_ends_the_pause_of_its_transfer_alone(tmp_path):
    rig = Rig(tmp_path, Repository(), metered=Metered(0, 1439))
    rig.updater.install()  # of nothing: a later offer waits all the same
    rig.offer(rig.offer_of(NEW))
    assert rig.fetched == []
    rig.updater.install()
    rig.updater.act(rig.now)
    assert rig.fetched != []
    assert rig.updater.facts()["update"]["state"] == "loading"
    rig.offer(rig.offer_of(NEWER))
    assert rig.updater.facts()["update"]["state"] == "paused"


@pytest.mark.parametrize("n", range(6))
def test_a_disk_that_is_full_at_any_write_leaves_the_state_as_it_was(rig, monkeypatch, n):
    offer, real = rig.offer_of(NEW), (folder._write, os.pwrite)
    before = rig.store.slots()
    left = n

    def full(write, *args):
        nonlocal left
        left -= 1
        if left < 0:
            raise InputError("no space") if write is real[0] else OSError(28, "no space")
        return write(*args)

    if n < 3:  # the trust, and what the store writes at the end
        monkeypatch.setattr(folder, "_write", lambda *args: full(real[0], *args))
    else:
        monkeypatch.setattr(os, "pwrite", lambda *args: full(real[1], *args))
    rig.offer(offer)
    rig.feed(NEW)
    assert not rig.updater.is_ready
    after = rig.store.slots()
    assert (after.a, after.current, after.newest) == (before.a, "a", before.newest)
    left = 1_000
    for _ in range(8):
        rig.now += 4_000
        rig.offer(offer)
        rig.updater.act(rig.now)
        rig.feed(NEW)
    assert rig.updater.is_ready


def test_a_disk_without_room_for_two_copies_takes_no_offer(rig, monkeypatch):
    real = os.statvfs(rig.store.folder)
    full = os.statvfs_result((real.f_bsize, real.f_frsize, *real[2:4], 2, *real[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    rig.offer(rig.offer_of(NEW))
    assert (rig.fetched, rig.updater.counters["unwritten"]) == ([], 1)


# ---------------------------------------------------------------- a bundle whose check does not end


class KilledError(BaseException):
    """The process ends here."""


@pytest.fixture
def killed(rig, monkeypatch) -> Iterator[pytest.MonkeyPatch]:
    """The first check of a bundle has killed the process, and each later one kills it, until this is undone."""

    def load(data, **more):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(receive, "load_bytes", load)
        rig.offer(rig.offer_of(NEW))
        with pytest.raises(KilledError):
            rig.feed(NEW)
        rig.restart()
        yield patch


def test_a_bundle_whose_check_kills_the_process_three_times_is_refused(rig, killed):
    offer = rig.offer_of(NEW)
    for _ in range(MOST_TRIES - 1):
        assert rig.incoming.refused().sha256 == ""
        with pytest.raises(KilledError):
            rig.offer(offer)
        rig.restart()
    rig.offer(offer)
    assert rig.incoming.refused().sha256 == sha256(NEW).hex()
    assert "ended 3 times while it checked" in rig.incoming.refused().reason
    assert rig.states == ("good", "empty", "a")
    killed.setattr(receive, "load_bytes", load_bytes)
    rig.offer(rig.offer_of(NEWER))
    rig.feed(NEWER)
    assert rig.updater.is_ready


def test_one_kill_during_the_check_refuses_nothing(rig, killed):
    killed.setattr(receive, "load_bytes", load_bytes)
    (rig.incoming.folder / ".trying.abcd1234").write_bytes(b"x")
    rig.restart()
    rig.offer(rig.offer_of(NEW))
    assert rig.updater.is_ready
    assert list(rig.incoming.folder.iterdir()) == [], "no note and no leftover stays"


def test_a_folder_of_chunks_that_is_a_link_takes_nothing(rig, tmp_path):
    (tmp_path / "outside").mkdir()
    rig.incoming.folder.symlink_to(tmp_path / "outside")
    rig.offer(rig.offer_of(NEW))
    assert rig.fetched == []
    assert "incoming is a link" in rig.notes[-1]
    assert list((tmp_path / "outside").iterdir()) == []


def test_another_program_is_taken_only_if_the_offer_says_so(rig):
    other = make_bundle_bytes(program="wine", sensors=("ph", "vib"), features=("acid", *FEATURES[1:]))
    offer = rig.offer_of(other)
    rig.offer(offer)
    rig.feed(other)
    assert rig.states == ("good", "empty", "a")
    [note] = [line for line in rig.notes if "is refused" in line]
    assert "other program: its name is 'wine', and 'toy' runs here; the sensor 'ph' is not here" in note
    assert "--replace-program" in note
    assert rig.updater.facts()["update"]["state"] == "refused"
    rig.fetched.clear()
    rig.offer(offer)
    assert rig.fetched == [], "it is not fetched again"
    rig.offer(replace(offer, replaces=True))
    rig.feed(other)
    assert rig.states == ("good", "ready", "a")


def test_a_store_without_a_bundle_takes_any_program(tmp_path):
    rig = Rig(tmp_path, Repository())
    rig.store = Store(tmp_path / "empty")
    begin_trust(rig.store, tmp_path / "root.json")
    rig.restart()
    other = make_bundle_bytes(program="wine")
    rig.offer(rig.offer_of(other))
    rig.feed(other)
    assert rig.states == ("ready", "empty", "")
