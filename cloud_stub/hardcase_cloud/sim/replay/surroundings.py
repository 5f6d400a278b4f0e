# SPDX-License-Identifier: Apache-2.0
"""What the devices of a replay share: clock, broker, referee, chance, rows, and the roll-out that they report to."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Protocol

from hardcase_edge.device.machine import Decider, RuntimeConfig
from hardcase_edge.link.requests import RequestFormat
from hardcase_edge.link.wire import ID_BYTES

from ..fleet.scenario import Scenario
from .clockwork import Clockwork
from .network import Broker
from .referee import Referee
from .toy import loaded, make_rows, row_number


class Overseer(Protocol):
    """The roll-out, as devices see it; ``target`` is the SHA-256 of its bundle, in hex."""

    target: str

    def started(self, device: int, bundle: bytes) -> None:
        """A device has started with this bundle."""

    def presence(self, device: int, is_online: bool) -> None:
        """A device is connected, or is not."""


class Surroundings:
    """What devices share.

    Parameters
    ----------
    scenario : Scenario
    seed : int

    Attributes
    ----------
    decider : Decider
        By which all devices decide.
    form : RequestFormat
        Of their requests.
    draw : function
        The next random number of the devices, 0 to 1.
    counters : Counter
        Of all exchanges.
    retired : set of int
        Devices whose battery is empty.
    names : list of str
        Of the devices, by their numbers.
    interval_ms : int
        From one decision to the next.
    load_ms : int
        How long a device loads a bundle.
    trial_decisions : int
        How many decisions the trial of a bundle takes.
    director : Overseer or None
        None without a roll-out.
    """

    def __init__(self, scenario: Scenario, seed: int) -> None:
        rows, network, devices, ids = (Random(f"{seed} {part}") for part in ("rows", "network", "devices", "ids"))
        self.fleet, bundle = scenario.fleet, loaded()
        self.decider = Decider(bundle, RuntimeConfig(deadline_ms=scenario.fleet.deadline_ms))
        self.form = RequestFormat.of(bundle.machine.program, bundle.manifest)
        self.clock = Clockwork()
        self.referee = Referee(self.fleet.deadline_ms)
        self.broker = Broker(self.clock, scenario.network, network, scenario.cloud.in_flight)
        self.draw, self._id_bits = devices.random, ids.getrandbits
        self._rows = make_rows(self.fleet.hard, rows)
        self.counters: Counter[str] = Counter()
        self.retired: set[int] = set()
        self.names = [f"d{k}" for k in range(self.fleet.devices)]
        self.interval_ms = max(1, round(self.fleet.interval_s * 1000))
        release = scenario.rollout
        self.load_ms = round(release.fetch_s * 1000) if release else 0
        self.trial_decisions = release.trial_decisions if release else 1
        self.director: Overseer | None = None

    def row(self, device: int, number: int) -> tuple[float, float]:
        """The readings of a device's item."""
        return self._rows[row_number(device, number)]

    def random_id(self) -> bytes:
        """The id of a request."""
        return self._id_bits(8 * ID_BYTES).to_bytes(ID_BYTES, "little")

    def started(self, device: int, bundle: bytes) -> None:
        """A device runs what its store says."""
        if self.director is not None:
            self.director.started(device, bundle)

    def came(self, device: int) -> None:
        """A device is connected."""
        if self.director is not None:
            self.director.presence(device, True)

    def gone(self, device: int) -> None:
        """A device is not connected any more."""
        if self.director is not None:
            self.director.presence(device, False)
