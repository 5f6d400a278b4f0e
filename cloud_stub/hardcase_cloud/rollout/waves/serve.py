# SPDX-License-Identifier: Apache-2.0
"""Serves a roll-out: its machine between a campaign at a broker, which offers and observes, and a store.

The store has everything that must survive: this process may end at any time, and another one goes on. While the store
cannot be used nothing is released, no device's time runs out, and nothing is lost that devices have not retained.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from hardcase_edge.errors import InputError

from ...keep.records.dialects import Row, keep_storable
from ...keep.records.rollouts import RolloutRow, Rollouts
from ..updates.campaign import Campaign
from .machine import SUPERSEDED, Rollout

STEP_S = 0.5  # how often the machine is asked what to do
GAP_S = 60.0  # a step that is so late shows that this machine has slept, or its clock was set: nobody served meanwhile


class Serving:
    """One roll-out, from the store and back.

    Parameters
    ----------
    rollouts : of the store
    row : the roll-out
    campaign : of the same bundle and devices
    shipped : level of the bundle's prices at which it promises agreement; None: it has no prices
    on_change : called with a line when the roll-out's own state changes
    now : wall time in seconds
    is_up : whether there is a connection to the devices' broker

    Attributes
    ----------
    rollout : Rollout
        The machine.
    f0 : str
        What is wrong with the workers of the bundle's f0, in words; its owner sets it, and the store keeps it.
    dropped : int
        Changes of devices that the store can never keep.
    """

    def __init__(
        self,
        rollouts: Rollouts,
        row: RolloutRow,
        campaign: Campaign,
        *,
        on_change: Callable[[str], None],
        now: Callable[[], float] = time.time,
        shipped: int | None = None,
        is_up: Callable[[], bool] = lambda: True,
    ) -> None:
        self._rollouts, self._row, self._now, self._on_change = rollouts, row, now, on_change
        self._shipped = shipped
        self.campaign = campaign
        machine, began = json.loads(row.machine), now()
        self.rollout = Rollout.restored(machine, rollouts.instances(row.id))
        self._is_up = is_up
        self._idle_since: float | None = row.served or None  # since when no device has been served; None: they are
        campaign.may_have = self._may_have
        self._next_at = 0.0
        self._cost_after: float = machine.get("cost_after", began)  # what came while nobody served counts, too
        self._label_after: Row = tuple(machine.get("label_after", (began, "", 0, 0)))
        self._said = (self.rollout.state, -1)
        self._unsaved: dict[str, tuple[str, float, str]] = {}
        self.trouble = ""  # why the store cannot be used now
        self.dropped = 0
        self.f0 = ""
        if row.wish:  # noted while nobody served, when devices may have gone on to another roll-out
            self._obey(row.wish, now())

    def step(self) -> bool:
        """Observe, decide and keep, a few times a second; returns whether the roll-out is over, and kept so."""
        now = self._now()
        if 0 <= self._next_at - now <= STEP_S:
            return False
        if self._idle_since is None and self._next_at and now > self._next_at + GAP_S:
            self._idle_since = self._next_at
        self._next_at = now + STEP_S
        it, is_serving = self.rollout, self._is_serving(now)
        for device, (state, reason) in self.campaign.states().items():
            it.presence(device, self.campaign.is_online(device))
            if self.campaign.has_facts(device):  # else it has not said that it runs another bundle, only nothing yet
                it.observe(now, device, state, reason)
        try:
            self._judge(now)
            if is_serving:
                it.tick(now)
            if wish := self._save(now):
                self._obey(wish, now)
                self._save(now, wish)
        except InputError as error:
            self.trouble = str(error)
            self._say()
            return False
        self.trouble = ""
        self._say()
        return it.is_over

    # ------------------------------------------------------------ parts

    def _may_have(self, device: str) -> bool:
        return not self.trouble and self.rollout.may_have(device)

    def _is_serving(self, now: float) -> bool:
        """Whether devices are served; the time in which they were not counts against none of them."""
        is_serving = self._is_up() and not self.trouble
        if self._idle_since is None:
            self._idle_since = None if is_serving else now
        elif is_serving:
            self.rollout.excuse(now - self._idle_since)
            self._idle_since = None
        return is_serving

    def _judge(self, now: float) -> None:
        """Tell the machine of audits and costs that have come since the last time."""
        it = self.rollout
        criteria = it.quality.criteria
        if "agreement" in criteria:
            before: Row = ()
            while before != self._label_after:  # all of them: the time for them may be over
                before = self._label_after
                audits, self._label_after = self._rollouts.audits_since(it.target, before, now, self._shipped)
                for device, agrees in audits:
                    it.audited(device, agrees)
        if "cost" in criteria:
            costs, self._cost_after = self._rollouts.costs_since(it.target, self._cost_after, now)
            for device, cost in costs:
                it.spent(device, cost)

    def _save(self, now: float, done: str = "") -> str:
        changes = {d: (i.state, i.since, i.reason) for d, i in self.rollout.take_changes().items()}
        self._unsaved |= changes
        wishes: list[str] = []

        def save(some: Sequence[tuple[str, tuple[str, float, str]]]) -> None:
            after = {"cost_after": self._cost_after, "label_after": self._label_after}
            machine = {**self.rollout.to_json(), **after, "f0": self.f0}
            wishes.append(self._rollouts.save(self._row.id, machine, dict(some), now, done))

        if n := keep_storable(list(self._unsaved.items()), save):
            self.dropped += n
            save([])
        self._unsaved.clear()
        return next((wish for wish in reversed(wishes) if wish), "")

    def _obey(self, wish: str, now: float) -> None:
        it = self.rollout
        if wish == "pause":
            it.pause()
        elif wish == "resume":
            it.resume()
        elif wish == "supersede":
            it.stop(now, "another roll-out has its devices", SUPERSEDED)
        else:
            it.stop(now)

    def _say(self) -> None:
        state = (self.trouble or self.rollout.state, self.rollout.n_released)
        if state != self._said:
            self._said = state
            self._on_change(self.trouble or summary(self.rollout))


def summary(rollout: Rollout) -> str:
    """How a roll-out stands, in one line."""
    counts = ", ".join(f"{n} {state}" for state, n in rollout.counts.items() if n)
    why = f" ({rollout.reason})" if rollout.reason else ""
    return f"{rollout.state}{why}: {counts}; {rollout.quality.words()}"


def facts_of_bundle(loaded: Any) -> dict[str, Any]:
    """What a store keeps of a bundle's manifest: a page shows it, and f0's answers are read by it.

    ``agreement`` is the share of audits in which device and f0 agree at least, as the bundle promises; None if it
    promises none, or if f0's answers cannot be compared with its own.
    """
    from hardcase_edge.bundle.agreement import promised_share
    from hardcase_edge.program.cost import to_unit

    manifest = loaded.manifest
    promise = manifest.claims.get("promise")
    can_compare = manifest.hpc and manifest.classes  # cloud label has classes alone
    return {
        "unit": manifest.unit, "classes": list(manifest.classes), "hpc": manifest.hpc, "target": manifest.target,
        "cost_limit": to_unit(loaded.report.worst_cost), "promise": promise if isinstance(promise, dict) else None,
        "agreement": promised_share(manifest.claims) if can_compare else None,
    }  # fmt: skip
