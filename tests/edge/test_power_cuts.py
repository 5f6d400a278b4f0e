# SPDX-License-Identifier: Apache-2.0
"""Wherever the power is cut in a run, the next start shows what is allowed; each flush is there for a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.fleet.store.slots import failed, passed, saw_cloud, stopped, worked
from hardcase_edge.fleet.update.incoming import GROUP
from tests.helpers.cards import CLOUD_INIT, RASPBERRY_PI
from tests.helpers.edge import identity_cuts
from tests.helpers.edge.cut_runs import Cuts, Run
from tests.helpers.edge.identity_cuts import CardRun, IdentityRun, without_openssl
from tests.helpers.edge.outbox_cuts import OutboxRun
from tests.helpers.edge.store_cuts import Step, StoreRun, bundle, random_steps, release
from tests.helpers.edge.update_cuts import Plan, UpdateRun
from tests.helpers.flash_cuts import FolderRun, ImageRun, small_card
from tests.helpers.places import in_memory

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
RUNS: dict[str, tuple[Callable[[], Run], int]] = {  # and how many states it has at least
    "a store": (lambda: StoreRun(STEPS.items()), 1_000),
    "a store whose start is cut, too": (lambda: StoreRun(STEPS.items(), is_deep=True), 4_000),
    "steps in any order": (lambda: StoreRun(random_steps(10, Random(1))), 500),
    "an update": (lambda: UpdateRun(Plan(n_chunks=GROUP + 1)), 1_000),
    "an identity": (IdentityRun, 500),
    "a claim, until there is an identity": (lambda: IdentityRun(identity_cuts.STEPS[:3], "claim"), 200),
    "an identity and a claim for a card": (CardRun, 100),
    "an outbox": (lambda: OutboxRun(Random(1), longest=6, n_cuts=25), 25),
    "a flash to a folder": (lambda: FolderRun(CLOUD_INIT, small_card("one")), 90),
    "a flash to an image": (lambda: ImageRun(RASPBERRY_PI, small_card("one"), rng=Random(1)), 80),
}
LEFT_OUT: dict[str, list[str]] = {
    "a store": [*FLUSHES, *(f"rename .{name} {name}" for name in ("state", "trust", "time", "broken"))],
    "an update": ["sync SHA256", "sync store"],
    "an identity": [
        "sync .key.pem", "sync .ca.pem", "sync .request.der", "sync .cert.pem", "sync .current", "sync number",
        "sync identity",
    ],
    "an outbox": ["sync outbox.sqlite-wal", "sync outbox.sqlite", "sync top"],
    "a flash to a folder": ["sync .card.pyz", "sync hardcase", "sync .user-data"],
    "a flash to an image": ["sync behind write_fat", "sync behind write"],
}  # fmt: skip  # a store's bundle needs no rename: nobody looks at it before its slot is ready
KINDS = {
    "a store whose start is cut, too": {*FLUSHES, *OTHER_CALLS},  # all of them
    "an outbox": {"patch outbox.sqlite-wal", "sync outbox.sqlite-wal", "sync outbox.sqlite", "sync top"},
}


def replay(name: str, left_out: str = "") -> Cuts:
    with in_memory() as folder, without_openssl():
        return Cuts(Path(folder), lambda kind: kind == left_out).replay(RUNS[name][0]())


@pytest.mark.parametrize("name", RUNS)
def test_a_cut_anywhere_leaves_what_is_allowed(name: str) -> None:
    done = replay(name)
    assert (done.wrong, done.n_states >= RUNS[name][1]) == (set(), True), done.n_states
    assert done.kinds >= KINDS.get(name, set())
    assert "start is cut" not in name or done.kinds == KINDS[name], "every flush is left out below"


@pytest.mark.parametrize(("name", "call"), [(name, call) for name, calls in LEFT_OUT.items() for call in calls])
def test_without_one_flush_or_rename_a_cut_is_found(name: str, call: str) -> None:
    assert replay(name, call).wrong
