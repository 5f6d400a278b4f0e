# SPDX-License-Identifier: Apache-2.0
"""Random lives of a store in virtual time: offers, starts, crashes, full disks, lost clouds, slow bundles."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from typing import ClassVar
from unittest.mock import patch

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hardcase_edge.errors import HardcaseError, InputError, StoreError
from hardcase_edge.fleet.store import folder, slots
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.run import Run
from hardcase_edge.fleet.store.slots import MOST_WORKED, NAMES, START
from hardcase_edge.fleet.store.trial import Rules

RULES = Rules(decisions=3, deadline_s=100, memory_bytes=1_000, audits=2)


class Life(RuleBasedStateMachine):
    """One device and its store; ``run`` is what the device runs, None while it is off."""

    ends: ClassVar = Counter[tuple[bool, str]]()  # of ``live``: whether it began as a trial, and the state after it

    @initialize()
    def begin(self) -> None:
        self.root = tempfile.mkdtemp()
        self.store = Store(f"{self.root}/store")
        self.now, self.n_bundles, self.release = 0.0, 0, (0, 0)
        self.run: Run | None = None
        self.is_full = False
        self.patch = patch.object(folder, "_write", self.write)
        self.patch.start()

    def teardown(self) -> None:
        self.patch.stop()
        shutil.rmtree(self.root)

    def write(self, path, data) -> None:
        if self.is_full:
            raise InputError("no space left")
        path.write_bytes(data)

    # ------------------------------------------------------------ what happens

    @rule(step=st.integers(-1, 2))
    def offer(self, step: int) -> None:
        """A new bundle, of a later release or an earlier one."""
        release, newest = (1, max(0, self.release[1] + step)), self.store.slots().newest
        data = str(self.n_bundles).encode()
        self.n_bundles += 1
        try:
            self.store.put(data, b"", release)
        except HardcaseError:
            assert self.is_full or release < newest
            return
        assert release >= newest
        self.release = release

    @rule(n=st.integers(1, 6))
    def cycle(self, n: int) -> None:
        """Power cycles; only the last start stays on."""
        for _ in range(n):
            self.run = None
            before = self.store.slots()
            try:
                started = self.store.start()
            except StoreError:
                whole = [m for m in NAMES if before[m].state in ("ready", "trial", "good")]
                assert not whole
                return
            self.run = Run(self.store, started, RULES, lambda line: None)
            self.run.begin(self.now, has_broker=True, promised=0.9 if self.n_bundles % 3 else None)

    @precondition(lambda self: self.run is not None)
    @rule(
        n=st.integers(1, 4),
        is_connected=st.booleans(),
        memory=st.sampled_from([10, 10, 10, 2_000]),
        seconds=st.sampled_from([1, 1, 60]),
    )
    def decide(self, n: int, is_connected: bool, memory: int, seconds: int) -> None:
        for _ in range(n):
            assert self.run is not None
            self.now += seconds
            if not self.run.decided(self.now, is_connected=is_connected, memory_bytes=lambda: memory):
                self.cycle(1)  # the device runs what it had before, at once
                return

    @precondition(lambda self: self.run is not None)
    @rule(n=st.integers(1, 4), agrees=st.sampled_from([True, True, False]))
    def audit(self, n: int, agrees: bool) -> None:
        """F0 answers some audits."""
        assert self.run is not None
        for _ in range(n):
            self.run.audited(agrees)

    @rule(is_connected=st.booleans(), is_answered=st.booleans())
    def live(self, is_connected: bool, is_answered: bool) -> None:
        """The device starts and decides in peace."""
        self.cycle(1)
        if self.run is not None:
            was_trial = self.run.is_trial
            for _ in range(RULES.decisions):
                if is_answered:
                    self.run.audited(True)
                self.run.decided(self.now, is_connected=is_connected, memory_bytes=lambda: 0)
            Life.ends[was_trial, self.run.facts()["store"]["state"]] += 1

    @precondition(lambda self: self.run is not None)
    @rule(seconds=st.sampled_from([1, 150]))
    def wait(self, seconds: int) -> None:
        assert self.run is not None
        self.now += seconds
        if not self.run.waited(self.now):
            self.cycle(1)

    @precondition(lambda self: self.run is not None)
    @rule()
    def stop(self) -> None:
        assert self.run is not None
        self.run.stop()
        self.run = None

    @rule(is_full=st.booleans())
    def fill(self, is_full: bool) -> None:
        self.is_full = is_full

    # ------------------------------------------------------------ what holds

    @invariant()
    def one_slot_runs(self) -> None:
        """From the first bundle on."""
        known = self.store.slots()
        assert [known[n].state for n in NAMES].count("trial") <= 1
        assert not known.current or known[known.current].state == "good"
        if known.newest > (0, 0):
            states = {known[n].state for n in NAMES}
            assert states & {"ready", "trial", "good"}

    @invariant()
    def versions_never_fall(self) -> None:
        known = self.store.slots()
        assert known.newest >= getattr(self, "_newest", (0, 0))
        self._newest = known.newest

    @invariant()
    def a_good_slot_stays_good(self) -> None:
        """However often it starts: only a newer bundle takes its place."""
        known = self.store.slots()
        before = getattr(self, "_known", known)
        if before.current:
            name = before.current
            assert known[name] == before[name] or known.current != name
            assert known.current
        assert all(START * known[n].starts + known[n].worked <= MOST_WORKED + START for n in NAMES)
        self._known = known

    @invariant()
    def the_report_is_what_runs(self) -> None:
        if self.run is None:
            return
        facts, started = self.run.facts()["store"], self.run.started
        assert facts["slot"] == started.name
        assert facts["state"] in ("trial", "good")
        slot = self.store.slots()[started.name]
        if slot.sha256 == started.slot.sha256:  # no newer bundle is in its place
            assert slot.state == facts["state"] or slot.state == "ready"  # its start could not be written down


SETTINGS = settings(
    max_examples=30,
    stateful_step_count=25,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


UNTIL_WRONG = settings(SETTINGS, max_examples=300)  # ends at the first life that is wrong


def test_whatever_happens_one_slot_runs_and_the_report_says_which() -> None:
    Life.ends.clear()
    run_state_machine_as_test(Life, settings=SETTINGS)
    assert min(Life.ends[True, "good"], Life.ends[False, "good"]) > 3, Life.ends
    assert Life.ends[True, "trial"] > 0, Life.ends  # a full disk, or a cloud that it has to see or that has to answer


def life_with(monkeypatch: pytest.MonkeyPatch, name: str, function) -> None:
    monkeypatch.setattr(slots, name, function)
    monkeypatch.setattr(folder, name, function, raising=False)
    monkeypatch.setattr("hardcase_edge.fleet.store.run." + name, function, raising=False)
    run_state_machine_as_test(Life, settings=UNTIL_WRONG)


def test_a_store_that_takes_older_bundles_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(known, sha256, release=(0, 0)):
        return known.put(known.idle, slots.Slot("loading", sha256, release))

    with pytest.raises(AssertionError):
        life_with(monkeypatch, "offered", offered)


def test_a_trial_that_fails_with_nothing_behind_it_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(known, sha256, reason):
        name = next((n for n in NAMES if known[n].state == "trial"), "")
        return known.put(name, slots._bad(known[name], reason)) if name else known

    with pytest.raises(AssertionError):
        life_with(monkeypatch, "failed", failed)


def test_a_device_that_writes_nothing_down_before_it_reports_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "_apply", lambda self, change: change(self._store.slots()))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Life, settings=UNTIL_WRONG)
