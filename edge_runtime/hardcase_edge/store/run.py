# SPDX-License-Identifier: Apache-2.0
"""One run of a store's slot: a trial is watched until it passes or fails, and what is reported is what runs.

The state is on the disk before anything is reported, and nothing that happens to a report changes the state. A state
that cannot be written, as on a full disk, leaves a trial a trial: the device goes on deciding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import HardcaseError
from .first_boot import read_report
from .slots import failed, passed, saw_cloud, stopped
from .trial import PASSED, Rules, Trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from .folder import Started, Store
    from .slots import Slots

__all__ = ["Run"]


class Run:
    """A start of the slot that a store has chosen.

    Parameters
    ----------
    store : Store
    started : Started
        What ``store.start`` gave.
    rules : Rules
        Of a trial.
    note : called with each line that a user should read

    Attributes
    ----------
    has_failed : bool
        Whether the trial has failed, and the current slot is to run instead.
    is_trial : bool
        Whether a trial is under way.
    deadline_s : float
        Seconds after ``begin`` at which a trial has failed.
    is_late : bool
        Whether somebody has noticed that, and ends the run for it.
    is_told : bool
        Whether the device was told to end, so that nothing is to run after this.
    """

    def __init__(self, store: Store, started: Started, rules: Rules, note: Callable[[str], None]) -> None:
        self.started = started
        self.has_failed = False
        self.is_trial = started.slot.state == "trial"
        self._store, self._rules, self._note = store, rules, note
        self._state = started.slot.state
        self._has_seen_cloud = store.slots().has_seen_cloud
        self.is_late = self.is_told = False
        self.deadline_s = rules.deadline_s
        self._trial: Trial | None = None
        self._first_boot = read_report(store.folder)

    def begin(self, now: float, *, has_broker: bool) -> None:
        """The first decision is about to be made; ``now`` is seconds of a clock that only rises."""
        needs_cloud = has_broker and self._has_seen_cloud
        self._trial = Trial(self._rules, now, needs_cloud=needs_cloud) if self.is_trial else None

    def decided(self, now: float, *, is_connected: bool, memory_bytes: Callable[[], int]) -> bool:
        """A decision was made; returns whether to make more of them with this bundle."""
        if is_connected and not self._has_seen_cloud:
            self._has_seen_cloud = True
            self._apply(saw_cloud)
        if self.is_trial and self._trial is not None:
            self._judge(self._trial.decided(now, is_connected=is_connected, memory_bytes=memory_bytes()))
        return not self.has_failed

    def waited(self, now: float) -> bool:
        """As ``decided``, when no decision was made by a trial's deadline."""
        if self.is_trial and self._trial is not None:
            self._judge(self._trial.waited(now))
        return not self.has_failed

    def fail(self, reason: str) -> None:
        """The bundle cannot be used here; a good one runs no worse for it, and a trial with no good one goes on."""
        if not self.is_trial:
            return
        sha256 = self.started.slot.sha256
        slots = self._apply(lambda slots: failed(slots, sha256, reason))
        if slots is not None and slots.current:
            self.is_trial, self.has_failed = False, True
            self._note(f"the trial of slot {self.started.name} has failed: {reason}; slot {slots.runs} runs again")

    def tell(self, *_: object) -> None:
        """The device is told to end; for signal handlers."""
        self.is_told = True

    def stop(self) -> None:
        """The run ends, and not by a fault of the bundle."""
        if self.is_trial:
            self.is_trial = False  # its deadline is nobody's any more
            self._apply(lambda slots: stopped(slots, self.started.slot.sha256))

    def facts(self) -> dict[str, Any]:
        """What runs, and what the first boot of a flashed card did, for the device's status."""
        slot = self.started.slot
        release = ".".join(map(str, slot.release)) if slot.release > (0, 0) else None
        facts = {"store": {"slot": self.started.name, "state": self._state, "release": release}}
        return {**facts, "first_boot": self._first_boot} if self._first_boot else facts

    def _judge(self, verdict: str) -> None:
        if verdict == PASSED:
            self.is_trial = False
            sha256, name = self.started.slot.sha256, self.started.name
            slots = self._apply(lambda slots: passed(slots, sha256))
            if slots is not None and slots.current == name and slots[name].sha256 == sha256:  # no newer one came
                self._state = "good"
                self._note(f"the bundle in slot {name} has passed its trial")
        elif verdict:
            self.fail(verdict)

    def _apply(self, change: Callable[[Slots], Slots]) -> Slots | None:
        try:
            return self._store.apply(change)
        except HardcaseError as error:
            self._note(f"{error}; decisions go on")
            return None
