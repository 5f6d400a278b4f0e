# SPDX-License-Identifier: Apache-2.0
"""Fleets with one safeguard taken out, by which a replay shows that its rules can be broken."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

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

__all__ = ["FAULTS"]


class CountsTwice(Database):
    """Every record is a new one."""

    def keep(self, records: Sequence[Incoming], received: float) -> int:
        self.boots = getattr(self, "boots", count(1))
        return super().keep([Incoming(r.device, next(self.boots), *_rest(r)) for r in records], received)


def _rest(record: Incoming) -> list[object]:
    return [getattr(record, name) for name in list(record.__slots__)[2:]]


class KeeperWithoutDeduplication(Keeper):
    make_database = CountsTwice


class WithoutDeduplication(World):
    make_keeper = KeeperWithoutDeduplication


class NoDeadline(Exchange):
    """A request waits for an hour, whatever is asked."""

    __slots__ = ()

    def ask(self, now, id_, deadline_ms, may_resend=lambda: True):
        super().ask(now, id_, 3_600_000, may_resend)


class PatientDevice(Device):
    __slots__ = ()
    make_exchange = NoDeadline


class WithoutDeadline(World):
    make_device = PatientDevice


class Hasty(Service):
    """Every message is acknowledged when it comes."""

    def receive(self, *args, tag=0, **named) -> Outgoing | None:
        reply = super().receive(*args, tag=tag, **named)
        self._release([tag])
        return reply


class HastyWorker(Worker):
    make_service = Hasty


class AckBeforeAnswer(World):
    make_worker = HastyWorker


class ForgetfulDisk(Disk):
    """No folder is ever flushed."""

    def flush_names(self) -> None: ...


class CarelessDevice(Device):
    __slots__ = ()
    make_disk = ForgetfulDisk


class WithoutDirectoryFsync(World):
    make_device = CarelessDevice


class Endless(Rollout):
    """No state of a device times out."""

    def _let_time_out(self, now: float) -> None: ...


class EndlessDirector(Director):
    make_rollout = Endless


class WithoutTimeout(World):
    make_director = EndlessDirector


FAULTS: dict[str, type[World]] = {
    "de-duplication in the store": WithoutDeduplication,
    "the deadline": WithoutDeadline,
    "the ack after the answer": AckBeforeAnswer,
    "the directory fsync": WithoutDirectoryFsync,
    "the roll-out's timeout": WithoutTimeout,
}
