# SPDX-License-Identifier: Apache-2.0
"""The thread of updates: idle until a message comes, bounded, and silent once the run ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hardcase_cloud.broker.embedded import EmbeddedBroker
from hardcase_edge.errors import InputError
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig
from hardcase_edge.link.wire import reply_topic, update_topic
from hardcase_edge.store.folder import Store
from hardcase_edge.update.air import MOST_WAITING, Air
from hardcase_edge.update.messages import pack_offer
from tests.helpers.cloud.brokers import until
from tests.helpers.edge.repository import NOW, Repository
from tests.helpers.edge.update_rig import NEW, Rig


class FakeLink:
    device_id = "dev-1"

    def __init__(self) -> None:
        self.listeners: dict[str, Callable[[bytes], None]] = {}

    def listen(self, topic: str, listener: Callable[[bytes], None]) -> None:
        self.listeners[topic] = listener

    def send(self, topic: str, payload: bytes) -> bool:
        return True


def make_air(tmp_path: Path, **more: object) -> Air:
    settings = {"key": None, "metered": None, "note": lambda line: None, "on_ready": lambda: None, **more}
    return Air(Store(tmp_path / "store"), **settings)  # type: ignore[arg-type]


def n_threads() -> int:
    return sum(thread.name == "hardcase-update" for thread in threading.enumerate())


def test_nothing_runs_until_a_message_comes_and_a_flood_before_the_first_decision_is_bounded(tmp_path):
    air, link = make_air(tmp_path), FakeLink()
    air.listen(link)  # type: ignore[arg-type]
    air.came_up()
    assert (n_threads(), air.facts()) == (0, {})
    take = link.listeners[update_topic("dev-1")]
    for _ in range(MOST_WAITING + 5):
        take(b"what")
    assert n_threads() == 0
    air.begin(link)  # type: ignore[arg-type]
    assert n_threads() == 1
    while air.facts().get("updates", {}).get("malformed") != MOST_WAITING:
        pass
    air.close()
    assert air.facts()["updates"] == {"malformed": MOST_WAITING, "flooded": 5}
    assert n_threads() == 0


def test_an_offer_that_has_expired_by_the_noted_time_is_refused(tmp_path):
    repository, notes = Repository(), []
    repository.timestamp_expires = NOW + 100  # in years by this machine's clock
    rig, link = Rig(tmp_path, repository), FakeLink()
    rig.store.note_time(int(NOW) + 100)
    air = make_air(tmp_path, note=notes.append)
    air.listen(link)  # type: ignore[arg-type]
    air.begin(link)  # type: ignore[arg-type]
    link.listeners[update_topic("dev-1")](pack_offer(rig.offer_of(NEW)))
    until(lambda: notes)
    air.close()
    assert "timestamp 1 expired" in notes[0]


def test_hours_that_are_not_hours_are_refused_at_the_start(tmp_path):
    with pytest.raises(InputError, match="use HH:MM-HH:MM"):
        make_air(tmp_path, metered="from nine to five")


def test_a_broker_that_refuses_the_updates_leaves_the_connection_up(caplog):
    with EmbeddedBroker(port=0) as broker:
        config = ConnectionConfig(address=parse_address(broker.url), client_id="dev-1")
        connection = Connection(config, subscribe=reply_topic("dev-1"), on_message=lambda message: None)
        try:
            assert connection.start(5.0)
            connection.subscribe("hardcase/v1/x/other")
            until(lambda: "refused a subscription" in caplog.text)
            assert connection.is_up
        finally:
            connection.stop()
