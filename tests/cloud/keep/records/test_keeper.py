# SPDX-License-Identifier: Apache-2.0
"""The store at a real broker: it acknowledges what is on the disk, and nobody's flood or nonsense ends it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from socket import SHUT_RDWR

import pytest

from hardcase_cloud.keep.records import keeper as module
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.devices import Presence
from hardcase_cloud.keep.records.keeper import Inbox, Keeper
from hardcase_cloud.mqtt.client import ClientConfig
from hardcase_cloud.mqtt.packets import Published
from hardcase_edge.errors import InputError, LinkError
from hardcase_edge.fleet.outbox.acks import unpack_acks
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig
from hardcase_edge.link.wire import ack_topic, decision_topic, status_topic
from tests.helpers.cloud.brokers import free_port, serving, until


@contextmanager
def keeping(broker, path, notes=None):
    """A store that runs, and a device with its acknowledgements."""
    database = Database(path)
    keeper = Keeper(database, parse_address(broker.url), note=(notes if notes is not None else []).append)
    acks: list[tuple[int, int, int]] = []
    config = ConnectionConfig(address=parse_address(broker.url), client_id="pi-1")
    device = Connection(config, subscribe=ack_topic("pi-1"), on_message=lambda m: acks.extend(unpack_acks(m.payload)))
    try:
        with serving(keeper):
            assert device.start(60)
            yield keeper, device, acks
    finally:
        device.stop()
        database.close()


def pack(sequence: int, device: str = "pi-1") -> bytes:
    return json.dumps({"kind": "decision", "device": device, "boot": 2, "sequence": sequence}).encode()


def test_what_is_on_the_disk_is_acknowledged_each_time_and_kept_once(broker, tmp_path):
    with keeping(broker, tmp_path / "d.sqlite") as (keeper, device, acks):
        assert device.publish(status_topic("pi-1"), b"online")
        for payload in (pack(1), pack(2), b"nonsense", pack(3, "pi-2"), pack(4), pack(2)):
            assert device.publish(decision_topic("pi-1"), payload)
        until(lambda: {s for _, first, last in acks for s in range(first, last + 1)} == {1, 2, 4})
        device.publish(decision_topic("pi-1"), pack(1))
        until(lambda: keeper.counters["repeated"] == 2)
        until(lambda: acks[-1] == (2, 1, 1))
        assert keeper.all_counters() == {
            "kept": 3, "repeated": 2, "malformed": 2, "oversized": 0, "unwritable": 0, "unsent": 0, "removed": 0,
            "lost": 0, "dropped": 1,
        }  # fmt: skip


@pytest.mark.parametrize("what", ["status", "facts"])
@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"5", b"null", b'"x"', b"[" * 5000, b"\xff"])
def test_a_state_or_facts_that_are_none_are_counted_and_dropped(what, payload):
    presence = Presence()
    assert presence.take(f"hardcase/v1/pi-1/{what}", payload)
    assert (presence.dropped, presence.drain()) == (1, [])


def test_a_status_without_a_state_is_dropped():
    presence = Presence()
    assert presence.take("hardcase/v1/pi-1/status", b'{"bundle": "x"}')
    assert (presence.dropped, presence.drain()) == (1, [])


def test_acknowledgements_share_the_connection_which_comes_back(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ClientConfig", partial(ClientConfig, retry_first_s=0.01, retry_most_s=0.02))
    with keeping(broker, tmp_path / "d.sqlite") as (keeper, device, acks):
        keeper._client._client._line._sock.shutdown(SHUT_RDWR)
        until(lambda: device.publish(decision_topic("pi-1"), pack(1)) and acks)
        assert (keeper.counters["kept"], keeper._client.connects) == (1, 2)


def test_what_cannot_be_written_is_not_acknowledged_until_it_can(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    notes: list[str] = []
    with keeping(broker, tmp_path / "d.sqlite", notes) as (keeper, device, acks):
        keep = keeper._database.keep

        def full(*_):
            raise InputError("the store is full")

        monkeypatch.setattr(keeper._database, "keep", full)
        for _ in range(3):
            device.publish(decision_topic("pi-1"), pack(1), wait_s=60)
            until(lambda: not keeper._inbox._waiting)
        until(lambda: keeper.counters["unwritable"] >= 1)
        assert acks == []
        assert notes == ["the store is full; up to 20000 records wait here, and devices keep theirs until then"]
        until(lambda: keeper.waiting == 3)  # not while the thread tries
        assert keeper.ill_since is not None
        monkeypatch.setattr(keeper._database, "keep", keep)
        device.publish(decision_topic("pi-1"), pack(1))
        until(lambda: acks)
        assert set(acks) == {(2, 1, 1)}  # once or twice: what waited and what has come now may be kept together


def test_a_flood_of_one_device_leaves_room_for_others_and_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST_OF_ALL", 600)
    inbox = Inbox()
    for k in range(1000):
        inbox.put(decision_topic("loud"), pack(k))
    inbox.put(decision_topic("quiet"), pack(1))
    assert inbox.lost == 1000 - module.MOST_OF_ONE
    assert inbox.take(10_000, 0, 0)[-1][0] == decision_topic("quiet")
    for k in range(1000):
        inbox.put(decision_topic(f"d{k}"), pack(k))
    assert len(inbox.take(10_000, 0, 0)) == 600
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    for k in range(100):
        inbox.put(decision_topic(f"d{k}"), b"x" * 100)
    inbox.put(decision_topic("d"), b"x" * (module.MAX_RECORD_BYTES + 1))
    assert len(inbox.take(10_000, 0, 0)) == 10
    assert (inbox._bytes, dict(inbox._of)) == (0, {})


def test_devices_that_say_something_at_each_moment_hold_up_no_record(tmp_path):
    database = Database(tmp_path / "d.sqlite")
    keeper = Keeper(database, parse_address("mqtt://127.0.0.1:1"), note=print)
    saw, n = keeper._devices.saw, 0

    def saw_and_more(*seen):
        nonlocal n
        n += 1
        assert n < 10, "the inbox waits"
        saw(*seen)
        keeper._take(Published(status_topic(f"d{n}"), b'{"state": "online"}', 0))

    keeper._devices.saw = saw_and_more
    keeper._take(Published(status_topic("d0"), b'{"state": "online"}', 0))
    for k in (1, 2):
        keeper._take(Published(decision_topic("pi-1"), pack(k), 0))
        keeper.step(0.01)
        assert keeper.counters["kept"] == k
    database.close()


def test_without_a_broker_it_says_so(tmp_path):
    database = Database(tmp_path / "d.sqlite")
    address = parse_address(f"mqtt://127.0.0.1:{free_port()}")
    with pytest.raises(LinkError, match="start it, or correct its URL"):
        Keeper(database, address, note=print).start()
    database.close()
