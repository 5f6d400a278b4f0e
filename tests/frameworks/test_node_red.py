# SPDX-License-Identifier: Apache-2.0
"""The examples in JavaScript as a user runs them: the node in a real Node-RED, and a worker against a real broker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hardcase.cli import main
from hardcase_cloud.mqtt.prober import Prober
from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.kernel.machine import decide
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.wire import OK, OTHER_HPC, Reply, reply_topic, request_topic, unpack_reply
from tests.helpers.cloud.brokers import Broker, free_port, until
from tests.helpers.cloud.requests import ask, half_forwarding
from tests.helpers.places import ROOT
from tests.helpers.tools import need

INSTALLED = ROOT / "build" / "node-red"
NODE, WORKER = ROOT / "examples" / "node-red", ROOT / "examples" / "worker-js"
SHA, OTHER = "ab" * 32, "cd" * 32
ANSWER = "export default ({ x0, x1 }) => ({ result: x0 > (x1 ?? 0) ? 0 : 1, confidence: x0 > 100 ? 99999 : 9000 });\n"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle and its package for JavaScript, beside where npm has put what the examples need."""
    need("node")
    if not (INSTALLED / "node_modules" / "node-red").exists():
        pytest.skip("node-red and mqtt for Node are needed: make toolchains")
    folder = tmp_path_factory.mktemp("js")
    (folder / "model.hcb").write_bytes(pack_bundle(half_forwarding(SHA).bundle))
    assert main(["export", str(folder / "model.hcb"), "--js", str(folder / "policy")]) == 0
    return folder / "policy"


@contextmanager
def running(*words: object, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of Node, which is told to end."""
    command = [*need("node"), *map(str, words)]
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=60)


# ---------------------------------------------------------------- Node-RED


@pytest.fixture(scope="module")
def flow(policy: Path) -> Iterator[str]:
    """The URL of the example's flow, whose sensor a comes with the message, and b when it is asked for."""
    folder, port = policy.parent / "user", free_port()
    folder.mkdir()
    settings = {"uiHost": "127.0.0.1", "httpAdminRoot": False, "nodesDir": [str(NODE)], "flowFile": "flow.json"}
    more = {"logging": {"console": {"level": "info"}}, "telemetry": {"enabled": False}}
    (folder / "settings.js").write_text(f"module.exports = {json.dumps({**settings, **more, 'uiPort': port})};\n")
    nodes = json.loads((NODE / "flow.json").read_text())
    for node in nodes:
        if node["type"] == "function":
            node["initialize"] = "flow.set('readings', { b: [-3] });"
    (folder / "flow.json").write_text(json.dumps(nodes))
    red = INSTALLED / "node_modules" / "node-red" / "red.js"
    with running(red, "--userDir", folder, "--settings", folder / "settings.js", cwd=policy.parent) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while "Started flows" not in (lines or [""])[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        yield f"http://127.0.0.1:{port}/decide"


def posted(url: str, payload: Any) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(payload).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.load(answer))


def test_the_node_decides_in_a_flow_as_python_does(flow: str) -> None:
    loaded = half_forwarding(SHA)
    for a in (-2.0, 3.0):
        made = decide(loaded.machine, [a, -3.0])
        said = posted(flow, {"a": [a]})
        assert said["result"] == loaded.manifest.classes[int(made.result)]
        assert (said["route"], said["cost"]) == (made.route, made.cost / 1e6)
        assert said["sensors"] == [loaded.manifest.sensors[k] for k in made.sensors]
        assert (said["unit"], said["failed"]) == ("mJ", [])


def test_what_the_node_is_given_may_be_anything(flow: str) -> None:
    for given in ({"a": None}, {"a": "x"}, {"a": [1, 2]}, {}, {"a": {"x1": 3}}, {"__proto__": {"a": 1}}):
        assert posted(flow, given)["failed"] == ["a"]
    assert posted(flow, {"a": {"x0": 3.0}})["route"] == "degraded"
    assert posted(flow, {"a": -1})["route"] == "local"


# ---------------------------------------------------------------- the worker


@pytest.fixture
def worker(policy: Path, broker: Broker, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The example's worker, ready."""
    shutil.copyfile(WORKER / "worker.mjs", tmp_path / "worker.mjs")
    os.symlink(INSTALLED / "node_modules", tmp_path / "node_modules")
    (tmp_path / "answer.mjs").write_text(ANSWER)
    with running("worker.mjs", broker.url, policy, "answer.mjs", cwd=tmp_path) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"event": "ready", "hpc": SHA}
        yield process


def test_the_worker_answers_by_the_page_of_the_wire(worker: subprocess.Popen[str], broker: Broker) -> None:
    client = Prober(parse_address(broker.url), None, "js")
    client.subscribe(reply_topic("js"))

    def publish(payload: bytes) -> None:
        client.publish(request_topic("js"), payload, correlation=payload[8:24], expiry_s=5)

    def answered(payload: bytes) -> Reply:
        publish(payload)
        return unpack_reply(client.message().payload, bytes.fromhex(SHA), 3)

    for k, (readings, result) in enumerate([((5.0, 1.0), 0), ((-1.0, 2.0), 1), ((1.0, None), 0)], 1):
        reply = answered(ask(k, readings, SHA, 5_000))
        assert (reply.id, reply.status, reply.result, reply.confidence) == (k.to_bytes(16, "big"), OK, result, 9000)
    assert answered(ask(1, (5.0, 1.0), SHA, 4_000)).result == 0  # it comes again
    publish(ask(1, (6.0, 1.0), SHA, 4_000))  # the same id with other readings
    for bad in (b"", b"x", ask(9, (1.0, 1.0), SHA)[:-1], b"\x02" + ask(9, (1.0, 1.0), SHA)[1:], bytes(70_000)):
        publish(bad)
    publish(ask(9, (1.0, 1.0), SHA, 3_600_001))
    assert answered(ask(10, (101.0, 1.0), SHA, 5_000)).status != OK  # 99999 is no confidence
    publish(ask(11, (1.0, 1.0), OTHER, 5_000))
    told = client.message().payload
    assert (told[2], told[32:64].hex()) == (OTHER_HPC, SHA)
    client.close()
    worker.send_signal(signal.SIGTERM)
    assert worker.stdout is not None
    until(lambda: worker.poll() is not None)
    said = json.loads(worker.stdout.read().splitlines()[-1])
    assert said == {
        "event": "stopped", "served": 4, "repeated": 1, "refused": 1, "malformed": 6, "oversized": 1, "other_hpc": 1,
    }  # fmt: skip
