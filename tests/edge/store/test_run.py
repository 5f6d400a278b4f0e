# SPDX-License-Identifier: Apache-2.0
"""A run of a slot: the cloud that was seen, states that cannot be written, and what the status says."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardcase_edge import __version__
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.store import folder
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.run import Run
from hardcase_edge.fleet.store.trial import Rules

RULES = Rules(decisions=2, deadline_s=100)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def start(store: Store, notes: list[str], *, has_broker: bool = True) -> Run:
    run = Run(store, store.start(), RULES, notes.append)
    run.begin(0, has_broker=has_broker)
    return run


def decide(run: Run, now: float = 1, *, is_connected: bool = False, failed: str | None = None) -> bool:
    record = None if failed is None else {"route": "local", "sensors": ["a", "b"], "failed": failed.split()}
    return run.decided(now, is_connected=is_connected, memory_bytes=lambda: 0, record=record)


def full(path: Path, data: bytes) -> None:
    raise InputError("no space left")


def test_a_cloud_that_was_seen_once_must_be_seen_in_every_later_trial_with_a_broker(store: Store) -> None:
    notes: list[str] = []
    store.put(b"one")
    run = start(store, notes)
    assert decide(run)
    assert decide(run)
    assert decide(run, is_connected=True)  # the good one sees it
    assert store.slots().has_seen_cloud
    store.put(b"two")
    run = start(store, notes)
    assert all(decide(run) for _ in range(5))
    assert not run.waited(100)
    assert (run.has_failed, store.slots().runs, store.slots().b.state) == (True, "a", "bad")
    store.put(b"three")
    run = start(store, notes)
    assert decide(run)
    assert decide(run, is_connected=True)
    assert not run.is_trial
    store.put(b"four")
    run = start(store, notes, has_broker=False)
    assert decide(run)
    assert decide(run)
    assert not run.is_trial
    assert notes == [
        "the bundle in slot a has passed its trial",
        "the trial of slot b waits for a connection to the cloud",
        "the trial of slot b has failed: after 100 s it had made 5 decisions and no connection to the cloud; "
        "slot a runs again",
        "the bundle in slot b has passed its trial",
        "the bundle in slot a has passed its trial",
    ]


def test_the_status_says_what_runs_and_not_what_was_put(store: Store) -> None:
    store.put(b"one", b"", (1, 4))
    run = start(store, [])
    what = {"slot": "a", "release": "1.4", "sha256": sha256(b"one").hex(), "runtime": __version__}
    assert run.facts() == {"store": {**what, "state": "trial"}}
    assert decide(run)
    assert decide(run)
    good = {"store": {**what, "state": "good"}}
    assert run.facts() == good
    store.put(b"two", b"", (1, 5))
    assert run.facts() == good


def test_a_state_that_cannot_be_written_leaves_a_trial_a_trial_and_the_device_decides_on(store, monkeypatch) -> None:
    notes: list[str] = []
    store.put(b"one")
    run = start(store, notes)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "_write", full)
        assert all(decide(run) for _ in range(4))
    assert notes == ["no space left; decisions go on"]
    assert run.facts()["store"]["state"] == store.slots().a.state == "trial"
    run = start(store, notes)
    assert decide(run)
    assert decide(run)
    assert store.slots().a.state == "good"


def test_a_bundle_that_fails_on_a_full_disk_with_no_other_ends_no_run_for_itself(store, monkeypatch) -> None:
    """Or the device would start it again at once, and for ever."""

    store.put(b"one")
    monkeypatch.setattr(folder, "_write", full)
    run = start(store, [])
    run.fail("it cannot be loaded", is_useless=True)
    assert not run.has_failed
    assert store.slots().a.state == "ready"


def test_what_has_worked_is_noted_also_if_the_disk_was_full_when_it_started(store, monkeypatch) -> None:
    store.put(b"one")
    with monkeypatch.context() as patch:
        patch.setattr(folder, "_write", full)
        run = Run(store, store.start(), RULES, lambda line: None)
        run.begin(0, has_broker=True, promised=0.9)
        assert decide(run, failed="")
        assert decide(run, failed="")
    assert store.slots().a.state == "ready"
    assert decide(run, failed="")
    assert (store.slots().a.state, store.slots().a.worked) == ("trial", 1)


def test_a_bundle_that_a_newer_one_has_replaced_meanwhile_never_says_that_it_passed(store: Store) -> None:
    notes: list[str] = []
    store.put(b"one")
    run = start(store, notes)
    decide(run)
    decide(run)
    store.put(b"two")
    run = start(store, notes)
    store.put(b"three")
    decide(run)
    decide(run)
    assert run.facts()["store"]["state"] == "trial"
    assert notes == ["the bundle in slot a has passed its trial"]
    assert store.slots().b.state == "ready"


def test_a_trial_that_was_stopped_has_no_deadline_any_more(store: Store) -> None:
    store.put(b"one")
    run = start(store, [])
    run.stop()
    run.stop()
    assert not run.is_trial
    assert store.slots().a.starts == 0
    assert store.slots().a.state == "trial", "the next start goes on with it"


def good(store: Store, bundle: bytes, failed: str = "", n: int = 3) -> None:
    """A bundle passes its trial, and makes decisions in which these sensors fail."""
    store.put(bundle)
    run = start(store, [])
    for _ in range(RULES.decisions):
        assert decide(run, failed="")
    assert not run.is_trial
    for _ in range(n):
        assert decide(run, failed=failed)
    run.stop()


def test_a_sensor_that_the_good_bundle_has_lost_holds_up_no_update(store: Store) -> None:
    good(store, b"one", "b")
    assert store.noted_broken(store.slots().a.sha256) == {"b"}
    store.put(b"two")
    run = start(store, [])
    assert all(decide(run, failed="b") for _ in range(3))
    assert store.slots().current == "b"
    assert decide(run, failed="b")
    run.stop()
    assert store.noted_broken(store.slots().a.sha256) == frozenset()
    assert store.noted_broken(store.slots().b.sha256) == {"b"}, "for the update after this one"


def test_what_a_trial_has_seen_excuses_nothing_at_its_next_start(store: Store) -> None:
    good(store, b"one")
    store.put(b"two")
    for _ in range(3):  # the power goes before its third decision, or somebody ends the run
        run = start(store, [])
        assert decide(run, failed="b")
        assert decide(run, failed="b")
        run.stop()
        assert not (store.folder / "broken").exists()
    run = start(store, notes := [])
    assert decide(run, failed="b")
    assert decide(run, failed="b")
    assert not decide(run, failed="b")
    why = "in 3 decisions these sensors only failed, and were not broken before: b"
    assert notes == [
        "the trial of slot b waits for a reading of b",
        f"the trial of slot b has failed: {why}; slot a runs again",
    ]
    assert (store.slots().current, store.slots().b.state, store.slots().b.reason) == ("a", "bad", why)


def test_a_note_of_another_bundle_or_a_damaged_one_excuses_nothing(store: Store) -> None:
    good(store, b"one", "b")
    store.note_broken("00" * 32, {"b"})
    assert store.noted_broken(store.slots().a.sha256) == frozenset()
    for wrong in (b"", b"x", b"{}", b"[" * 9_000):
        store._seal("broken", wrong)
        assert store.noted_broken(store.slots().a.sha256) == frozenset()
    (store.folder / "broken").write_bytes(b"x" * 300)
    assert store.noted_broken(store.slots().a.sha256) == frozenset()


def test_broken_sensors_are_noted_when_they_change_and_at_most_every_ten_minutes(store: Store, monkeypatch) -> None:
    good(store, b"one")
    writes: list[set[str]] = []
    monkeypatch.setattr(Store, "note_broken", lambda self, sha256, sensors: writes.append(set(sensors)))
    run = start(store, [])
    for second in range(1_000):
        assert decide(run, second, failed="b" if second // 10 % 2 else "")
    assert 2 <= len(writes) <= 3
    run.stop()
    assert writes[-1] == {"b"}


def test_a_disk_that_takes_no_note_ends_no_run(store: Store, monkeypatch) -> None:
    good(store, b"one")

    monkeypatch.setattr(folder, "_write", full)
    run = start(store, notes := [])
    assert all(decide(run, failed="b") for _ in range(9))
    assert notes == ["no space left; decisions go on"]
    monkeypatch.undo()
    run.stop()
    assert store.noted_broken(store.slots().a.sha256) == {"b"}, "the disk has room again"


def test_items_that_are_refused_are_no_decisions_of_a_trial(store: Store) -> None:
    store.put(b"one")
    run = start(store, [])
    refused = {"route": "refused", "labels": None, "failed": {}}
    for _ in range(9):
        assert run.decided(1, is_connected=True, memory_bytes=lambda: 0, record=refused)
    assert run.is_trial
    assert decide(run)
    assert decide(run)
    assert not run.is_trial
