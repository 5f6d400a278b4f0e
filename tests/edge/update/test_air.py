# SPDX-License-Identifier: Apache-2.0
"""The thread of updates: idle until a message comes, bounded, and silent once the run ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hardcase_cloud.broker.embedded import EmbeddedBroker
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.update.air import MOST_WAITING, Air
from hardcase_edge.fleet.update.messages import Chunk, name_of, pack_chunk, pack_offer
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig
from hardcase_edge.link.wire import reply_topic, update_topic
from tests.helpers.cloud.brokers import until
from tests.helpers.edge.repository import NOW, Repository
from tests.helpers.edge.update_rig import NEW, NEWER, SIZE, Rig


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
    air.begins()
    assert n_threads() == 1
    while air.facts().get("updates", {}).get("malformed") != MOST_WAITING:
        pass
    air.ended()
    assert air.facts()["updates"] == {"malformed": MOST_WAITING, "flooded": 5}
    assert n_threads() == 0


def test_an_offer_that_has_expired_by_the_noted_time_is_refused(tmp_path):
    repository, notes = Repository(), []
    repository.timestamp_expires = NOW + 100  # in years by this machine's clock
    rig, link = Rig(tmp_path, repository), FakeLink()
    rig.store.note_time(int(NOW) + 100)
    air = make_air(tmp_path, note=notes.append)
    air.listen(link)  # type: ignore[arg-type]
    air.begins()
    link.listeners[update_topic("dev-1")](pack_offer(rig.offer_of(NEW)))
    until(lambda: notes)
    air.ended()
    assert "timestamp 1 expired" in notes[0]


@pytest.mark.parametrize("error", [MemoryError(), RecursionError("deep"), ValueError("odd"), ZeroDivisionError()])
def test_whatever_a_check_raises_the_next_good_offer_is_taken(tmp_path, monkeypatch, error):
    rig, link, notes, ready = Rig(tmp_path, Repository()), FakeLink(), [], []
    air = make_air(tmp_path, note=notes.append, on_ready=lambda: ready.append(True))
    air.listen(link)  # type: ignore[arg-type]
    link.send = lambda topic, payload: rig.send(payload)  # type: ignore[method-assign]
    air.begins()
    take = link.listeners[update_topic("dev-1")]
    first = rig.offer_of(NEW)
    second = rig.offer_of(NEWER)

    def feed(data: bytes) -> None:
        def one() -> bool:
            if rig.fetched:
                index = rig.fetched.pop(0)
                take(pack_chunk(Chunk(name_of(sha256(data)), index, data[index * SIZE : (index + 1) * SIZE])))
            return is_over()

        until(one)

    def is_over() -> bool:
        return bool(ready) or any("broken off" in line or "is refused" in line for line in notes)

    def broken(*args, **more):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("hardcase_edge.bundle.load.unpack_bundle", broken)
        take(pack_offer(first))
        feed(NEW)
    (line,) = [line for line in notes if "broken off" in line or "is refused" in line]
    assert ("more memory" if isinstance(error, MemoryError) else type(error).__name__) in line
    notes.clear()
    rig.fetched.clear()
    until(lambda: n_threads() == 0 or isinstance(error, MemoryError))
    until(lambda: take(pack_offer(second)) or bool(rig.fetched))
    feed(NEWER)
    assert ready
    air.ended()


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
