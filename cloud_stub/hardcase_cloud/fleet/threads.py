# SPDX-License-Identifier: Apache-2.0
"""A simulated fleet in one process: device loops on threads, which replay rows of a table over a real broker.

    fleet = Fleet(load_bundle("model.hcb"), X, "mqtt://127.0.0.1:1883", n_devices=20)
    outcomes = fleet.run()
    assert not fleet.reconcile()

Sessions, loops and links are those of a real device; only the sensors are simulated. Row i is item i, and device
i mod n_devices decides it, once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.bundle.manifest import Label
from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.errors import InputError
from hardcase_edge.link.link import Link, LinkConfig
from hardcase_edge.program.definition import Sensor
from hardcase_edge.program.readings import Reading
from hardcase_edge.session.session import CLOUD, DEGRADED, LOCAL

__all__ = ["Fleet", "Outcome", "RowBank"]

MAX_DEVICES = 300  # a device has two threads and a socket; run more devices in several processes
CONNECT_S = 10.0  # how long ``start`` waits for all devices to connect
JOIN_S = 5.0  # how long ``stop`` waits for each device's thread


@dataclass(frozen=True, slots=True)
class Outcome:
    """One decision of one device."""

    device: str
    item: int  # number of the row
    route: str
    label: Label
    confidence: float | None  # 0 to 1
    cost: float  # in the bundle's unit
    sensors: tuple[str, ...]  # names of the sensors bought
    began: float  # time.monotonic() at its beginning, seconds
    latency_ms: float
    uplink_bytes: int  # payloads of its requests, repeated transmissions included


class RowBank:
    """Simulated sensors that read rows of a table.

    NaN is a missing reading; the session treats the sensor as failed if the feature must not be missing.

    Parameters
    ----------
    sensors : sequence of Sensor, of the program
    rows : iterator of (row number, readings), one per item
    """

    dead: frozenset[int] = frozenset()
    pause_s = 0.0  # no simulated sensor is ever busy

    def __init__(self, sensors: Sequence[Sensor], rows: Iterator[tuple[int, Sequence[float]]]) -> None:
        self.counters: Counter[str] = Counter()
        self.item = -1
        self._sensors = sensors
        self._rows = rows
        self._row: Sequence[float] = ()

    def next_item(self) -> bool:
        """Move on to the next row; False after the last row."""
        try:
            self.item, self._row = next(self._rows)
        except StopIteration:
            return False
        return True

    def read(self, sensors: Sequence[int]) -> Mapping[int, Sequence[Reading] | None]:
        """The readings of these sensors in the current row."""
        return {s: self._read(self._sensors[s]) for s in sensors}

    def _read(self, sensor: Sensor) -> Sequence[Reading]:
        return [None if (x := self._row[f]) != x else x for f in sensor.features]


@dataclass
class _Member:
    """One simulated device."""

    name: str
    bank: RowBank
    link: Link
    device: Device
    outcomes: list[Outcome] = field(default_factory=list)

    def run(self) -> None:
        """Decide on every item and append each outcome."""
        bytes_before = 0
        for record in self.device.run():
            now, bytes_sent = time.monotonic(), self.link.counters["sent_bytes"]
            self.outcomes.append(
                Outcome(
                    device=self.name,
                    item=self.bank.item,
                    route=record["route"],
                    label=record["label"],
                    confidence=record["confidence"],
                    cost=record["cost"],
                    sensors=tuple(record["sensors"]),
                    began=now - record["latency_ms"] / 1000,
                    latency_ms=record["latency_ms"],
                    uplink_bytes=bytes_sent - bytes_before,
                )
            )
            bytes_before = bytes_sent


class Fleet:
    """A number of devices that share the rows of a table.

    Parameters
    ----------
    loaded : Loaded
        The bundle that all devices run.
    rows : ndarray of shape (n_items, n_features), float, NaN for missing
    url : str
        The broker's URL.
    n_devices : int, 1 to 300
    config : RuntimeConfig or None
        The settings of every device; its interval paces them.
    prefix : str
        Device k is named ``<prefix>-<k>``.
    resend_every_s : float
        As in ``LinkConfig``, seconds.

    Raises
    ------
    InputError
        The number of devices, the shape of the rows or the URL is unusable.
    """

    def __init__(
        self,
        loaded: Loaded,
        rows: NDArray[np.floating],
        url: str,
        *,
        n_devices: int = 20,
        config: RuntimeConfig | None = None,
        prefix: str = "sim",
        resend_every_s: float = 1.0,
    ) -> None:
        if not 1 <= n_devices <= MAX_DEVICES:
            raise InputError(f"a fleet of {n_devices} devices does not fit one process; use 1 to {MAX_DEVICES}")
        if rows.ndim != 2 or rows.shape[1] != len(loaded.machine.program.features):
            n_features = len(loaded.machine.program.features)
            raise InputError(f"rows of shape {rows.shape} do not fit {n_features} features; pass a column per feature")
        self._rows = rows
        links = [LinkConfig.to_broker(url, f"{prefix}-{k}", resend_every_s=resend_every_s) for k in range(n_devices)]
        self._members = [self._make(loaded, k, links, config or RuntimeConfig()) for k in range(n_devices)]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Connect all devices and start their loops; devices that cannot connect in time start offline."""
        for member in self._members:
            member.link.start()
        until = time.monotonic() + CONNECT_S
        while time.monotonic() < until and self.connected() < len(self._members):
            time.sleep(0.01)
        self._threads = [threading.Thread(target=m.run, name=m.name, daemon=True) for m in self._members]
        for thread in self._threads:
            thread.start()

    def join(self, timeout_s: float = 600.0) -> list[Outcome]:
        """Wait for every device to finish its items and stop it; returns all outcomes in order of their beginning."""
        until = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self.stop()
        return self.outcomes()

    def run(self, timeout_s: float = 600.0) -> list[Outcome]:
        """Call ``start`` and ``join``; returns all outcomes."""
        self.start()
        return self.join(timeout_s)

    def connected(self) -> int:
        """The number of devices that are connected now."""
        return sum(m.link.is_connected for m in self._members)

    def stop(self) -> None:
        """End every device after its current decision and disconnect it."""
        for member in self._members:
            member.device.stop()
        for thread in self._threads:
            thread.join(JOIN_S)
        for member in self._members:
            member.link.stop()

    def outcomes(self) -> list[Outcome]:
        """The outcomes so far, in order of their beginning."""
        return sorted((o for m in self._members for o in list(m.outcomes)), key=lambda o: o.began)

    def counters(self) -> Counter[str]:
        """The sums of all devices' counters: ``asked``, the routes, and the counters of the links."""
        return sum((m.device.counters + m.link.counters for m in self._members), Counter())

    def reconcile(self) -> list[str]:
        """Sentences on what does not add up; empty if every item was decided exactly once, by its device."""
        problems = []
        counters, outcomes = self.counters(), self.outcomes()
        routes = Counter(o.route for o in outcomes)
        if counters["asked"] != sum(counters[route] for route in (LOCAL, CLOUD, DEGRADED)):
            problems.append(f"{counters['asked']} decisions were asked for, but {dict(routes)} were made")
        problems += [
            f"{routes[route]} outcomes have the route {route}, but {counters[route]} were counted"
            for route in (LOCAL, CLOUD, DEGRADED)
            if routes[route] != counters[route]
        ]
        n_decisions = Counter((o.device, o.item) for o in outcomes)
        expected = {(self._members[k % len(self._members)].name, k) for k in range(len(self._rows))}
        if missing := expected - set(n_decisions):
            problems.append(f"{len(missing)} items were never decided, for example {min(missing)}")
        if wrong := [key for key, n in n_decisions.items() if n != 1 or key not in expected]:
            problems.append(f"{len(wrong)} items were decided twice or by another device, for example {min(wrong)}")
        return problems

    def _make(self, loaded: Loaded, k: int, links: list[LinkConfig], config: RuntimeConfig) -> _Member:
        program = loaded.machine.program
        rows = ((i, self._rows[i].tolist()) for i in range(k, len(self._rows), len(links)))
        bank = RowBank(program.sensors, rows)
        link = Link(links[k], program, loaded.manifest)
        return _Member(links[k].connection.client_id, bank, link, Device(loaded, bank, link, config))
