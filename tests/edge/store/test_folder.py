# SPDX-License-Identifier: Apache-2.0
"""The store's files: damage, full disks, disks that cannot be written, leftovers, and two processes at once."""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from hardcase_edge.base.files import write_whole
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import HardcaseError, InputError, StoreError
from hardcase_edge.fleet.store import folder
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.slots import Slots, passed, slots_from, started

OLD, NEW, NEXT = b"old" * 50, b"new" * 60, b"next" * 70


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store whose slots a and b have both passed; b is current."""
    store = Store(tmp_path / "store")
    for bundle in (OLD, NEW):
        store.put(bundle)
        store.start()
        store.apply(lambda slots, bundle=bundle: passed(slots, sha256(bundle).hex()))
    return store


def runs(store: Store) -> bytes:
    return store.start().path.read_bytes()


def test_any_one_damaged_byte_leaves_something_to_run_or_a_line_that_says_why(store: Store) -> None:
    rng = random.Random(1)
    store.write_trust(b"{}")
    for name in ("state", "trust", "a/bundle.hcb", "b/bundle.hcb"):
        path = store.folder / name
        good = path.read_bytes()
        for at in range(0, len(good), 5 if name == "state" else 11):
            damaged = bytearray(good)
            damaged[at] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            assert runs(store) == (OLD if name == "b/bundle.hcb" else NEW)
            assert store.trust() == b"{}"
            if name == "b/bundle.hcb":
                break  # the slot is bad from here on
            path.write_bytes(good)


def test_a_byte_that_becomes_the_end_of_a_copy_damages_that_copy_alone(store: Store) -> None:
    path = store.folder / "state"
    good = path.read_bytes()
    for at in (0, 1, 70, len(good) // 2 - 2, len(good) // 2 - 1, len(good) // 2, len(good) - 2, len(good) - 1):
        for byte in (b"\n", b" ", b"\0", b"\xff"):
            path.write_bytes(good[:at] + byte + good[at + 1 :])
            assert runs(store) == NEW
    path.write_bytes(good[: len(good) // 2 - 5])
    with pytest.raises(StoreError, match="is damaged, in both of its copies"):
        store.start()


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"format": 2},
        Slots().to_json() | {"current": "a"},
        Slots().to_json() | {"current": "c"},
        Slots().to_json() | {"newest": [1]},
        Slots().to_json() | {"newest": [1.5, 0]},
        Slots().to_json() | {"newest": [float("inf"), 0]},
        Slots().to_json() | {"newest": [-1, True]},
        Slots().to_json() | {"current": "../..", "b": Slots().to_json()["b"] | {"state": "good", "sha256": "ab" * 32}},
        Slots().to_json() | {"a": Slots().to_json()["a"] | {"starts": float("nan")}},
        Slots().to_json() | {"a": {"state": "odd"}},
        Slots().to_json() | {"b": Slots().to_json()["b"] | {"state": "good", "sha256": "ab"}},
    ],
)
def test_a_state_that_no_store_writes_is_refused(value: object) -> None:
    with pytest.raises(StoreError, match="the store's state cannot be used"):
        slots_from(value)  # type: ignore[arg-type]


def test_a_full_disk_leaves_the_store_as_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = store.slots()
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=10, f_frsize=4096))
    with pytest.raises(StoreError, match="has 40960 bytes free, and the bundle needs"):
        store.put(NEXT)
    assert (store.slots(), runs(store)) == (before, NEW)


def test_a_disk_that_fills_at_any_write_leaves_the_good_bundle_running(store: Store, monkeypatch) -> None:
    for n_writes in range(4):
        left = iter(range(n_writes))

        def write(path, data, left=left):
            if next(left, None) is None:
                raise InputError("no space left")
            write_whole(path, data)

        with monkeypatch.context() as patch:
            patch.setattr(folder, "write_whole", write)
            with pytest.raises(InputError):
                store.put(NEXT + bytes([n_writes]), b"s" * 64)
        assert runs(store) == NEW
    store.put(NEXT, b"s" * 64)
    with monkeypatch.context() as patch:  # a trial whose start cannot be counted is not tried
        patch.setattr(folder, "write_whole", write)
        started = store.start()
        assert started.path.read_bytes() == NEW
        assert started.notes == ("no space left; slot a is not tried before that, and slot b runs",)
    assert runs(store) == NEXT


@pytest.mark.parametrize("size", [0, 7])
def test_a_damaged_bundle_can_be_put_again_while_the_device_still_runs_it(store: Store, size: int) -> None:
    started = store.start()
    started.path.write_bytes(NEW[:size])
    assert store.put(NEW) != ""
    assert runs(store) == NEW
    assert store.put(NEW) == "", "a whole one is known"


def test_a_store_on_a_disk_that_has_become_read_only_still_runs(store: Store, monkeypatch) -> None:
    real = os.open

    def read_only(path, flags, *rest, **named):
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(30, "Read-only file system")
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", read_only)
    assert runs(store) == NEW
    with pytest.raises(HardcaseError, match="Read-only file system"):
        store.put(NEXT)


def test_a_disk_that_gives_other_bytes_back_is_noticed(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(folder, "write_whole", lambda path, data: write_whole(path, data[:-1] + b"?"))
    with pytest.raises(StoreError, match="reads back otherwise than it was written; replace the disk"):
        store.put(NEXT)


def test_what_a_cut_has_left_of_a_write_goes_and_nothing_else_does(store: Store) -> None:
    ours = [".state.abcd1234", "a/.bundle.hcb.abcd1234", "b/.bundle.hcb.sig.abcd1234", ".trust.__34abcd"]
    theirs = [".profile", ".state", "a/.hidden", "notes.txt"]
    for name in (*ours, *theirs):
        (store.folder / name).write_bytes(b"x")
    store.start()
    assert [(store.folder / name).exists() for name in (*ours, *theirs)] == [False] * 4 + [True] * 4


def test_puts_at_once_follow_one_another(store: Store) -> None:
    bundles = [bytes([k]) * 200 for k in range(8)]
    threads = [threading.Thread(target=store.put, args=(bundle,)) for bundle in bundles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs(store) in bundles
    assert store.slots()["b"].state == "good"


@pytest.mark.parametrize("name", ["lock", "a", "b"])
@pytest.mark.parametrize("exists", [True, False], ids=["to something", "to nothing"])
def test_a_store_follows_no_link(store: Store, tmp_path: Path, name: str, exists: bool) -> None:
    outside, path = tmp_path / "outside", store.folder / name
    if exists:
        shutil.move(path, outside)
    elif name == "lock":
        path.unlink()
    else:
        shutil.rmtree(path)
    before = sorted(p.relative_to(outside) for p in outside.rglob("*")) if exists else None
    path.symlink_to(outside)
    for work in (lambda: store.put(NEXT, b"s" * 64), store.start, lambda: store.note_time(1)):
        with pytest.raises(StoreError, match=f"{name} is a link, and a store writes in its own folder only"):
            work()
    assert os.path.lexists(outside) == exists
    assert before == (sorted(p.relative_to(outside) for p in outside.rglob("*")) if exists else None)


def test_what_a_killed_process_has_left_beside_the_newest_release_goes(
    store: Store, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    Store(store.folder).put(NEXT, release=(1, 1))
    (newest,) = (tmp_path / "run").iterdir()
    (tmp_path / "run" / f".{newest.name}.abcd1234").write_bytes(b"x")
    (tmp_path / "run" / ".somebody.abcd1234").write_bytes(b"x")
    Store(store.folder).start()
    assert {p.name for p in (tmp_path / "run").iterdir()} == {newest.name, ".somebody.abcd1234"}


# ---------------------------------------------------------------- an older card


def test_an_older_card_is_noticed_until_the_device_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("RUNTIME_DIRECTORY", f"{tmp_path / 'run'}:/elsewhere")

    def release() -> tuple[int, int]:  # another process of the same service
        return Store(store.folder).start().slot.release

    Store(store.folder).put(OLD, release=(1, 1))
    assert release() == (1, 1)
    shutil.copytree(store.folder, tmp_path / "old card")
    Store(store.folder).put(NEW, release=(1, 2))
    assert release() == (1, 2)
    shutil.move(store.folder, tmp_path / "new card")
    shutil.copytree(tmp_path / "old card", store.folder)
    for work in (release, lambda: Store(store.folder).put(NEXT, release=(2, 1))):
        with pytest.raises(StoreError, match=r"has release 1\.1, and has had 1\.2 since this device was switched on"):
            work()
    (seen,) = (tmp_path / "run").iterdir()
    seen.write_bytes(b"x y")  # what cannot be read is as none
    assert release() == (1, 1)
    seen.write_bytes(b"1 2")
    shutil.rmtree(store.folder)
    shutil.move(tmp_path / "new card", store.folder)
    assert release() == (1, 2)
    shutil.rmtree(tmp_path / "run")  # switched off and on, with no such folder
    shutil.rmtree(store.folder)
    shutil.copytree(tmp_path / "old card", store.folder)
    assert release() == (1, 1)


def test_a_process_remembers_what_it_has_seen_by_itself(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.put(OLD, release=(1, 1))
    shutil.copytree(store.folder, tmp_path / "old card")
    store.put(NEW, release=(1, 2))
    shutil.rmtree(store.folder)
    shutil.copytree(tmp_path / "old card", store.folder)
    with pytest.raises(StoreError, match=r"has release 1\.1, and has had 1\.2"):
        store.apply(started)
    assert Store(store.folder).slots().newest == (1, 1)
