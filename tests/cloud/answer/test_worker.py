# SPDX-License-Identifier: Apache-2.0
"""The worker on real brokers, and the commands that run it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as paho
import psutil
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_cloud.answer.service import Service, ServiceConfig
from hardcase_cloud.answer.worker import Worker, default_group
from hardcase_cloud.broker.embedded import EmbeddedBroker
from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.errors import LinkError
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.wire import OK, other_hpc_in, request_topic, unpack_reply

from ...helpers.cloud.brokers import free_port, running_mosquitto, serving, until
from ...helpers.cloud.clients import asking
from ...helpers.cloud.requests import N_CLASSES, PATIENT_MS, ask, command, half_forwarding, write_model


@pytest.fixture(scope="module")
def hpc(tmp_path_factory):
    return Hpc(write_model(tmp_path_factory.mktemp("hpc")))


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory):
    with running_mosquitto(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@contextmanager
def working(hpc: Hpc, url: str, **knobs: Any):
    """A worker that runs in a thread while the block does."""
    worker = Worker(Service(hpc, ServiceConfig(**knobs)), parse_address(url), default_group(hpc.sha256))
    with serving(worker):
        yield worker


def reply_of(message: paho.MQTTMessage, hpc: Hpc):
    return unpack_reply(message.payload, bytes.fromhex(hpc.sha256), N_CLASSES)


def test_on_mqtt_5_a_reply_echoes_the_correlation_and_expires_with_the_request(mosquitto, hpc):
    with working(hpc, mosquitto.url) as worker, asking(mosquitto.url, "w-1") as (client, heard):
        assert worker.protocol == "5"
        properties = Properties(PacketTypes.PUBLISH)
        properties.CorrelationData = b"sixteen bytes id"
        client.publish(request_topic("w-1"), ask(1, (1.0, 4.0), hpc.sha256, PATIENT_MS), 1, properties=properties)
        message = heard.get(timeout=60)
        reply = reply_of(message, hpc)
        assert (reply.id, reply.status, reply.result) == ((1).to_bytes(16, "big"), OK, 1)
        assert message.properties.CorrelationData == b"sixteen bytes id"
        assert 60 <= message.properties.MessageExpiryInterval <= PATIENT_MS / 1000


def test_on_the_embedded_broker_it_works_with_mqtt_3(hpc):
    with (
        EmbeddedBroker(port=0) as broker,
        working(hpc, broker.url) as worker,
        asking(broker.url, "w-1", 4) as (client, heard),
    ):
        assert worker.protocol == "3.1.1"
        client.publish(request_topic("w-1"), ask(1, (5.0, 4.0), hpc.sha256, PATIENT_MS), 1)
        assert reply_of(heard.get(timeout=60), hpc).result == 0


def test_two_workers_share_the_requests(mosquitto, hpc):
    with (
        working(hpc, mosquitto.url) as one,
        working(hpc, mosquitto.url) as two,
        asking(mosquitto.url, "w-2") as (client, heard),
    ):
        for k in range(40):
            client.publish(request_topic("w-2"), ask(k, (1.0, 4.0), hpc.sha256, PATIENT_MS), 1)
        ids = {reply_of(heard.get(timeout=60), hpc).id for _ in range(40)}
        assert len(ids) == 40
        assert heard.empty()
        served = [one.service.counters.served, two.service.counters.served]
        assert sum(served) == 40
        assert min(served) >= 10


def test_what_is_no_request_is_counted_and_the_worker_goes_on(mosquitto, hpc):
    good = ask(1, (1.0, 4.0), hpc.sha256, PATIENT_MS)
    with working(hpc, mosquitto.url) as worker, asking(mosquitto.url, "w-3") as (client, heard):
        for payload in (b"", good[:-1], b"x" * 70_000, ask(2, (0.0, 0.0), "00" * 32, PATIENT_MS), b"x" * 2_000_000):
            client.publish(request_topic("w-3"), payload, 1)
        client.publish("hardcase/v1/-not-a-device/request", good, 1)
        client.publish(request_topic("w-3"), good, 1)
        assert other_hpc_in(heard.get(timeout=60).payload) == ((2).to_bytes(16, "big"), bytes.fromhex(hpc.sha256))
        assert reply_of(heard.get(timeout=60), hpc).status == OK
        counted = worker.counters()
        assert {k: n for k, n in counted.items() if n} == {
            "received": 6,  # the longest was kept back by the broker
            "malformed": 3,
            "oversized": 1,
            "other_hpc": 1,
            "served": 1,
            "batches": 1,
        }


def test_a_stop_answers_what_has_come_in(mosquitto, hpc):
    with asking(mosquitto.url, "w-4") as (client, heard):
        with working(hpc, mosquitto.url, linger_ms=60_000, max_batch=1000) as worker:
            for k in range(20):
                client.publish(request_topic("w-4"), ask(k, (1.0, 4.0), hpc.sha256, PATIENT_MS), 1)
            until(lambda: worker.service.counters.received == 20)
            assert heard.empty()
        assert len({reply_of(heard.get(timeout=60), hpc).id for _ in range(20)}) == 20


def test_a_worker_survives_its_brokers_restart(tmp_path, hpc):
    with running_mosquitto(tmp_path) as broker, working(hpc, broker.url) as worker:
        broker.restart()
        until(lambda: worker.client.connects == 2)
        with asking(broker.url, "w-5") as (client, heard):
            client.publish(request_topic("w-5"), ask(1, (1.0, 4.0), hpc.sha256, PATIENT_MS), 1)
            assert reply_of(heard.get(timeout=60), hpc).status == OK


def test_without_a_broker_a_worker_says_so(hpc):
    with (
        pytest.raises(LinkError, match=r"broker mqtt://127\.0\.0\.1:\d+: .*; start it"),
        working(hpc, f"mqtt://127.0.0.1:{free_port()}"),
    ):
        pass


def test_a_reply_that_finds_no_broker_is_counted_and_remembered(hpc):
    worker = Worker(Service(hpc), parse_address("mqtt://127.0.0.1:1"), "g")
    for _ in range(2):
        worker.service.receive(request_topic("w-1"), ask(1, (1.0, 4.0), hpc.sha256, PATIENT_MS), time.monotonic())
    worker.run(count=1)
    counted = worker.counters()
    assert (counted["served"], counted["repeated"], counted["unsent"]) == (1, 1, 1)


# ---------------------------------------------------------------- the commands


def test_the_worker_command_says_ready_serves_and_says_what_it_did(mosquitto, hpc):
    flags = ("--broker", mosquitto.url, "--hpc", str(hpc.path), "--json")
    with command("cloud", "worker", *flags) as run, asking(mosquitto.url, "w-6") as (client, heard):
        ready = run.wait_for("ready")
        assert (ready["hpc"], ready["mqtt"], ready["pid"]) == (hpc.sha256, "5", run.process.pid)
        client.publish(request_topic("w-6"), ask(1, (1.0, 4.0), hpc.sha256, PATIENT_MS), 1)
        heard.get(timeout=60)
        assert run.finish() == 0
        assert run.wait_for("stopped")["served"] == 1
        assert run.stderr() == ""


def test_the_worker_command_ends_after_its_count(mosquitto, hpc):
    flags = ("--broker", mosquitto.url, "--hpc", str(hpc.path), "--json", "--count", "1")
    with command("cloud", "worker", *flags) as run, asking(mosquitto.url, "w-7") as (client, heard):
        run.wait_for("ready")
        client.publish(request_topic("w-7"), ask(1, (1.0, 4.0), hpc.sha256, PATIENT_MS), 1)
        heard.get(timeout=60)
        assert run.process.wait(90) == 0


def refused(*arguments: str) -> str:
    """The one line with which a command ends; its status must be 2."""
    with command("cloud", *arguments) as run:
        assert run.process.wait(90) == 2
        [line] = run.stderr().splitlines()
    return line


def test_a_worker_without_a_broker_ends_with_one_line(hpc):
    line = refused("worker", "--broker", f"mqtt://127.0.0.1:{free_port()}", "--hpc", str(hpc.path))
    assert line.startswith("hardcase cloud: broker mqtt://127.0.0.1:")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(["worker", "--broker", "http://x"], "MQTT URL", id="no-mqtt-url"),
        pytest.param(
            ["worker", "--broker", "nats://x", "--ca", "c"], "broker 'nats://x' is not encrypted", id="nats-worker"
        ),
        pytest.param(["up", "--broker", "natss://x,y"], "is not an MQTT URL", id="nats-up"),
        pytest.param(["up", "--bind", "127.0.0.1"], "is not host:port", id="no-bind"),
        pytest.param(["up", "--bind", "0.0.0.0:0"], "run mosquitto or EMQX there", id="open-to-the-world"),
        pytest.param(["up", "--bind", "127.0.0.1:0", "--workers", "2"], "cannot share requests", id="two-workers"),
        pytest.param(["up", "--bind", "127.0.0.1:0", "--cert", "c"], "require --broker", id="tls-without-a-broker"),
        pytest.param(["up", "--bind", "127.0.0.1:0", "--workers", "-1"], "expected 0 to 64", id="negative"),
        pytest.param(["up", "--broker", "mqtt://h", "--cert", "c"], "not encrypted", id="tls-without-encryption"),
    ],
)
def test_flags_that_cannot_be_used_end_with_one_line(hpc, flags, message):
    assert message in refused(*flags, "--hpc", str(hpc.path))


def test_a_port_in_use_ends_up_with_one_line(mosquitto, hpc):
    line = refused("up", "--bind", f"127.0.0.1:{mosquitto.port}", "--hpc", str(hpc.path))
    assert line.endswith(f"cannot listen on 127.0.0.1:{mosquitto.port}: Address already in use; stop the program "
                         "that does, or choose another address with --bind")  # fmt: skip


def test_up_with_a_model_that_is_none_ends_with_status_2(tmp_path):
    with command("cloud", "up", "--bind", "127.0.0.1:0", "--hpc", str(tmp_path / "none.onnx")) as run:
        assert run.process.wait(90) == 2
        lines = run.stderr().splitlines()
    assert "cannot be read" in lines[0]
    assert len(lines) == 2


def test_up_serves_starts_a_killed_worker_again_and_leaves_nothing_behind(hpc):
    with command("cloud", "up", "--bind", "127.0.0.1:0", "--hpc", str(hpc.path), "--json") as run:
        ready = run.wait_for("ready")
        [first] = ready["workers"]
        with asking(ready["broker"], "w-8", 4) as (client, heard):
            client.publish(request_topic("w-8"), ask(1, (1.0, 4.0), hpc.sha256, PATIENT_MS), 1)
            assert reply_of(heard.get(timeout=60), hpc).status == OK
            os.kill(first, signal.SIGKILL)
            assert run.wait_for("worker-died")["status"] == -signal.SIGKILL
            second = run.wait_for("worker-ready", 2)["pid"]
            assert second != first
            client.publish(request_topic("w-8"), ask(2, (1.0, 4.0), hpc.sha256, PATIENT_MS), 1)
            assert reply_of(heard.get(timeout=60), hpc).status == OK
        assert run.finish() == 0
        assert run.wait_for("stopped") == {"event": "stopped", "restarts": 1}
        assert run.stderr() == ""
    assert not psutil.pid_exists(second)


def test_a_worker_does_not_outlive_an_up_that_was_killed(hpc):
    with command("cloud", "up", "--bind", "127.0.0.1:0", "--hpc", str(hpc.path), "--json") as run:
        [worker] = run.wait_for("ready")["workers"]
        run.process.kill()
        until(lambda: not psutil.pid_exists(worker))


def test_up_shows_no_password_in_a_command_line(mosquitto, hpc):
    flags = ("--broker", mosquitto.url.replace("//", "//worker:secret@"), "--hpc", str(hpc.path), "--json")
    with command("cloud", "up", *flags) as run:
        shown = " ".join(psutil.Process(run.wait_for("ready")["workers"][0]).cmdline())
        assert mosquitto.url in shown
        assert "secret" not in shown
        assert run.finish() == 0


def test_up_with_a_broker_of_your_own_runs_several_workers(mosquitto, hpc):
    flags = ("--broker", mosquitto.url, "--workers", "2", "--hpc", str(hpc.path), "--json")
    with command("cloud", "up", *flags) as run:
        assert len(set(run.wait_for("ready")["workers"])) == 2
        assert run.finish() == 0


def test_up_can_be_stopped_before_it_is_ready(tmp_path):
    (tmp_path / "m.hcb").write_bytes(pack_bundle(half_forwarding("ab" * 32).bundle))
    (tmp_path / "endless.py").write_text("import threading\nthreading.Event().wait()\n")  # so that it never is
    flags = ("--bind", "127.0.0.1:0", "--hpc", "endless:answer", "--bundle", str(tmp_path / "m.hcb"), "--json")
    environment = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    with command("cloud", "up", *flags, environment=environment) as run:
        until(lambda: psutil.Process(run.process.pid).children())
        assert run.finish() == 0
        assert [e["event"] for e in run.events if e["event"] == "ready"] == []


def test_up_without_workers_is_a_broker_alone(hpc):
    with command("cloud", "up", "--bind", "127.0.0.1:0", "--workers", "0", "--hpc", str(hpc.path), "--json") as run:
        ready = run.wait_for("ready")
        assert ready["workers"] == []
        with asking(ready["broker"], "w-9", 4):
            pass
        assert run.finish() == 0
