# SPDX-License-Identifier: Apache-2.0
"""A roll-out as a state machine without I/O and without a clock: who may have the bundle now, and when to end.

    observe, presence  what a device says of itself
    audited, spent     what is known of the bundle's quality
    tick               gives the devices that are released now

Devices are released in waves: the canary, then ever more. A wave begins when every device of those before has ended and
the quality is what the plan asks for. A device is good only while it says itself that it runs the bundle, and runs it
for good; every other state ends by a timeout. The order of devices follows from their names and the bundle's digest, so
the canary is a sample that nobody chose.

    waiting -> refused here: other program       (by what it says that it runs, before anything is sent)
    waiting -> offered -> loading -> trial -> good
                  |          |         '-> rolled back
                  |          '-> refused
                  |-> timed out                 (from loading and trial, too)
                  '-> away                      (it is not online; what it does later counts, but nobody waits for it)
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...keep.records.rollouts import OPEN, STATES
from .plan import Plan
from .quality import BROKEN, KEPT, Quality

WAITING, OFFERED, LOADING, TRIAL, GOOD, ROLLED_BACK, REFUSED, OTHER, TIMED_OUT, AWAY = STATES
ON_THE_WAY = (OFFERED, LOADING, TRIAL)
FAILED = (ROLLED_BACK, REFUSED, OTHER, TIMED_OUT)
RUNNING, PAUSED = OPEN
KEEP_S = 600.0  # how often the time in metered hours is written down: as much is lost at a restart at most
MOST_METERED_S = 7 * 86_400.0  # of one device in all: no state lasts for ever, whatever devices say
DONE, INCOMPLETE, ABORTED, STOPPED, SUPERSEDED = "done", "incomplete", "aborted", "stopped", "superseded"


@dataclass(slots=True)
class Instance:
    """One device of a roll-out: its state, since when (seconds, as ``now``), and why where it has failed."""

    state: str = WAITING
    since: float = 0.0
    reason: str = ""
    is_online: bool = False
    is_late: bool = False  # it was away when its wave was over, and no further wave waits for it


class Rollout:
    """One bundle for one group.

    Parameters
    ----------
    plan : Plan
    target : SHA-256 of the bundle, in hex
    devices : the group
    now : seconds of any clock that does not go back while the roll-out runs, wall time for instance

    Attributes
    ----------
    state : str
        ``RUNNING`` or ``PAUSED``, then one of ``DONE`` (every device runs the bundle for good), ``INCOMPLETE`` (every
        device has ended, not all of them good), ``ABORTED``, ``STOPPED``, ``SUPERSEDED``; ``reason`` says why.
    """

    def __init__(self, plan: Plan, target: str, devices: Iterable[str], now: float) -> None:
        self.plan, self.target = plan, target
        self.order: Sequence[str] = sorted(
            set(devices), key=lambda d: hashlib.sha256(f"{target} {d}".encode()).digest()
        )
        self.state, self.reason, self.began, self.ended = RUNNING, "", now, math.nan
        self.quality = Quality(plan)
        self.n_released = 0
        self.counts: Counter[str] = Counter({WAITING: len(self.order)})
        self._instances = {device: Instance(since=now) for device in self.order}
        self._n_open = 0  # devices on the way for which the next wave waits
        self._timeouts: list[tuple[float, str, str, float]] = []  # when, device, its state, and since when
        self._wave_ended: float | None = None  # when the last device of the waves so far ended
        self._changed: set[str] = set()
        self._paused: dict[str, float] = {}  # devices in metered hours, and until when their time has been put off
        self._metered_s: Counter[str] = Counter()  # by how much

    # ------------------------------------------------------------ what is known of devices

    def observe(self, now: float, device: str, state: str, reason: str = "") -> None:
        """What a device's own report says of the bundle: ``campaign.states`` has the words."""
        instance = self._instances.get(device)
        if instance is None or self.is_over:
            return
        word = state.partition(" ")[0] if state.startswith((LOADING, PAUSED)) else state
        is_paused, word = word == PAUSED, LOADING if word == PAUSED else word  # it may not fetch at this hour
        if word in (GOOD, ROLLED_BACK, REFUSED, OTHER) or (word in (LOADING, TRIAL) and instance.state != TIMED_OUT):
            self._enter(now, device, instance, word, reason)
        elif word == "unknown" and instance.state in (TRIAL, GOOD):
            self._enter(now, device, instance, ROLLED_BACK, "it runs another bundle again")
        if is_paused and instance.state == LOADING and instance.is_online:
            self._paused.setdefault(device, now)
        elif device in self._paused:
            self._put_off_metered(now, device, instance)
            del self._paused[device]

    def presence(self, device: str, is_online: bool) -> None:
        """Whether a device is connected."""
        instance = self._instances.get(device)
        if instance is None or self.is_over:
            return
        instance.is_online = is_online

    def audited(self, device: str, agrees: bool) -> None:
        """Device and f0 agree in one audit of a decision that the new bundle has made, or they do not."""
        if self._counts_for_quality(device):
            self.quality.audited(agrees)

    def spent(self, device: str, cost: float) -> None:
        """What one decision of the new bundle cost, in the user's unit."""
        if self._counts_for_quality(device):
            self.quality.spent(cost)

    # ------------------------------------------------------------ what people want

    def pause(self) -> None:
        """Release nobody until ``resume``; devices on their way go on."""
        if self.state == RUNNING:
            self.state = PAUSED

    def resume(self) -> None:
        """Go on after ``pause``."""
        if self.state == PAUSED:
            self.state = RUNNING

    def stop(self, now: float, reason: str = "a person stopped it", outcome: str = STOPPED) -> None:
        """End it; nobody is offered anything more, and ``outcome`` may be ``SUPERSEDED``."""
        if not self.is_over:
            self.state, self.reason, self.ended = outcome, reason, now

    # ------------------------------------------------------------ time

    def tick(self, now: float) -> list[str]:
        """Let timeouts happen, end or go on; returns the devices that may be offered the bundle from now on."""
        if self.is_over:
            return []
        self._let_time_out(now)
        if why := self._reason_to_abort(now):
            self.stop(now, why, ABORTED)
            return []
        released = self._release(now) if self.state == RUNNING else []
        n_ended = sum(self.counts[s] for s in (GOOD, AWAY, *FAILED))
        if n_ended == len(self.order) and self._has_kept_quality:
            is_done = self.counts[GOOD] == n_ended
            self.stop(now, "" if is_done else f"{n_ended - self.counts[GOOD]} devices do not run it",
                      DONE if is_done else INCOMPLETE)  # fmt: skip
        return released

    # ------------------------------------------------------------ how it stands

    @property
    def is_over(self) -> bool:
        """Whether the roll-out has ended, whatever its result."""
        return self.state not in (RUNNING, PAUSED)

    def may_have(self, device: str) -> bool:
        """Whether to offer this device the bundle and send it chunks."""
        instance = self._instances.get(device)
        return instance is not None and not self.is_over and instance.state != WAITING

    def instance(self, device: str) -> Instance | None:
        """A device of the group; do not change it."""
        return self._instances.get(device)

    def take_changes(self) -> dict[str, Instance]:
        """The devices whose state has changed since the last call, for whoever writes them down."""
        changes = {device: self._instances[device] for device in sorted(self._changed)}
        self._changed.clear()
        return changes

    # ------------------------------------------------------------ over a restart

    def to_json(self) -> dict[str, Any]:
        """All but the devices' states, for ``restored``."""
        return {
            "plan": self.plan.to_json(), "target": self.target, "state": self.state, "reason": self.reason,
            "began": self.began, "ended": None if math.isnan(self.ended) else self.ended,
            "n_released": self.n_released, "wave_ended": self._wave_ended, "quality": self.quality.to_json(),
            "late": [d for d, i in self._instances.items() if i.is_late and i.state in ON_THE_WAY],
        }  # fmt: skip

    @classmethod
    def restored(cls, value: Mapping[str, Any], instances: Mapping[str, tuple[str, float, str]]) -> Rollout:
        """The roll-out of an earlier ``to_json``; of each device its state, since when, and the reason."""
        it = cls(Plan.from_json(value["plan"]), value["target"], instances, value["began"])
        it.state, it.reason, it.n_released = value["state"], value["reason"], value["n_released"]
        it.ended = math.nan if value["ended"] is None else value["ended"]
        it._wave_ended = value["wave_ended"]
        it.quality.restore(value["quality"])
        for device in set(value.get("late", ())) & it._instances.keys():
            it._instances[device].is_late = True
        for device, (state, since, reason) in instances.items():
            it._enter(since, device, it._instances[device], state, reason, is_restored=True)
        it._changed.clear()
        return it

    def excuse(self, seconds: float) -> None:
        """Nobody has served the roll-out for so long, which counts against no device on its way."""
        self._paused = {device: since + seconds for device, since in self._paused.items()}
        for device, instance in self._instances.items():
            if instance.state in ON_THE_WAY:
                self._put_off(device, instance, seconds)

    # ------------------------------------------------------------ parts

    def _put_off(self, device: str, instance: Instance, seconds: float) -> None:
        instance.since += max(0.0, seconds)
        self._changed.add(device)
        self._set_timeout(device, instance)

    def _put_off_metered(self, now: float, device: str, instance: Instance) -> None:
        seconds = min(now - self._paused[device], MOST_METERED_S - self._metered_s[device])
        self._paused[device] = now
        if seconds > 0 and instance.state == LOADING:
            self._metered_s[device] += seconds  # type: ignore[assignment]
            self._put_off(device, instance, seconds)

    def _counts_for_quality(self, device: str) -> bool:
        instance = self._instances.get(device)
        return instance is not None and not self.is_over and instance.state in (TRIAL, GOOD)

    def _enter(
        self, now: float, device: str, instance: Instance, state: str, reason: str, *, is_restored: bool = False
    ) -> None:
        if state == instance.state:
            if state == TRIAL and reason[:200] != instance.reason:  # what the trial waits for
                instance.reason = reason[:200]
                self._changed.add(device)
            return
        self.counts[instance.state] -= 1
        self.counts[state] += 1
        was_open, instance.is_late = self._is_open(instance), instance.is_late or state == AWAY
        instance.state, instance.since, instance.reason = state, now, reason[:200]
        self._changed.add(device)
        if state in ON_THE_WAY:
            self._set_timeout(device, instance)
        self._n_open += self._is_open(instance) - was_open
        if not is_restored and self.n_released:
            self._wave_ended = None if self._n_open else now if self._wave_ended is None else self._wave_ended

    def _set_timeout(self, device: str, instance: Instance) -> None:
        plan, state = self.plan, instance.state
        allowed = {OFFERED: plan.offer_s, LOADING: plan.load_s, TRIAL: plan.trial_s}[state]
        heapq.heappush(self._timeouts, (instance.since + allowed, device, state, instance.since))

    @staticmethod
    def _is_open(instance: Instance) -> bool:
        return instance.state in ON_THE_WAY and not instance.is_late

    def _let_time_out(self, now: float) -> None:
        for device, since in self._paused.items():
            if now >= since + KEEP_S:
                self._put_off_metered(now, device, self._instances[device])
        while self._timeouts and self._timeouts[0][0] <= now:
            _, device, state, since = heapq.heappop(self._timeouts)
            instance = self._instances[device]
            if device in self._paused:
                self._put_off_metered(now, device, instance)
            if (instance.state, instance.since) != (state, since):
                continue
            is_away = instance.state == OFFERED and not instance.is_online
            self._enter(now, device, instance, *((AWAY, "") if is_away else (TIMED_OUT, f"it stayed {instance.state}")))

    def _reason_to_abort(self, now: float) -> str:
        n_failed, plan = sum(self.counts[s] for s in FAILED), self.plan
        n_ended = n_failed + self.counts[GOOD]
        if n_ended >= min(plan.abort_after, len(self.order)) and n_failed > plan.abort_above * n_ended:
            other = f", and {n} of them run another program" if (n := self.counts[OTHER]) else ""
            return f"{n_failed} of {n_ended} devices failed, allowed are {plan.abort_above:.1%}{other}"
        if self.quality.verdict == BROKEN:
            return f"the quality is not what was promised: {self.quality.words()}"
        if self._wave_ended is not None and not self._has_kept_quality and now >= self._wave_ended + plan.quality_s:
            return f"the quality is not certain in time: {self.quality.words()}"
        return ""

    @property
    def _has_kept_quality(self) -> bool:
        return self.quality.verdict == KEPT

    def _release(self, now: float) -> list[str]:
        """The next wave, if the last one has ended and stood long enough."""
        if self.n_released:
            is_ready = self._wave_ended is not None and now >= self._wave_ended + self.plan.soak_s
            if not is_ready or not self._has_kept_quality:
                return []
        n = max(self.plan.canary, math.ceil(self.n_released * self.plan.factor))
        wave = [d for d in self.order[self.n_released : n] if self._instances[d].state == WAITING]
        self.n_released = min(n, len(self.order))
        self._wave_ended = None
        for device in wave:
            self._enter(now, device, self._instances[device], OFFERED, "")
        if not wave:
            self._wave_ended = now
        return wave
