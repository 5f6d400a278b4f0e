# SPDX-License-Identifier: Apache-2.0
"""One run of a store's slot: a trial is watched until it passes or fails, and what is reported is what runs.

The state is on the disk before anything is reported, and nothing that happens to a report changes the state. A state
that cannot be written, as on a full disk, leaves a trial a trial: the device goes on deciding.

A bundle that has worked is noted as soon as it has, because what its trial still waits for may take half an hour. What
the trial waits for, and each way back, is one line for a user.

A good bundle's run notes which sensors are broken, and a trial of the next one compares: only what the good bundle's
decisions have shown is noted, so no start of a trial excuses what the next one finds.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...base.clock import RELEASED, Clock, risen
from ...bundle.agreement import Agreement
from ...errors import HardcaseError
from .first_boot import read_report
from .slots import failed, is_on_trial, passed, saw_cloud, stopped, worked
from .trial import PASSED, Rules, SensorHealth, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from .folder import Started, Store
    from .slots import Slot, Slots

EVERY_S = 600.0  # between two notes of broken sensors, because cards wear out
_OTHER = {"a": "b", "b": "a"}
_REFUSED = "refused"  # the route of an item that was not decided (``device.joint``)


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
        Whether the trial has failed, and something else is to run.
    is_trial : bool
        Whether a trial is under way.
    deadline_s : float
        Seconds after ``begin`` at which a trial has failed.
    is_late : bool
        Whether somebody has noticed that, and ends the run for it; if the trial cannot fail, it begins again.
    is_told : bool
        Whether the device was told to end, so that nothing is to run after this.
    """

    def __init__(self, store: Store, started: Started, rules: Rules, note: Callable[[str], None]) -> None:
        self.started = started
        self.has_failed = False
        self.is_trial = started.slot.state == "trial"
        self._hours = Hours(store)
        self._store, self._rules, self._note = store, rules, note
        self._state = started.slot.state
        slots = store.slots()
        self._has_seen_cloud = slots.has_seen_cloud
        other = slots[_OTHER[started.name]]
        self._failed = failure_of(other)
        self._has_worked = self._has_told_rule = self._has_news = False  # in this start
        self._has_passed = False  # which is written again with each decision, while the disk is full
        self._told: set[str] = set()  # causes for which the trial waits
        self._trouble = ""  # with the disk, as it was told last
        self.is_late = self.is_told = False
        self.deadline_s = rules.deadline_s
        self._trial: Trial | None = None
        self._agreement: Agreement | None = None
        self._first_boot = read_report(store.folder)
        self._before = slots[slots.current].sha256 if slots.current else None  # the bundle that runs if this one fails
        self._noted = frozenset[str]() if self.is_trial else store.noted_broken(started.slot.sha256)
        self._sensors = SensorHealth(self._noted)
        self._next_note = float("-inf")
        for line in started.notes:
            note(line)

    def clock(self) -> Clock:
        """The clock of a device with this store."""
        return clock_or_noted(self._store)

    def begin(
        self,
        now: float,
        *,
        has_broker: bool,
        promised: float | None = None,
        inner: Collection[str] = (),
        unserved: Callable[[], tuple[int, str]] = lambda: (0, ""),
    ) -> None:
        """The first decision is about to be made.

        Parameters
        ----------
        now : seconds of a clock that only rises
        has_broker : whether there is somebody to ask
        promised : share of its local answers with which f0 agrees, as the bundle promises; None if it does not
        inner : the sensors that the device fills itself
        unserved : as for ``Trial``
        """
        self._sensors = SensorHealth(self._noted, inner)
        if not self.is_trial:
            return
        needs_cloud = has_broker and self._has_seen_cloud
        self._agreement = Agreement(promised) if has_broker and promised is not None else None
        self._trial = Trial(
            self._rules, now, needs_cloud=needs_cloud, agreement=self._agreement, sensors=self._sensors,
            broken_before=None if self._before is None else self._store.noted_broken(self._before),
            unserved=unserved,
        )  # fmt: skip

    @property
    def wants_audit(self) -> bool:
        """Whether f0 is to be asked about local decisions."""
        return self.is_trial and self._trial is not None and self._trial.wants_audit

    def audited(self, agrees: bool) -> None:
        """F0 has answered what the device had answered alone; the next decision judges by it."""
        if self._agreement is not None:
            self._agreement.audited(agrees)

    def decided(
        self, now: float, *, is_connected: bool, memory_bytes: Callable[[], int],
        record: Mapping[str, Any] | None = None,
    ) -> bool:  # fmt: skip
        """A decision was made; returns whether to make more of them with this bundle.

        ``record``: the decision's; that of an item which was refused says nothing about the bundle.
        """
        is_refused = record is not None and record.get("route") == _REFUSED
        if not is_refused:
            self._sensors.decided(record or {})
        try:
            self._hours.passed(now, time.time())
        except HardcaseError as error:
            self._note(f"{error}; decisions go on")
        if is_connected and not self._has_seen_cloud:
            self._has_seen_cloud = True
            self._apply(saw_cloud)
        if self.is_trial and self._trial is not None:
            if is_refused:
                return self.waited(now)
            verdict = self._trial.decided(now, is_connected=is_connected, memory_bytes=memory_bytes())
            self._judge(verdict, is_useless=self._trial.is_useless)
            if self.is_trial:
                self._goes_on(self._trial)
        if now >= self._next_note and self._note_broken():
            self._next_note = now + EVERY_S
        return not self.has_failed

    def take_news(self) -> bool:
        """Whether the trial has passed or begun to wait for something since this was asked last."""
        has_news, self._has_news = self._has_news, False
        return has_news

    def waited(self, now: float) -> bool:
        """As ``decided``, when no decision was made by a trial's deadline."""
        if self.is_trial and self._trial is not None:
            self._judge(self._trial.waited(now), is_useless=self._trial.is_useless)
        return not self.has_failed

    def fail(self, reason: str, *, is_useless: bool = False) -> None:
        """The bundle cannot be used here; a trial goes on if the device would lose by its end (``slots.failed``).

        ``is_useless``: whether the bundle can decide nothing here at all.
        """
        if not self.is_trial:
            return
        sha256, name = self.started.slot.sha256, self.started.name
        slots = self._apply(lambda slots: failed(slots, sha256, reason, is_useless=is_useless))
        if slots is None:
            return
        next_ = slots.ready or slots.runs
        if not is_on_trial(slots, sha256) and not (next_ and slots[next_].sha256 == sha256):
            # it has failed, or a newer bundle has taken its place; a start that could not be written is neither
            self.is_trial, self.has_failed = False, True
            then = f"slot {next_} runs again" if next_ else "the store has no other bundle"
            self._note(f"the trial of slot {name} has failed: {reason}; {then}")
        elif not self._has_told_rule:
            self._has_told_rule = True
            self._note(
                f"slot {name} goes on, because no other bundle has worked here; its trial does not pass: {reason}"
            )

    def tell(self, *_: object) -> None:
        """The device is told to end; for signal handlers."""
        self.is_told = True

    def stop(self) -> None:
        """The run ends, and not by a fault of the bundle."""
        self._note_broken()
        if self.is_trial:
            self.is_trial = False  # its deadline is nobody's any more
            self._apply(lambda slots: stopped(slots, self.started.slot.sha256, has_worked=self._has_worked))

    def facts(self) -> dict[str, Any]:
        """What runs, what was tried and failed, and what the first boot of a flashed card did, for the status."""
        slot = self.started.slot
        store: dict[str, Any] = {"slot": self.started.name, "state": self._state, "release": _dotted(slot)}
        store |= {"sha256": slot.sha256, "runtime": __version__}
        if self._agreement is not None:
            a = self._agreement
            store["agreement"] = {"agreed": a.agreed, "differed": a.differed, "promised": a.promised}
        if self.is_trial and self.waits_for:
            store["waits_for"] = self.waits_for
        facts = {"store": {**store, "failed": self._failed} if self._failed else store}
        return {**facts, "first_boot": self._first_boot} if self._first_boot else facts

    @property
    def waits_for(self) -> str:
        """What the trial waits for, in words; "" if for nothing but its decisions."""
        return "" if self._trial is None else " and ".join(self._trial.waits_for.values())

    def _goes_on(self, trial: Trial) -> None:
        """The trial has neither passed nor failed with the last decision."""
        if trial.has_worked and not self._has_worked:  # again with each decision, while the disk is full
            sha256 = self.started.slot.sha256
            self._has_worked = self._apply(lambda slots: worked(slots, sha256)) is not None
        if not self._told.issuperset(trial.waits_for):
            self._told.update(trial.waits_for)
            self._has_news = True
            self._note(f"the trial of slot {self.started.name} waits for {self.waits_for}")

    def _judge(self, verdict: str, *, is_useless: bool = False) -> None:
        self._has_passed |= verdict == PASSED
        if self._has_passed:
            sha256, name = self.started.slot.sha256, self.started.name
            slots = self._apply(lambda slots: passed(slots, sha256))
            self.is_trial, self._has_news = slots is None, slots is not None
            if slots is not None and slots.current == name and slots[name].sha256 == sha256:  # no newer one came
                self._state = "good"
                self._note(f"the bundle in slot {name} has passed its trial")
        elif verdict:
            self.fail(verdict, is_useless=is_useless)

    def _note_broken(self) -> bool:
        """Note the broken sensors of a good bundle, if they are others than were noted; returns whether it tried."""
        broken = frozenset(self._sensors.broken)
        if self._state != "good" or broken == self._noted:
            return False
        try:
            self._store.note_broken(self.started.slot.sha256, broken)
            self._noted = broken
        except HardcaseError as error:
            self._note(f"{error}; decisions go on")
        return True

    def _apply(self, change: Callable[[Slots], Slots]) -> Slots | None:
        try:
            slots, trouble = self._store.apply(change), ""
        except HardcaseError as error:
            slots, trouble = None, str(error)
        if trouble and trouble != self._trouble:
            self._note(f"{trouble}; decisions go on")
        self._trouble = trouble
        return slots


