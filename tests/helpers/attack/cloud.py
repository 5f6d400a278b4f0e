# SPDX-License-Identifier: Apache-2.0
"""Attacks on the cloud: devices that flood, ask garbage, make a function hang, or reach for topics of others.

All of it goes through a real mosquitto with the folder of ``hardcase cloud acl`` and a worker in a process of its own.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path

from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.link.link import Link, LinkConfig
from hardcase_edge.link.wire import OK, Reply, Request, pack_reply, pack_request, reply_topic, request_topic

from ..cloud.guarded import Guarded, guarded_mosquitto
from ..cloud.raw_mqtt import publish
from ..cloud.requests import DTYPES, Command, command, half_forwarding, write_model
from .outcome import Outcome
from .trespass import trespass

__all__ = ["attack", "flood", "garbage", "hang"]

ROOT = Path(__file__).parents[3]
READINGS, ANSWER, FORGED = (1.0, 4.0), 1, 2  # what the victim asks, what the model says, and what the forger says
DEADLINE_S = 2.0
SHARE = 0.95  # of the answers that the victim gets alone
POISON = 13.0
HANGING = f"""
import threading
def answer(X, names):
    if (X[:, 0] == {POISON}).any():
        threading.Event().wait()
    return ["green"] * len(X)
"""


class Cloud:
    """A guarded broker, a worker, and the victim's link."""

    def __init__(self, folder: Path, broker: Guarded, worker: Command, sha256: str) -> None:
        self.folder, self.broker, self.worker, self.sha256 = folder, broker, worker, sha256
        loaded = half_forwarding(sha256)
        self.link = Link(
            LinkConfig.to_broker(broker.url_of("victim"), "victim"), loaded.machine.program, loaded.manifest
        )
        assert self.link.start(10), self.link.trouble

    def answered(self, n: int, pause_s: float = 0.01, deadline_s: float = DEADLINE_S) -> int:
        """Ask so many times; how many answers are the model's."""
        right = 0
        for _ in range(n):
            reply = self.link.ask(READINGS, deadline_s)
            right += reply is not None and (reply.status, reply.result) == (OK, ANSWER)
            time.sleep(pause_s)
        return right

    @property
    def has_died(self) -> bool:
        """Whether the worker or the broker has ended."""
        return self.worker.process.poll() is not None or not self.broker.is_running


@contextmanager
def attacked(folder: Path) -> Iterator[Cloud]:
    """A cloud for the devices "victim" and "loud" while the block runs."""
    model = write_model(folder)
    sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
    with guarded_mosquitto(folder, ["victim", "loud"]) as broker:
        secrets = {"HARDCASE_MQTT_USER": "worker", "HARDCASE_MQTT_PASSWORD": broker.passwords["worker"]}
        url = f"mqtt://{broker.host}:{broker.workers_port}"
        with command("cloud", "worker", "--broker", url, "--hpc", str(model), "--json", environment=secrets) as worker:
            worker.wait_for("ready")
            cloud = Cloud(folder, broker, worker, sha256)
            try:
                yield cloud
            finally:
                cloud.link.stop()


def flood(
    folder: Path, *, seconds: float, n_asked: int, rate: float, qos: int, deadline_s: float = DEADLINE_S
) -> Outcome:
    """One device sends ``rate`` valid requests a second while another asks ``n_asked`` times.

    ``wrong`` is how many answers are missing from 95 % of those that the victim gets when it is alone.
    """
    with attacked(folder) as cloud:
        alone = cloud.answered(n_asked)
        assert alone == n_asked, "the victim is not even answered alone"
        flags = ["--port", str(cloud.broker.port), "--device", "loud"]
        flags += [f"--password={cloud.broker.passwords['loud']}"]  # which may begin with a dash
        flags += ["--sha", cloud.sha256, "--rate", str(rate), "--qos", str(qos), "--seconds", str(seconds)]
        command_line = [sys.executable, "-m", f"{__package__}.flood", *flags]
        with subprocess.Popen(command_line, cwd=ROOT, stdout=subprocess.PIPE, text=True) as flooder:
            assert flooder.stdout is not None
            flooder.stdout.readline()  # it has begun
            beside = cloud.answered(n_asked, (seconds - 1) / n_asked, deadline_s)
            n_sent = int(flooder.stdout.readline())
        missing = max(0, ceil(SHARE * alone) - beside)
        return Outcome(f"flood of one device, {rate:,.0f}/s at QoS {qos}", n_sent, int(cloud.has_died), missing)


