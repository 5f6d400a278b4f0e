# SPDX-License-Identifier: Apache-2.0
"""A bundle that has worked is not lost: random lives from an empty folder, and each pair of slots by itself."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.cli import main
from hardcase_edge.errors import NoBundleError, StoreError
from hardcase_edge.fleet.store import slots
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.run import Run
from hardcase_edge.fleet.store.show import describe
from hardcase_edge.fleet.store.trial import Rules
from tests.helpers.edge.store_lives import CUT, EVENTS, WORSE, Event, live, random_events, world, worse
from tests.helpers.places import in_memory

LIVES = 40


def lives(seeds: range) -> tuple[list[str], Counter[str]]:
    """What was wrong in these lives, and what happened; the first wrong one ends them."""
    wrong: list[str] = []
    seen: Counter[str] = Counter()
    with world(), in_memory() as root:
        for seed in seeds:
            life = live(Path(root), random_events(seed))
            seen += life.seen
            if life.wrong:
                return life.wrong, seen
    return wrong, seen


def test_a_bundle_that_has_worked_is_never_lost() -> None:
    wrong, seen = lives(range(LIVES))
    assert wrong == []
    for what in ("worked", "rolled back", "no bundle", "taken over the air", CUT):
        assert seen[what] > 2, (what, seen)


PASSED_ON_A_FULL_DISK, CUT_BEHIND_ITS_PASS = 9813, 8644


@pytest.mark.parametrize("seed", [PASSED_ON_A_FULL_DISK, CUT_BEHIND_ITS_PASS])
def test_a_pass_that_could_not_be_written_is_written_later(seed: int) -> None:
    assert lives(range(seed, seed + 1))[0] == []


events = st.lists(st.tuples(st.sampled_from(sorted(set(EVENTS))), st.integers(0, 1_999)), max_size=25)


@settings(
    max_examples=40, database=None, deadline=None, phases=[Phase.generate], derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
@given(events)
def test_no_sequence_of_events_loses_it(life: list[Event]) -> None:
    with world(), in_memory() as root:
        assert live(Path(root), life).wrong == []


@pytest.mark.parametrize(("name", "seed"), [("started", 0), ("failed", 170), ("worked", 0)], ids=list(WORSE))
def test_a_store_that_loses_it_would_be_found(name: str, seed: int) -> None:
    with worse(name):
        assert lives(range(seed, seed + 100))[0]


# ---------------------------------------------------------------- each pair of slots

A, B, NEW = ("aa" * 32, "bb" * 32, "cc" * 32)


def pairs() -> dict[str, slots.Slots]:
    """Every pair of slots that can stand, without a good slot that is current."""
    kinds = {
        "nothing": slots.EMPTY,
        "bad": slots.Slot("bad", A, reason="x"),
        "loading": slots.Slot("loading", A),
        "new": slots.Slot("ready", A),
        "trial": slots.Slot("trial", A, starts=1),
        "trial, worked": slots.Slot("trial", A, worked=1),
        "behind": slots.Slot("ready", A, starts=1),
        "behind, worked": slots.Slot("ready", A, starts=1, worked=2),
    }
    made = {}
    for (x, a), (y, b) in product(kinds.items(), repeat=2):
        once = {"trial", "trial, worked"}, {"behind", "behind, worked"}, {"new"}
        if any(x in some and y in some for some in once):
            continue
        other = slots.EMPTY if b is slots.EMPTY else slots.Slot(b.state, B, b.release, b.starts, b.reason, b.worked)
        made[f"{x} and {y}"] = slots.Slots(a, other)
    return made


def has(known: slots.Slots) -> set[str]:
    return {known[n].sha256 for n in ("a", "b") if known[n].has_worked}


@pytest.mark.parametrize("known", pairs().values(), ids=pairs())
def test_no_event_gives_up_the_only_one_that_has_worked(known: slots.Slots) -> None:
    before = has(known)
    after = [slots.received(slots.offered(known, NEW), NEW), slots.offered(known, NEW)]
    for digest in (A, B):
        after += [
            slots.failed(known, digest, "x"), slots.failed(known, digest, "x", is_useless=True),
            slots.passed(known, digest), slots.stopped(known, digest), slots.stopped(known, digest, has_worked=True),
            slots.worked(known, digest),
        ]  # fmt: skip
    for one in after:
        try:
            next_ = slots.started(one)
        except NoBundleError:
            next_ = one
            assert not before
        names = [name for name in (next_.runs, next_.behind, next_.current) if name]
        assert not before or {next_[name].sha256 for name in names} & before
        assert [next_[name].state for name in ("a", "b")].count("trial") <= 1
        assert slots.slots_from(one.to_json()) == one


@pytest.mark.parametrize("known", pairs().values(), ids=pairs())
def test_whatever_stands_there_a_good_one_passes_and_a_broken_one_leaves_the_other(known: slots.Slots) -> None:
    after = slots.started(slots.received(slots.offered(known, NEW), NEW))
    assert (after.runs, after[after.runs].sha256) == (known.idle, NEW)
    good = slots.passed(after, NEW)
    assert (good.current, good.runs, good.ready) == (known.idle, known.idle, "")
    assert slots.started(good) == good
    if other := good.behind:
        assert slots.started(slots.broken(good, good.current)).runs == other


# ---------------------------------------------------------------- starts


def test_three_cuts_fail_a_trial_that_has_not_worked_and_five_one_that_has() -> None:
    good = slots.Slots(slots.Slot("good", A), slots.Slot("ready", B), "a")
    for has_worked, n in ((False, 3), (True, 5)):
        known = slots.started(good)
        if has_worked:
            known = slots.started(slots.stopped(slots.worked(known, B), B, has_worked=True))
        for _ in range(n - 1):
            known = slots.started(known)
            assert known.runs == "b"
        known = slots.started(known)
        assert (known.runs, known.b.state) == ("a", "bad")
        assert known.b.reason == f"{n + has_worked} starts did not end well"


def test_starts_that_made_good_decisions_count_a_third_and_a_bundle_that_always_crashes_later_makes_way() -> None:
    known, n = slots.started(slots.Slots(slots.Slot("good", A), slots.Slot("ready", B), "a")), 0
    while known.runs == "b":
        known, n = slots.started(slots.worked(known, B)), n + 1
    assert n == slots.MOST_WORKED
    assert (known.a.state, known.b.reason) == ("good", f"{n} starts did not end well")


def test_no_number_of_starts_fails_what_nothing_that_worked_stands_behind() -> None:
    for slot in (slots.Slot("ready", A), slots.Slot("trial", A, worked=1)):
        known = slots.Slots(slot)
        for k in range(100):
            known = slots.started(known)
            assert known.a.state == "trial"
            known = slots.worked(known, A) if k % 2 and slot.worked else known
        assert known.a.starts <= 5
        assert known.a.worked <= slots.MOST_WORKED


def test_an_older_release_is_not_taken() -> None:
    known = slots.Slots(slots.Slot("good", A), current="a", newest=(2, 1))
    assert slots.offered(known, B, (2, 1)).b.state == "loading"
    with pytest.raises(StoreError, match=r"has release 1\.9, and the store has had 2\.1"):
        slots.offered(known, B, (1, 9))


def test_a_state_of_before_is_read_and_has_no_bundle_that_has_worked() -> None:
    value = slots.Slots(slots.Slot("trial", A, starts=2)).to_json()
    for name in ("a", "b"):
        del value[name]["worked"]
    assert slots.slots_from(value) == slots.Slots(slots.Slot("trial", A, starts=2))


# ---------------------------------------------------------------- runs


def test_power_cuts_after_good_decisions_leave_an_update_on_trial(tmp_path: Path) -> None:
    store, notes = Store(tmp_path / "store"), list[str]()
    rules = Rules(decisions=2, deadline_s=100)

    def run(promised: float | None = 0.9) -> Run:
        run = Run(store, store.start(), rules, notes.append)
        run.begin(0, has_broker=True, promised=promised)
        for _ in range(3):
            assert run.decided(1, is_connected=True, memory_bytes=lambda: 0, record={"sensors": ["x"], "failed": []})
        return run

    store.put(b"one")
    run(None)
    store.put(b"two")
    for k in range(4):  # each time the power goes
        assert run().started.slot.state == "trial"
        assert (store.slots().b.starts, store.slots().b.worked) == (0, k + 1)
    assert notes == [
        "the bundle in slot a has passed its trial", *["the trial of slot b waits for 30 answers of f0, has 0"] * 4,
    ]  # fmt: skip
    assert run().facts()["store"]["waits_for"] == "30 answers of f0, has 0"


def test_a_store_shows_what_stands_behind_a_trial_and_what_has_worked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "store")
    digests = [sha256(bundle).hex() for bundle in (b"one", b"two")]
    store.put(b"one")
    store.start()
    store.apply(lambda known: slots.worked(known, digests[0]))
    assert describe(store)["slot_a"] == f"trial {digests[0]} (has worked)"
    assert main(["store", "show", str(store.folder)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith(("current", "root", "targets"))] == ["-"] * 3
    store.put(b"two")
    store.start()
    shown = describe(store)
    assert (shown["runs"], shown["slot_a"], shown["slot_b"]) == (
        "b", f"behind {digests[0]} (has worked)", f"trial {digests[1]}",
    )  # fmt: skip