def clock_or_noted(store: Store) -> Clock:
    """The clock of a device with this store, without the signed time if the trust is damaged."""
    try:
        return clock_of(store)
    except HardcaseError:
        return Clock(store.noted_time())


def failure_of(slot: Slot) -> dict[str, str | None] | None:
    """What the status says of a bundle that failed; None if this one has not."""
    is_bad = slot.state == "bad"
    return {"sha256": slot.sha256, "release": _dotted(slot), "reason": slot.reason} if is_bad else None


def _dotted(slot: Slot) -> str | None:
    return ".".join(map(str, slot.release)) if slot.release > (0, 0) else None


# The time that a store has noted, for a device without a clock: written at most hourly, and it never falls.


if TYPE_CHECKING:
    from .folder import Store

HOUR_S = 3_600.0


def clock_of(store: Store) -> Clock:
    """The clock of a device with this store: its floor is the newest of the noted time and the newest signed one."""
    return Clock(max(store.noted_time(), signed_time_in(store.trust())))


def signed_time_in(data: bytes | None) -> int:
    """The newest signed time in a trust file, whose signatures are not checked for it; 0 if there is none."""
    try:
        return int(json.loads(data or b"{}").get("floor", 0))
    except (AttributeError, TypeError, ValueError, OverflowError, RecursionError):
        return 0


class Hours:
    """Notes the time in a store, after each hour that a process has counted.

    What is noted has the signed time left out, so that new keys end the times of a thief, too.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._since: float | None = None

    def passed(self, now: float, wall: float) -> None:
        """Some time has passed: ``now`` is seconds of a clock that only rises, ``wall`` those of the device's clock.

        Raises
        ------
        HardcaseError
            The time cannot be noted; the next attempt comes after another hour.
        """
        if self._since is None:
            self._since = now
        counted_s = now - self._since
        if counted_s >= HOUR_S:
            self._since = now
            self._store.note_time(risen(max(self._store.noted_time(), RELEASED), counted_s, wall))
