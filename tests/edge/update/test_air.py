# SPDX-License-Identifier: Apache-2.0
"""The thread of updates: idle until a message comes, bounded, and silent once the run ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hardcase_cloud.broker.embedded import EmbeddedBroker
from hardcase_edge.errors import InputError
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig
from hardcase_edge.link.wire import reply_topic, update_topic
from hardcase_edge.store.folder import Store
from hardcase_edge.update.air import MOST_WAITING, Air


class FakeLink:
    def publish(self, topic: str, payload: bytes) -> bool:
        return True


def make_air(tmp_path: Path, **more: object) -> Air:
    settings = {"key": None, "metered": None, "note": lambda line: None, "on_ready": lambda: None, **more}
    return Air(Store(tmp_path / "store"), "dev-1", **settings)  # type: ignore[arg-type]


def n_threads() -> int:
    return sum(thread.name == "hardcase-update" for thread in threading.enumerate())


def test_nothing_runs_until_a_message_comes_and_a_flood_before_the_first_decision_is_bounded(tmp_path):
    air = make_air(tmp_path)
    air.came_up()
    assert (n_threads(), air.facts()) == (0, {})
    take = air.listeners[update_topic("dev-1")]
    for _ in range(MOST_WAITING + 5):
        take(b"what")
    assert n_threads() == 0
    air.begin(FakeLink())  # type: ignore[arg-type]
    assert n_threads() == 1
    while air.facts().get("updates", {}).get("malformed") != MOST_WAITING:
        pass
    air.close()
    assert air.facts()["updates"] == {"malformed": MOST_WAITING, "flooded": 5}
    assert n_threads() == 0


def test_hours_that_are_not_hours_are_refused_at_the_start(tmp_path):
    with pytest.raises(InputError, match="use HH:MM-HH:MM"):
        make_air(tmp_path, metered="from nine to five")


def test_a_broker_that_refuses_the_updates_leaves_the_connection_up(caplog):
    with EmbeddedBroker(port=0) as broker:
        config = ConnectionConfig(address=parse_address(broker.url), client_id="dev-1")
        connection = Connection(
            config, subscribe=reply_topic("dev-1"), also=["hardcase/v1/x/other"], on_message=lambda message: None
        )
        try:
            assert connection.start(5.0)
        finally:
            connection.stop()
    assert "refused the subscription to hardcase/v1/x/other" in caplog.text
