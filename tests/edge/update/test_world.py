# SPDX-License-Identifier: Apache-2.0
"""Random lives of a device that is updated, in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hardcase_edge.fleet.store import trust
from hardcase_edge.fleet.store.metadata import parse
from hardcase_edge.fleet.store.run import Run
from hardcase_edge.fleet.store.slots import is_known
from hardcase_edge.fleet.update import updater
from hardcase_edge.fleet.update.transfer import Transfer
from hardcase_edge.fleet.update.updater import Authority
from tests.helpers.edge.air_world import live, world
from tests.helpers.edge.store_lives import CUT
from tests.helpers.places import in_memory

LIVES, STEPS = 6, 1_000


@pytest.fixture
def root() -> Iterator[Path]:
    with world(), in_memory() as folder:
        yield Path(folder)


def test_one_slot_runs_versions_never_fall_and_the_report_is_what_runs_whatever_happens(root: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(LIVES):
        seen += live(root, seed, STEPS).seen
    for what in ("worked", "taken over the air", "rolled back", CUT, "replay", "rotation", "full disk"):
        assert seen[what] > 0, (what, seen)


def takes_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """An offer is allowed by the metadata that it brings, whatever the store has had."""

    def authorised(offer, slots, data, *, has_key, now):
        if is_known(slots, offer.sha256.hex()):
            return Authority(is_known=True)
        known = trust.trust_from(data)
        roots = [root for root in offer.roots if parse(root, "root").version > known.root.version]
        newer = trust.updated(trust.Trust(known.root), roots, offer.timestamp, offer.snapshot, offer.targets, now=now)
        return Authority(trust.release_for(newer, offer.size, offer.sha256.hex(), now=now), newer)

    monkeypatch.setattr(updater, "authorised", authorised)


def says_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state that is reported is the one that is hoped for."""
    facts = Run.facts
    monkeypatch.setattr(Run, "facts", lambda self: {"store": {**facts(self)["store"], "state": "good"}})


def writes_nothing_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device reports what it has not written."""
    monkeypatch.setattr(Run, "_apply", lambda self, change: change(self._store.slots()))


def forgets_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new connection asks for nothing again."""
    monkeypatch.setattr(Transfer, "_ask_again", lambda self: None)


@pytest.mark.parametrize(
    ("breaks", "seed"),
    [(takes_older, 1), (says_what_is_installed, 0), (writes_nothing_down, 0), (forgets_what_was_asked, 20)],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_a_device_that_is_wrong_would_be_found(
    breaks: Callable[[pytest.MonkeyPatch], None], seed: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(root / "sound", seed, STEPS)
    breaks(monkeypatch)
    with pytest.raises(AssertionError):
        _ = [live(root, k, STEPS) for k in range(seed, seed + 10)]
