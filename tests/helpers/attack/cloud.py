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
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from math import ceil
from pathlib import Path

from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.link.link import Link, LinkConfig
from hardcase_edge.link.wire import OK, Reply, Request, pack_reply, pack_request, reply_topic, request_topic

from ..cloud.guarded import Guarded, guarded_mosquitto
from ..cloud.raw_mqtt import publish
from ..cloud.requests import DTYPES, Command, command, half_forwarding, write_model
from ..places import ROOT
from .outcome import Attack, Outcome, calls, each

GARBAGE, HUNG = "broken requests and forged replies", "rows that make a function hang"
Cases = Generator[Callable[[], Outcome], None, None]
READINGS, ANSWER, FORGED = (1.0, 4.0), 1, 2  # what the victim asks, what the model says, and what the forger says
DEADLINE_S, PATIENT_S = 2.0, 60.0
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

    def __init__(self, broker: Guarded, worker: Command, sha256: str) -> None:
        self.broker, self.worker, self.sha256 = broker, worker, sha256
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
def answering(folder: Path, loud: Sequence[str], sha256: str, *words: str, **environment: str) -> Iterator[Cloud]:
    """A cloud for the device "victim" and others, whose command has these words more."""
    with guarded_mosquitto(folder, ["victim", *loud]) as broker:
        secrets = {"HARDCASE_MQTT_USER": "worker", "HARDCASE_MQTT_PASSWORD": broker.passwords["worker"]}
        flags = ["--broker", f"mqtt://{broker.host}:{broker.workers_port}", "--json"]
        with command("cloud", *words, *flags, environment={**secrets, **environment}) as running:
            running.wait_for("ready")
            cloud = Cloud(broker, running, sha256)
            try:
                yield cloud
            finally:
                cloud.link.stop()


@contextmanager
def attacked() -> Iterator[Cloud]:
    """A worker for the devices "victim" and "loud" while the block runs."""
    with tempfile.TemporaryDirectory() as name:
        model = write_model(Path(name))
        sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
        with answering(Path(name), ["loud"], sha256, "worker", "--hpc", str(model)) as cloud:
            yield cloud


def flood(rate: float, qos: int, n_asked: int, deadline_s: float = DEADLINE_S, seconds: float = 2.0) -> Attack:
    """One device sends ``rate`` valid requests a second while another asks ``n_asked`` times.

    The flood lasts for ``seconds`` at least, and until the victim has asked for the last time. Wrong is how many
    answers are missing from 95 % of those that the victim gets when it is alone.
    """
    name = f"flood of one device, {rate:,.0f}/s at QoS {qos}"

    def flooded(cloud: Cloud) -> Outcome:
        alone = cloud.answered(n_asked, deadline_s=deadline_s)
        assert alone == n_asked, "the victim is not even answered alone"
        flags = ["--port", str(cloud.broker.port), "--device", "loud"]
        flags += [f"--password={cloud.broker.passwords['loud']}"]  # which may begin with a dash
        flags += ["--sha", cloud.sha256, "--rate", str(rate), "--qos", str(qos), "--seconds", str(seconds)]
        command_line = [sys.executable, "-m", f"{__package__}.flood", *flags]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command_line, cwd=ROOT, text=True, **pipes) as flooder:
            assert flooder.stdin is not None
            assert flooder.stdout is not None
            flooder.stdout.readline()  # it has begun
            beside = cloud.answered(n_asked, (seconds - 1) / n_asked, deadline_s)
            flooder.stdin.close()  # not before, however long the answers took
            n_sent = int(flooder.stdout.readline())
        return Outcome(name, n_sent, int(cloud.has_died), max(0, ceil(SHARE * alone) - beside))

    def cases(_: random.Random) -> Cases:
        with attacked() as cloud:
            yield partial(flooded, cloud)

    return calls(name, cases)


def broken_and_forged(chance: random.Random) -> Cases:
    """One device sends broken requests, and well-formed replies to another, which asks meanwhile."""

    def sent(n: int = 50) -> Outcome:
        for k in range(n):
            request = bytearray(pack_request(Request(chance.randbytes(16), hpc, 2000, READINGS), DTYPES))
            for _ in range(chance.randrange(1, 4)):
                request[chance.randrange(len(request))] = chance.randrange(256)
            broken = bytes(request[: chance.randrange(len(request))] if chance.random() < 0.3 else request)
            forged = pack_reply(Reply(chance.randbytes(16), hpc, OK, FORGED, 10_000))
            reply = publish(reply_topic("victim"), forged, retain=k % 2 == 0)
            loud.send(publish(request_topic("loud"), broken), reply)
        right, heard = cloud.answered(1, 0.0, PATIENT_S), cloud.link.counters
        n_forged = heard["unknown"] + heard["late"] + heard["malformed"] + heard["other_hpc"]
        return Outcome(GARBAGE, 2 * n, int(cloud.has_died), 1 - right + n_forged)

    with attacked() as cloud, closing(cloud.broker.client("loud")) as loud:
        hpc = bytes.fromhex(cloud.sha256)
        while True:
            yield sent


garbage = calls(GARBAGE, broken_and_forged)


def hang(n_asked: int, seconds: float, n_loud: int = 4) -> Attack:
    """Devices send rows that make a function hang, one after another, while another device asks ``n_asked`` times.

    Wrong is how many answers are missing from 95 %.
    """
    sha256, names = "ab" * 32, [f"loud-{k}" for k in range(n_loud)]

    def hung(cloud: Cloud) -> Outcome:
        loud = [cloud.broker.client(name) for name in names]
        right = cloud.answered(1) - 1  # the worker knows the victim
        for k in range(n_asked):
            for name, client in zip(names, loud, strict=True):
                poison = Request(os.urandom(16), bytes.fromhex(sha256), 60_000, (POISON, 0.0))
                client.send(publish(request_topic(name), pack_request(poison, DTYPES), qos=1))
            right += cloud.answered(1, seconds / n_asked if k else 0.0)
        for client in loud:
            client.close()
        return Outcome(HUNG, n_asked * n_loud, int(cloud.has_died), max(0, ceil(SHARE * n_asked) - right))

    def cases(_: random.Random) -> Cases:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "hanging.py").write_text(HANGING)
            (folder / "model.hcb").write_bytes(pack_bundle(half_forwarding(sha256).bundle))
            words = ["up", "--hpc", "hanging:answer", "--bundle", str(folder / "model.hcb")]
            path = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
            with answering(folder, names, sha256, *words, PYTHONPATH=path) as cloud:
                yield partial(hung, cloud)

    return calls(HUNG, cases)


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Every attack on the cloud for about this long in all."""
    long = max(2.0, seconds / 5)
    floods = [flood(rate, qos, 40, seconds=long) for rate, qos in ((4_000, 1), (45_000, 0), (45_000, 1))]
    every = each(*floods, hang(40, seconds / 4), garbage)
    return every(seconds, seed)
