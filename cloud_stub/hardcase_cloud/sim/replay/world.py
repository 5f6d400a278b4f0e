# SPDX-License-Identifier: Apache-2.0
"""One replay: everything of a scenario on one heap of events, from a seed to a report and its digest.

The same scenario and seed give the same digest on any machine: time is whole milliseconds, everything random comes from
``random.Random`` with seeds of its own for each part, and nothing iterates over a set or asks a clock.
"""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass
from random import Random
from typing import Any

from ...answer.service import Outgoing
from ..fleet.scenario import Scenario
from .chaos import Chaos
from .device import Device
from .keeper import Keeper
from .referee import BrokenRuleError
from .rollout import Director
from .surroundings import Surroundings
from .worker import Worker

QUIET_MS = 700_000  # without a fault, until everything must be settled: longer than any pause of the outbox
LOOK_MS = 10_000


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one replay."""

    seed: int
    digest: str  # SHA-256 of all events
    counts: dict[str, int]
    n_events: int
    virtual_s: float
    problem: str  # the rule that was broken, "" if none was
    rollout: dict[str, Any]  # state, reason, devices touched and their states; empty without one

    def to_json(self) -> dict[str, Any]:
        """As an object of JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


class World(Surroundings):
    """All parts of one replay.

    Parameters
    ----------
    scenario : Scenario
    seed : int
    """

    make_device: Any = Device
    make_worker: Any = Worker
    make_keeper: Any = Keeper
    make_director: Any = Director

    director: Director | None

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self.scenario = scenario
        self.keeper: Keeper = self.make_keeper(self.clock, self.referee, self._send_ack, self._stored)
        self.workers: list[Worker] = [
            self.make_worker(self.clock, self.broker, scenario.cloud, k, self._send_reply)
            for k in range(scenario.cloud.workers)
        ]
        self.broker.workers = self.workers
        self.broker.receive = {"record": self.keeper.receive, "facts": self._facts}
        self.devices: list[Device] = [self.make_device(self, k) for k in range(self.fleet.devices)]
        if scenario.rollout is not None:
            self.director = self.make_director(
                self.clock, self.referee, scenario.rollout, self.names, self.devices, self._send_offer
            )
        Chaos(self, scenario, Random(f"{seed} chaos"), self.devices, self.workers, self.keeper)

    # ------------------------------------------------------------ messages to devices

    def _send_reply(self, reply: Outgoing) -> None:
        self.broker.carry(self.devices[int(reply.device[1:])].replied, reply.payload)

    def _send_ack(self, device: int, payload: bytes) -> None:
        self.broker.carry(self.devices[device].acknowledged, payload)

    def _send_offer(self, device: int, bundle: bytes) -> None:
        self.broker.carry(self.devices[device].offered, bundle)

    def _facts(self, device: int, payload: bytes) -> None:
        if self.director is not None:
            self.director.facts(device, payload)

    def _stored(self, record: Any) -> None:
        if self.director is not None:
            self.director.stored(record)

    # ------------------------------------------------------------ the whole

    def run(self) -> None:
        """Let everything happen.

        Raises
        ------
        BrokenRuleError
            A rule was broken.
        """
        longest_s = max((fault.for_s for fault in self.scenario.faults), default=0.0)
        end = self.scenario.active_ms + round(longest_s * 1000) + self.fleet.decisions * self.fleet.deadline_ms
        while not self._is_settled and self.clock.now < end + QUIET_MS:
            self.clock.run(self.clock.now + LOOK_MS)
        waiting = {key for device in self.devices for key in device.waiting()}
        self.referee.ended(self.fleet.devices, self.fleet.decisions, waiting, self.retired)
        if (n := self.keeper.count()) != self.referee.counts["records"]:
            raise BrokenRuleError(f"the store counted {self.referee.counts['records']} records, and has {n}")
        if self.director is not None:
            self.director.check()

    @property
    def _is_settled(self) -> bool:
        """Whether every device has made its decisions, and the roll-out is over."""
        is_done = all(d.n_done >= self.fleet.decisions or d.number in self.retired for d in self.devices)
        rollout = self.director.rollout if self.director else None
        return is_done and (self.director is None or (rollout is not None and rollout.is_over))


def replay(scenario: Scenario, seed: int, make: type[World] = World) -> Report:
    """Run a scenario with a seed; a broken rule, or an error that nobody expects, is told in the report."""
    world, problem = make(scenario, seed), ""
    was_enabled = gc.isenabled()
    gc.disable()  # nearly all that lives here lives to the end
    try:
        world.run()
    except BrokenRuleError as error:
        problem = str(error)
    except Exception as error:  # a part that fails is found as well as a rule that is broken
        problem = f"at {world.clock.seconds:.3f} s: {type(error).__name__}: {error}"
    finally:
        world.keeper.close()
        if was_enabled:
            gc.enable()
    world.referee.note(json.dumps(sorted(world.referee.counts.items())).encode())
    rollout = world.director.summary() if world.director is not None else {}
    counts = {**world.referee.counts, **world.counters, "messages": world.broker.n_messages}
    return Report(seed, world.referee.digest, dict(sorted(counts.items())), world.clock.n_events,
                  world.clock.seconds, problem, rollout)  # fmt: skip