def garbage(folder: Path, n: int, seed: int) -> Outcome:
    """One device sends ``n`` broken requests and ``n`` well-formed replies to another, which asks meanwhile."""
    chance = random.Random(seed)
    with attacked(folder) as cloud:
        loud = cloud.broker.client("loud")
        hpc, n_asked, right = bytes.fromhex(cloud.sha256), 0, 0
        for k in range(n):
            request = bytearray(pack_request(Request(chance.randbytes(16), hpc, 2000, READINGS), DTYPES))
            for _ in range(chance.randrange(1, 4)):
                request[chance.randrange(len(request))] = chance.randrange(256)
            broken = bytes(request[: chance.randrange(len(request))] if chance.random() < 0.3 else request)
            forged = pack_reply(Reply(chance.randbytes(16), hpc, OK, FORGED, 10_000))
            loud.send(publish(request_topic("loud"), broken), publish(reply_topic("victim"), forged, retain=k % 2 == 0))
            if k % 50 == 0:
                n_asked += 1
                right += cloud.answered(1, 0.0)
        loud.settle()
        loud.close()
        heard = cloud.link.counters
        n_forged = heard["unknown"] + heard["late"] + heard["malformed"] + heard["other_hpc"]
        return Outcome("broken requests and forged replies", 2 * n, int(cloud.has_died), n_asked - right + n_forged)


def hang(folder: Path, *, seconds: float, n_asked: int, n_loud: int = 4) -> Outcome:
    """Devices send rows that make a function hang, one after another, while another device asks ``n_asked`` times.

    ``wrong`` is how many answers are missing from 95 %.
    """
    sha256 = "ab" * 32
    (folder / "hanging.py").write_text(HANGING)
    (folder / "model.hcb").write_bytes(pack_bundle(half_forwarding(sha256).bundle))
    names = [f"loud-{k}" for k in range(n_loud)]
    with guarded_mosquitto(folder, ["victim", *names]) as broker:
        flags = ["--broker", f"mqtt://{broker.host}:{broker.workers_port}", "--json", "--hpc", "hanging:answer"]
        environment = {
            "HARDCASE_MQTT_USER": "worker",
            "HARDCASE_MQTT_PASSWORD": broker.passwords["worker"],
            "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}",
        }
        bundle = ["--bundle", str(folder / "model.hcb")]
        with command("cloud", "up", *flags, *bundle, environment=environment) as up:
            up.wait_for("ready")
            cloud = Cloud(folder, broker, up, sha256)
            loud = [broker.client(name) for name in names]
            right = cloud.answered(1) - 1  # the worker knows the victim
            n_sent = 0
            for k in range(n_asked):
                for name, client in zip(names, loud, strict=True):
                    poison = Request(os.urandom(16), bytes.fromhex(sha256), 60_000, (POISON, 0.0))
                    client.send(publish(request_topic(name), pack_request(poison, DTYPES), qos=1))
                    n_sent += 1
                right += cloud.answered(1, seconds / n_asked if k else 0.0)
            outcome = Outcome("rows that make a function hang", n_sent, int(cloud.has_died), 0)
            for client in loud:
                client.close()
            cloud.link.stop()
            up.finish()
            return replace(outcome, wrong=max(0, ceil(SHARE * n_asked) - right))


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Every attack on the cloud for about this long in all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        outcomes = trespass(folder / "trespass", 50, 100)
        for rate, qos in ((4_000, 1), (45_000, 0), (45_000, 1)):
            where = folder / f"flood-{rate}-{qos}"
            where.mkdir()
            outcomes.append(flood(where, seconds=max(2.0, seconds / 5), n_asked=40, rate=rate, qos=qos))
        (folder / "hang").mkdir()
        outcomes.append(hang(folder / "hang", seconds=seconds / 4, n_asked=40))
        (folder / "garbage").mkdir()
        outcomes.append(garbage(folder / "garbage", max(500, int(200 * seconds)), seed))
        return outcomes
