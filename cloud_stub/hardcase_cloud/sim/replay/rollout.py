# SPDX-License-Identifier: Apache-2.0
"""A roll-out in virtual time: the real roll-out and the real campaign's judgement of what devices report."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.fleet.update.messages import Offer

from ...rollout.updates.campaign import Campaign
from ...rollout.waves.machine import DONE, GOOD, LOADING, OFFERED, WAITING, Rollout
from ..fleet.scenario import Release
from .referee import BrokenRuleError, Referee
from .toy import agrees

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...keep.records.incoming import Incoming
    from .clockwork import Clockwork
    from .device import Device

TICK_MS = 1_000
OFFER_AGAIN_MS = 5_000


class Director:
    """Rolls a bundle out to all devices.

    Parameters
    ----------
    clock, referee, release : of the replay
    names : of the devices
    devices : to see what they run in fact
    offer : sends the offer to a device
    """

    make_rollout: Callable[..., Rollout] = Rollout

    def __init__(
        self, clock: Clockwork, referee: Referee, release: Release, names: Sequence[str], devices: Sequence[Device],
        offer: Callable[[int, bytes], None],
    ) -> None:  # fmt: skip
        self.bundle = f"{release.bundle} bundle".encode()
        self.target = sha256(self.bundle).hex()
        self._kind = release.bundle
        self._clock, self._referee, self._names, self._devices, self._offer = clock, referee, names, devices, offer
        self._numbers = {name: k for k, name in enumerate(names)}
        offered = Offer(size=1, sha256=bytes.fromhex(self.target), chunk_bytes=4096, digests=bytes(8))
        self._campaign = Campaign(b"x", offered, named=frozenset(names))
        self._offer_at: dict[str, int] = {}
        self._plan = release.plan
        self.rollout: Rollout | None = None
        clock.after(round(release.at_s * 1000), self._begin)

    def _begin(self) -> None:
        self.rollout = type(self).make_rollout(self._plan, self.target, self._names, self._clock.seconds)
        for device in self._devices:
            self.rollout.presence(self._names[device.number], device.connection != 0)
        self._tick()

    def _tick(self) -> None:
        rollout, clock = self.rollout, self._clock
        assert rollout is not None
        for name in rollout.tick(clock.seconds):
            self._offer_at[name] = clock.now
        for name, at in list(self._offer_at.items()):
            instance = rollout.instance(name)
            if instance is None or instance.state not in (OFFERED, LOADING) or rollout.is_over:
                del self._offer_at[name]
            elif at <= clock.now:
                self._offer_at[name] = clock.now + OFFER_AGAIN_MS
                self._offer(self._numbers[name], self.bundle)
        self.check()
        if not rollout.is_over:
            clock.after(TICK_MS, self._tick)
        else:
            self._referee.note(f"{clock.now} {rollout.state} {rollout.reason}".encode())

    # ------------------------------------------------------------ what devices say

    def facts(self, device: int, payload: bytes) -> None:
        """A device's retained facts."""
        name = self._names[device]
        self._campaign.facts(name, payload)
        state, reason = self._campaign.state_of(name)
        if self.rollout is not None:
            self.rollout.observe(self._clock.seconds, name, state, reason)
            self._referee.note(f"{self._clock.now} {name} {state}".encode())

    def presence(self, device: int, is_online: bool) -> None:
        """A device is connected, or is not."""
        if self.rollout is not None:
            self.rollout.presence(self._names[device], is_online)

    def stored(self, record: Incoming) -> None:
        """A record is in the store; an audit of the new bundle says something of its quality."""
        if self.rollout is not None and record.kind == "audit" and f'"bundle":"{self.target}"' in record.text:
            fields = json.loads(record.text)
            self.rollout.audited(record.device, agrees(self._kind, fields["readings"]))

    def summary(self) -> dict[str, object]:
        """How it stands: ``touched`` are the devices that were offered the bundle."""
        it = self.rollout
        if it is None:
            return {"state": "not begun"}
        touched = len(it.order) - it.counts[WAITING]
        states = {state: n for state, n in sorted(it.counts.items()) if n}
        return {"state": it.state, "reason": it.reason, "touched": touched, "states": states}

    # ------------------------------------------------------------ what must hold

    def started(self, device: int, bundle: bytes) -> None:
        """A device that has said good runs the bundle after every start."""
        instance = None if self.rollout is None else self.rollout.instance(self._names[device])
        if instance is not None and instance.state == GOOD and bundle != self.bundle:
            raise BrokenRuleError(f"device {device} has said that the new bundle is good, and runs {bundle.decode()}")

    def check(self) -> None:
        """A roll-out that is done has every device on its bundle, and none outlives its timeouts."""
        rollout = self.rollout
        if rollout is None:
            return
        if rollout.state == DONE:
            for device in self._devices:
                if device.bundle != self.bundle:
                    raise BrokenRuleError(
                        f"the roll-out is done, and device {device.number} runs {device.bundle.decode()}"
                    )
        elif not rollout.is_over:
            for name in rollout.order[: rollout.n_released]:
                instance = rollout.instance(name)
                assert instance is not None
                allowed = {"offered": self._plan.offer_s, "loading": self._plan.load_s, "trial": self._plan.trial_s}
                age = self._clock.seconds - instance.since
                if age > allowed.get(instance.state, age) + 2 * TICK_MS / 1000:
                    raise BrokenRuleError(f"the roll-out has let {name} stay {instance.state} for {age:.0f} s")
