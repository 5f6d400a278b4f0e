# SPDX-License-Identifier: Apache-2.0
"""Wherever the power is cut, the store starts, runs what it ran or what it acknowledged, and takes the next bundle."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.store.slots import failed, passed, saw_cloud, stopped, worked
from tests.helpers.edge.store_cuts import MEMORY, Cuts, Step, bundle, random_steps, release

B = [bundle(k) for k in range(6)]
SHA = [sha256(b).hex() for b in B]
STEPS: dict[str, Step] = {
    "the first bundle": lambda s: s.put(B[0]),
    "its trial begins": lambda s: s.start(),
    "it works": lambda s: s.apply(lambda slots: worked(slots, SHA[0])),
    "a second one": lambda s: s.put(B[5]),
    "its trial begins, with the first behind it": lambda s: s.start(),
    "the second fails": lambda s: s.apply(lambda slots: failed(slots, SHA[5], "no sensor")),
    "the first goes on": lambda s: s.start(),
    "it passes": lambda s: s.apply(lambda slots: passed(slots, SHA[0])),
    "a bundle and the first trust": lambda s: s.put(B[1], b"s" * 64, (1, 1), b"trust 1"),
    "it is tried": lambda s: s.start(),
    "it stops": lambda s: s.apply(lambda slots: stopped(slots, SHA[1])),
    "it fails": lambda s: s.apply(lambda slots: failed(slots, SHA[1], "memory")),
    "a bundle that comes to stay": lambda s: s.put(B[2], b"", (1, 2), b"trust 2"),
    "it starts": lambda s: s.start(),
    "it stays": lambda s: s.apply(lambda slots: passed(slots, SHA[2])),
    "the cloud": lambda s: s.apply(saw_cloud),
    "a bundle that nobody starts": lambda s: s.put(B[3], b"s" * 64, (1, 2)),
    "a release in its place": lambda s: s.put(release(4, b"t" * 64), b"", (2, 1), b"trust 3"),
    "first start": lambda s: s.start(),
    "second start": lambda s: s.start(),
    "third start": lambda s: s.start(),
    "start of the old one": lambda s: s.start(),
    "a release instead of it": lambda s: s.put(release(5, b""), b"", (2, 2)),
    "rotation": lambda s: s.write_trust(b"trust 4"),
    "an hour": lambda s: s.note_time(1_800_000_000),
    "another hour": lambda s: s.note_time(1_800_003_600),
    "a sensor breaks": lambda s: s.note_broken(SHA[2], {"x"}),
    "another one breaks": lambda s: s.note_broken(SHA[2], {"x", "y"}),
}


FLUSHES = [
    "sync .state", "sync .trust", "sync .time", "sync .broken", "sync slot/.bundle.hcb", "sync slot/.bundle.hcb.sig",
    "sync slot/.release.hcr", "sync slot/.parts", "sync top", "sync store", "sync slot",
]  # fmt: skip
NAMES = ("state", "trust", "time", "broken", "slot/bundle.hcb", "slot/bundle.hcb.sig", "slot/release.hcr", "slot/parts")
UNLINKED = ("bundle.hcb.sig", "release.hcr", "parts")
OTHER_CALLS = (
    {"mkdir store", "mkdir slot", "create lock"}
    | {f"unlink slot/{name}" for name in UNLINKED}
    | {
        call
        for name in NAMES
        for temporary in (f"slot/.{name[5:]}" if "/" in name else f".{name}",)
        for call in (f"create {temporary}", f"write {temporary}", f"rename {temporary} {name}", f"unlink {temporary}")
    }
)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one; a disk would spend the time on states that nobody keeps."""
    with tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else tmp_path) as folder:
        yield Path(folder)


def test_a_cut_anywhere_leaves_a_store_that_runs_and_loses_nothing_acknowledged(memory: Path) -> None:
    done = Cuts(memory).run(STEPS.items(), is_deep=True)
    assert done.wrong == set()
    assert done.n_states > 2_400
    assert done.kinds == {*FLUSHES, *OTHER_CALLS}, "every flush is left out below"


def test_steps_in_any_order_are_as_good(memory: Path) -> None:
    done = Cuts(memory).run(random_steps(10, seed=1))
    assert done.wrong == set()
    assert done.n_states > 500


@pytest.mark.parametrize("flush", FLUSHES)
def test_without_one_kind_of_flush_a_cut_is_found(memory: Path, flush: str) -> None:
    assert Cuts(memory, lambda kind: kind == flush).run(STEPS.items(), until_wrong=True).wrong


@pytest.mark.parametrize(
    "name", ["state", "trust", "time", "broken"]
)  # a bundle is not looked at before its slot is ready
def test_without_the_rename_a_cut_is_found(memory: Path, name: str) -> None:
    assert Cuts(memory, lambda kind: kind == f"rename .{name} {name}").run(STEPS.items(), until_wrong=True).wrong
