# SPDX-License-Identifier: Apache-2.0
"""What goes wrong and when: each fault of a scenario at its times, on devices and workers that the seed chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from ..fleet.scenario import Fault, Scenario

if TYPE_CHECKING:
    from .device import Device
    from .keeper import Keeper
    from .surroundings import Surroundings
    from .worker import Worker


class Chaos:
    """Plans the faults.

    Parameters
    ----------
    shared : Surroundings
    scenario : Scenario
    chance : Random
        For the choice of devices, workers and times.
    devices, workers, keeper : what the faults strike, beside the broker
    """

    def __init__(
        self, shared: Surroundings, scenario: Scenario, chance: Random, devices: Sequence[Device],
        workers: Sequence[Worker], keeper: Keeper,
    ) -> None:  # fmt: skip
        self._shared, self._scenario, self._draw = shared, scenario, chance.random
        self._devices, self._workers, self._keeper = devices, workers, keeper
        self._acts: dict[str, Callable[[Fault], None]] = {
            "partition": self._partition, "broker": self._broker, "broker-loses-queue": self._broker,
            "worker": self._worker, "worker-pause": self._worker_pause, "store": self._store,
            "power-cut": self._power_cut, "sensor": self._sensor, "drift": self._drift, "clock": self._clock,
            "battery": self._battery,
        }  # fmt: skip
        for fault in scenario.faults:
            shared.clock.after(round(fault.at_s * 1000), self._strike, fault)

    def _strike(self, fault: Fault) -> None:
        shared = self._shared
        if shared.clock.now > self._scenario.active_ms:
            return  # the rest of the time is for things to settle
        shared.referee.counts[fault.kind] += 1
        shared.referee.note(f"{shared.clock.now} {fault.kind}".encode())
        self._acts[fault.kind](fault)
        if fault.every_s:
            pause_ms = fault.every_s * 1000
            shared.clock.after(1 + int(pause_ms / 2 + self._draw() * pause_ms), self._strike, fault)

    def _chosen(self, share: float) -> list[int]:
        """So many devices, a run of neighbours from anywhere."""
        n = len(self._devices)
        first, count = int(self._draw() * n), max(1, int(share * n))
        return [(first + k) % n for k in range(count)]

    def _partition(self, fault: Fault) -> None:
        devices = [self._devices[k] for k in self._chosen(fault.share)]
        for device in devices:
            device.is_away = True
            device.disconnect()
        self._shared.clock.after(round(fault.for_s * 1000), self._heal, devices)

    def _heal(self, devices: list[Device]) -> None:
        for device in devices:
            device.is_away = False
            device.try_again()

    def _broker(self, fault: Fault) -> None:
        shared = self._shared
        if shared.broker.is_up:
            shared.broker.kill(keeps_queue=fault.kind == "broker")
            for device in self._devices:
                device.disconnect()
            shared.clock.after(round(fault.for_s * 1000), self._broker_starts)

    def _broker_starts(self) -> None:
        self._shared.broker.start()
        for device in self._devices:
            device.try_again()

    def _worker(self, fault: Fault) -> None:
        for worker in self._some_workers(fault):
            worker.kill()
            self._shared.clock.after(round(fault.for_s * 1000), worker.start)

    def _worker_pause(self, fault: Fault) -> None:
        for worker in self._some_workers(fault):
            worker.pause()
            self._shared.clock.after(round(fault.for_s * 1000), worker.resume)

    def _some_workers(self, fault: Fault) -> list[Worker]:
        workers = self._workers
        first, count = int(self._draw() * len(workers)), max(1, int(fault.share * len(workers)))
        return [workers[(first + k) % len(workers)] for k in range(count)]

    def _store(self, fault: Fault) -> None:
        self._keeper.kill()
        self._shared.clock.after(round(fault.for_s * 1000), self._keeper.start)

    def _power_cut(self, fault: Fault) -> None:
        for k in self._chosen(fault.share):
            self._devices[k].lose_power(round(fault.for_s * 1000))

    def _sensor(self, fault: Fault) -> None:
        for k in self._chosen(fault.share):
            self._devices[k].dead = frozenset({int(self._draw() * 2)})

    def _drift(self, fault: Fault) -> None:
        for k in self._chosen(fault.share):
            self._devices[k].drift += fault.by

    def _clock(self, fault: Fault) -> None:
        for k in self._chosen(fault.share):
            self._devices[k].skew_s = (2 * self._draw() - 1) * fault.by

    def _battery(self, fault: Fault) -> None:
        for k in self._chosen(fault.share):
            self._devices[k].battery = max(1, fault.by)
