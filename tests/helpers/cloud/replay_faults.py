# SPDX-License-Identifier: Apache-2.0
"""Fleets with one safeguard taken out, by which a replay shows that its rules can be broken."""

from __future__ import annotations

from itertools import count
from typing import Any

from hardcase_cloud.answer.service import Outgoing, Service
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.rollout.waves.machine import Rollout
from hardcase_cloud.sim.replay.device import Device
from hardcase_cloud.sim.replay.disk import Disk
from hardcase_cloud.sim.replay.keeper import Keeper
from hardcase_cloud.sim.replay.rollout import Director
from hardcase_cloud.sim.replay.worker import Worker
from hardcase_cloud.sim.replay.world import World
from hardcase_edge.exchange.exchange import Exchange


def but(base: type, **other: Any) -> Any:
    """This class with other methods, or other classes to make its parts of."""
    return type(base.__name__, (base,), {"__slots__": (), **other})


def _counts_twice() -> Any:
    boots = count(1)

    def keep(self: Database, records: list[Incoming], received: float) -> int:
        fresh = [Incoming(r.device, next(boots), *(getattr(r, n) for n in [*r.__slots__][2:])) for r in records]
        return Database.keep(self, fresh, received)

    return keep


def _acknowledges_at_once(self: Service, *args: Any, tag: int = 0, **named: Any) -> Outgoing | None:
    reply = Service.receive(self, *args, tag=tag, **named)
    self._release([tag])
    return reply


def _waits_for_an_hour(self: Exchange, now: float, id_: bytes, deadline_ms: int, *rest: Any) -> None:
    Exchange.ask(self, now, id_, 3_600_000, *rest)


FAULTS: dict[str, type[World]] = {
    "de-duplication in the store": but(
        World, make_keeper=but(Keeper, make_database=but(Database, keep=_counts_twice()))
    ),
    "the deadline": but(World, make_device=but(Device, make_exchange=but(Exchange, ask=_waits_for_an_hour))),
    "the ack after the answer": but(
        World, make_worker=but(Worker, make_service=but(Service, receive=_acknowledges_at_once))
    ),
    "the directory fsync": but(World, make_device=but(Device, make_disk=but(Disk, flush_names=lambda self: None))),
    "the roll-out's timeout": but(
        World, make_director=but(Director, make_rollout=but(Rollout, _let_time_out=lambda self, now: None))
    ),
}
