# SPDX-License-Identifier: Apache-2.0
"""A simulated device's records: the store ends with all of them, once, whatever the way there loses."""

from __future__ import annotations

import json
from random import Random

import pytest

from hardcase_cloud.sim.fleet.backlog import Backlog
from hardcase_edge.errors import WireError
from hardcase_edge.fleet.outbox.acks import pack_acks
from hardcase_edge.fleet.outbox.drain import DrainConfig
from hardcase_edge.fleet.outbox.records import Recorder, Rule


class Way:
    """A connection that loses half of what goes over it."""

    is_asking = False

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.came: list[tuple[int, int]] = []

    def publish_record(self, payload: bytes) -> None:
        record = json.loads(payload)
        if self._chance.random() < 0.5:
            self.came.append((record["boot"], record["sequence"]))


@pytest.mark.parametrize("seed", range(5))
def test_every_record_is_stored_though_half_of_all_messages_are_lost(seed):
    chance = Random(seed)
    backlog = Backlog(Recorder("d-1", "ab" * 32, 7), Rule("all"), DrainConfig())
    way, kept, now = Way(chance), set(), 0.0
    for k in range(40):
        backlog.add({"label": "high", "route": "local", "cost": k})
    while backlog.waiting and now < 10_000:
        wake_at = backlog.send(way, now)
        kept.update(way.came)
        for ack in pack_acks(way.came):
            if chance.random() < 0.5:
                backlog.acknowledged(ack, now)
        way.came.clear()
        if chance.random() < 0.1:
            backlog.connected(now)
        now = max(now + 0.01, min(wake_at, now + 5))
    assert backlog.n_stored == backlog.n_made == 40
    assert kept == {(7, k) for k in range(1, 41)}


def test_what_is_no_acknowledgement_is_refused():
    backlog = Backlog(Recorder("d-1", "ab" * 32, 7), Rule("all"), DrainConfig())
    backlog.add({"label": "high"})
    with pytest.raises(WireError):
        backlog.acknowledged(b"[[7,1]]", 0.0)
    assert backlog.waiting == 1
