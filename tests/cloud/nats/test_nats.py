# SPDX-License-Identifier: Apache-2.0
"""Workers behind NATS: devices on its MQTT listener are answered once, and hostile or absent servers are one line."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from hardcase.cli import main
from hardcase_cloud.answering.onnx_model import Hpc
from hardcase_cloud.answering.service import Service
from hardcase_cloud.answering.worker import Worker, default_group
from hardcase_cloud.mqtt.client import ClientConfig
from hardcase_cloud.nats.client import NatsClient
from hardcase_cloud.nats.protocol import Info, Message, Plain, Reader, publish
from hardcase_cloud.nats.servers import connected, parse_servers, url_of
from hardcase_cloud.nats.subjects import subject_of, topic_of
from hardcase_edge.errors import InputError, LinkError, WireError
from hardcase_edge.link.wire import OK, devices_of, request_topic, unpack_reply
from tests.helpers.cloud.brokers import free_port
from tests.helpers.cloud.clients import asking
from tests.helpers.cloud.nats import Nats, running_nats
from tests.helpers.cloud.requests import N_CLASSES, ask, write_model


@pytest.fixture(scope="module")
def hpc(tmp_path_factory: pytest.TempPathFactory) -> Hpc:
    return Hpc(write_model(tmp_path_factory.mktemp("hpc")))


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    with running_nats(tmp_path_factory.mktemp("nats")) as running:
        yield running


@contextmanager
def working(hpc: Hpc, url: str, tenant: str = "") -> Iterator[Worker]:
    servers = parse_servers(url)
    worker = Worker(
        Service(hpc), servers[0], default_group(hpc.sha256), tenant=tenant,
        opener=lambda config, is_stopping, clock: NatsClient(config, servers, is_stopping=is_stopping, clock=clock),
    )  # fmt: skip
    worker.start()
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(10)
        assert not thread.is_alive()


def test_devices_on_the_mqtt_listener_are_answered_whatever_their_names(
    nats: Nats, hpc: Hpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase_cloud.answering.worker.LAST_CALL_S", 0.01)
    with working(hpc, nats.url) as worker, working(hpc, nats.url, "acme") as other:
        assert worker.protocol == "nats"
        for k, name in enumerate(("pump.7-a_b", "acme/pump-7"), 1):
            with asking(f"mqtt://127.0.0.1:{nats.mqtt_ports[0]}", name, 4) as (client, heard):
                client.publish(request_topic(name), ask(k, (1.0, 4.0), hpc.sha256), 1)
                reply = unpack_reply(heard.get(timeout=60).payload, bytes.fromhex(hpc.sha256), N_CLASSES)
                assert (reply.id, reply.status, reply.result) == (k.to_bytes(16, "big"), OK, 1)
        assert (worker.counters()["served"], other.counters()["served"]) == (1, 1)


def test_what_a_dead_worker_has_not_acknowledged_another_gets(
    nats: Nats, hpc: Hpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase_cloud.nats.client.ACK_S", 0.2)
    servers = parse_servers(nats.url)
    config = ClientConfig(address=servers[0], topics=["$share/dying/hardcase/v1/dies/+/request"])
    dead = NatsClient(config, servers)
    dead.open(5)
    with asking(f"mqtt://127.0.0.1:{nats.mqtt_ports[0]}", "dies/d", 4) as (client, _):
        client.publish(request_topic("dies/d"), b"first", 1)
        until = time.monotonic() + 5
        taken = []
        while not taken and time.monotonic() < until:
            taken = dead.receive(0.2)
        dead._line.close()  # as SIGKILL would
        alive = NatsClient(config, servers)
        alive.open(5)
        again = []
        while not again and time.monotonic() < until:
            again = alive.receive(0.2)
        assert [message.payload for _, message in (*taken, *again)] == [b"first", b"first"]
        alive.acknowledge(again[0][0])
        alive.close()


def test_a_server_that_is_not_there_or_not_nats_is_one_line(hpc: Hpc) -> None:
    with socket.socket() as liar:
        liar.bind(("127.0.0.1", 0))
        liar.listen()

        def lie() -> None:
            with liar.accept()[0] as line:
                line.sendall(first)

        there = liar.getsockname()[1]
        for first, port, words in (
            (b"", free_port(), "refused"), (b"HTTP/1.1 400\r\n", there, "does not speak NATS"),
            (b"MSG a 1 5\r\n", there, "not begin as NATS does"), (b"PING\r\n", there, "not begin as NATS does"),
        ):  # fmt: skip
            if first:
                threading.Thread(target=lie, daemon=True).start()
            servers = parse_servers(f"nats://127.0.0.1:{port}")
            client = NatsClient(ClientConfig(address=servers[0], topics=["$share/g/hardcase/v1/+/request"]), servers)
            with pytest.raises(
                LinkError, match=f"broker nats://127.0.0.1:{port}: .*{words}.*; start it with JetStream"
            ):
                client.open(0)


def test_every_tenant_has_a_stream_of_its_own() -> None:
    """With one name for two, the second tenant's stream would count as made, and its requests go nowhere."""
    servers = parse_servers("nats://127.0.0.1:1")
    tenants = ("", "acme", "a.b", "a_b", "a-b", "a..b")
    topics = [f"$share/g/{request_topic(devices_of(tenant))}" for tenant in tenants]
    clients = [NatsClient(ClientConfig(address=servers[0], topics=[topic]), servers) for topic in topics]
    names = [client._stream for client in clients]
    assert len(set(names)) == len(tenants)
    assert not any(set(name) & set(".*> /\\") for name in names)


