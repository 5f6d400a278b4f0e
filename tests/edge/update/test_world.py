# SPDX-License-Identifier: Apache-2.0
"""Random lives of a device that is updated, in virtual time; ``benchmarks/air.py`` lives longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from hardcase_edge.store import trust
from hardcase_edge.store.run import Run
from hardcase_edge.update import updater
from hardcase_edge.update.authority import Authority
from hardcase_edge.update.transfer import Transfer
from tests.helpers.edge.air_world import live, world

LIVES, STEPS = 7, 1_000


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    with world():
        yield


def test_one_slot_runs_versions_never_fall_and_the_report_is_what_runs_whatever_happens() -> None:
    events: Counter[str] = Counter()
    for seed in range(LIVES):
        events += live(seed, STEPS).events
    for what in ("passed", "switched", "rolled back", "crash", "power cut at a write", "replay", "rotation"):
        assert events[what] > 0, (what, events)


def until_wrong() -> None:
    """Live until something is wrong."""
    for seed in range(60):
        live(seed, STEPS)


def takes_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """An offer is allowed by whatever metadata it brings."""

    def authorised(offer, slots, data, *, has_key, now):
        rolled = trust.trust_from(data)
        return Authority((0, 0), trust.Trust(rolled.root)) if offer.roots else None

    monkeypatch.setattr(updater, "authorised", authorised)


def says_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state that is reported is the one that is hoped for."""
    facts = Run.facts
    monkeypatch.setattr(Run, "facts", lambda self: {"store": {**facts(self)["store"], "state": "good"}})


def forgets_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new connection asks for nothing again."""
    monkeypatch.setattr(Transfer, "_ask_again", lambda self: None)


def takes_any_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk is written unseen, and the whole as well."""
    monkeypatch.setattr("hardcase_edge.update.messages.Offer.is_right", lambda self, index, data: True)
    monkeypatch.setattr(updater, "sha256", lambda data: Equal())


class Equal(bytes):
    """Equals everything."""

    def __ne__(self, other: object) -> bool:
        return False


@pytest.mark.parametrize(
    "breaks", [takes_older, says_what_is_installed, forgets_what_was_asked, takes_any_chunk], ids=lambda f: f.__name__
)
def test_a_device_that_is_wrong_would_be_found(
    breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    with pytest.raises(AssertionError):
        until_wrong()