def test_a_server_whose_first_line_drips_holds_nobody_up() -> None:
    with socket.socket() as slow:
        slow.bind(("127.0.0.1", 0))
        slow.listen()

        def drip() -> None:
            with slow.accept()[0] as line, suppress(OSError):
                for _ in range(200):
                    line.sendall(b"x")
                    time.sleep(0.005)

        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(OSError, match="timed out"):
            connected(parse_servers(f"nats://127.0.0.1:{slow.getsockname()[1]}")[0], 0.2, 100, None)


def test_a_consumer_that_is_gone_is_made_again(nats: Nats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardcase_cloud.nats.client.REMAKE_S", 0.15)
    servers = parse_servers(nats.url)
    config = ClientConfig(
        address=servers[0], topics=["$share/gone/hardcase/v1/gone/+/request"], retry_first_s=0.01,
    )  # fmt: skip
    client = NatsClient(config, servers)
    client.open(5)
    client.receive(0.05)
    client._line.send(publish("$JS.API.CONSUMER.DELETE.HARDCASE-gone.gone"))
    until = time.monotonic() + 5
    while client.connects < 2 and time.monotonic() < until:
        client.receive(0.05)
    with asking(f"mqtt://127.0.0.1:{nats.mqtt_ports[0]}", "gone/d", 4) as (device, _):
        device.publish(request_topic("gone/d"), b"after", 1)
        taken = []
        while not taken and time.monotonic() < until:
            taken = client.receive(0.05)
    client.close()
    assert (client.connects, [message.payload for _, message in taken]) == (2, [b"after"])


def test_topics_and_subjects_are_each_others_inverse() -> None:
    for topic in ("hardcase/v1/pump-7/request", "hardcase/v1/a.b..c/reply", "hardcase/v1/acme/p.7/request"):
        assert topic_of(subject_of(topic)) == topic
    for subject in ("", "a b", "a..b", "a.*", "a.>", "/a", "a/b", "a" * 2000):
        with pytest.raises(WireError):
            topic_of(subject)


def test_a_reader_takes_bytes_in_any_pieces_and_bounds_what_a_server_says() -> None:
    whole = (
        b'INFO {"a":1}\r\nMSG s 1 5\r\nh\r\nlo\r\nHMSG s 2 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n'
        b"HMSG s 2 26 26\r\nNATS/1.0 408 Timeout..\r\n\r\n\r\nPING\r\n-ERR 'x'\r\n"
    )
    expected = [
        Info({"a": 1}), Message("s", "1", "", b"h\r\nlo"), Message("s", "2", "r", b"hi"),
        Message("s", "2", "", b"", 408), Plain("PING"), Plain("-ERR", "x"),
    ]  # fmt: skip
    for step in (1, 3, 1000):
        reader = Reader(100)
        assert [o for k in range(0, len(whole), step) for o in reader.feed(whole[k : k + step])] == expected
    for bad in (b"MSG s 1 101\r\n", b"MSG s 1 -1\r\n", b"MSG s 1 1\r\nabc", b"HMSG s 1 9 5\r\n", b"GET /\r\n",
                b"x" * 5000, b"INFO []\r\n", b"INFO {\r\n", b"INFO " + b"[" * 70_000):  # fmt: skip
        with pytest.raises(WireError):
            Reader(100).feed(bad)


def test_a_url_names_servers_with_one_user() -> None:
    servers = parse_servers("nats://u:p@a,b:4333,[::1]:5000", environment={})
    assert [(s.host, s.port, s.user, s.password) for s in servers] == [
        ("a", 4222, "u", "p"), ("b", 4333, "u", "p"), ("::1", 5000, "u", "p"),
    ]  # fmt: skip
    assert url_of(servers[0], servers) == "nats://[::1]:5000,a:4222,b:4333"
    for url in ("nats://", "nats://a,,b", "nats://a/b", "nats://" + ",".join("abcdefghijklmnopq"), "nats://a:x"):
        with pytest.raises(InputError):
            parse_servers(url, environment={})


@pytest.mark.parametrize("words", [["worker"], ["up"]])
def test_a_url_of_no_engine_is_refused_with_all_that_a_worker_takes(
    words: list[str], hpc: Hpc, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cloud", *words, "--hpc", str(hpc.path), "--broker", "amqp://u:secret@x"]) == 2
    said = capsys.readouterr().err
    assert "broker 'amqp://...@x' is not an MQTT URL; use mqtt://host:port or mqtts://" in said
    assert "or nats://host:port or natss://host:port for NATS" in said
    assert (said.count("\n"), "secret" in said) == (1, False)


def test_the_time_in_the_stream_counts_against_the_deadline(hpc: Hpc, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = parse_servers("nats://a")
    client = NatsClient(ClientConfig(address=servers[0], topics=["$share/g/hardcase/v1/+/request"]), servers)
    payload = ask(1, (1.0, 4.0), hpc.sha256, 9_500)
    monkeypatch.setattr("hardcase_cloud.nats.client.time", lambda: 1_000.0)
    old, new = (f"$JS.ACK.s.g.1.1.1.{stamp}000000000.0" for stamp in (1_501, 1_505))  # a clock that is fast by 505 s
    domain = "$JS.ACK._.hash.s.g.1.1.1.1502000000000.0"
    assert [client._left_s(reply, payload) for reply in (new, old, domain)] == [10, 6, 7]
    assert [client._left_s(reply, b"short") for reply in (old, "$JS.ACK.x", "$JS.ACK.s.g.1.1.1.x.0")] == [None] * 3
