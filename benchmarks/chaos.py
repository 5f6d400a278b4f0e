# SPDX-License-Identifier: Apache-2.0
"""Chaos: devices, workers and a real mosquitto, of which something is always killed, stopped, flooded or full.

    python -m benchmarks run chaos [--seconds 200] [--devices 12] [--workers 2] [--seed 1]

Every device numbers its items, notes each number in a file before it decides, and answers with the number, on the
device or in the cloud. So a line of a decision that is missing, was written twice or came too late can be told, and by
whose fault. The devices' plug-ins print, hang, keep Python's lock and crash; one device's disk is full now and then; a
function that answers in the cloud hangs on some rows. The exit status is 1 if a decision has no line, or more than one,
or came later than its deadline plus 10 ms while nobody had stopped its device and the machine itself was in time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.value import Value
from hardcase_edge.link.wire import request_topic
from hardcase_edge.program.definition import (
    CODE_MAX,
    MICRO,
    THRESHOLD,
    Acquire,
    Affine,
    Answer,
    Branch,
    Column,
    Costs,
    Feature,
    Forward,
    Polynomial,
    Program,
    Sensor,
    Slice,
    Uplink,
)
from hardcase_edge.program.readings import request_bytes
from tests.helpers.cloud.brokers import Broker

DEADLINE_MS, MARGIN_MS, TIMEOUT_MS, INTERVAL_S = 1000, 10, 200, 0.25
KINDS = ("plain", "prints", "hangs", "isolated", "full")  # what a device's second sensor does; the last: its disk
PAUSE_S = 0.7  # between two blows, on average
FULL_BYTES = 400  # left on a disk that becomes full: a line or two, the last of them cut

SENSORS = """
import ctypes, os, random, sys, time

kind, numbers = os.environ["CHAOS_KIND"], os.environ["CHAOS_NUMBERS"]

def number(sensor):  # the item's number, noted before it is returned; odd numbers are hard cases
    file = os.open(numbers, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    k = os.fstat(file).st_size // 6 + 1
    os.write(file, b"%5d\\n" % k)
    os.close(file)
    return [k, k % 2]

def other(sensor):
    if kind == "prints":
        print("not a decision")
        os.write(1, b'{"t": 0}')
        os.system("echo child")
    if kind == "hangs" and random.random() < 0.1:
        time.sleep(1)
    if kind == "isolated" and random.random() < 0.2:
        random.choice([lambda: os._exit(1), lambda: ctypes.string_at(0), lambda: ctypes.PyDLL(None).sleep(600)])()
    return 1.0
"""
ANSWER = """
import time

def answer(X, names):
    if any(k % 89 == 0 for k in X[:, 0]):
        time.sleep(4)
    return X[:, 0]
"""


def make_bundle() -> bytes:
    """A policy of values: odd numbers go to the cloud, even ones buy the other sensor; all answer with the number."""
    uplink = Uplink(request_bytes(["i32"]), (0,))
    columns = tuple(Column(f, Affine(0, 1, 0, 0, -CODE_MAX, CODE_MAX)) for f in (0, 1))
    same = [Polynomial((c,), (0,), 1, ((0,),), ((1,),), (0,)) for c in (0, 1)]
    nodes = (
        Acquire((0,), 1, 4),
        Branch(Slice(1, 0, 1), THRESHOLD, (2, 3), 0),
        Acquire((1,), 4, 4),
        Forward((0,), 4),
        Answer(Slice(0, 0, 1), "value"),
    )
    sensors = (Sensor((0, 1), (MICRO,)), Sensor((2,), (MICRO,)))
    features = (Feature("i32"), Feature("i32"), Feature("f32"))
    program = Program(features, sensors, uplink, columns, tuple(same), nodes, 0, costs=Costs(MICRO))
    names = {"features": ("k", "hard", "x"), "sensors": ("number", "other")}
    manifest = Manifest("chaos", "mJ", **names, classes=(), hpc="11" * 32, target="k", value=Value("", 0))
    return pack_bundle(Bundle(manifest.to_json(), program, ()))


@dataclass
class Member:
    """A device or a worker, and the files that it writes; started again whenever it has ended."""

    name: str
    words: list[str]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    starts: int = 0
    killed: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    stopped: list[tuple[float, float]] = field(default_factory=list)  # when it was frozen or starting, in Unix seconds
    process: subprocess.Popen[bytes] | None = None

    def path(self, what: str) -> Path:
        """One of its files."""
        return self.folder / f"{self.name}.{what}"

    def start(self) -> None:
        """Start it; its files grow."""
        with self.path("lines").open("ab") as out, self.path("log").open("ab") as log:
            environment = {**os.environ, **self.environment}
            self.process = subprocess.Popen(
                self.words, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=self.folder, env=environment
            )
        self.starts += 1

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self.process is not None
        self.killed += number == signal.SIGKILL
        self.process.send_signal(number)

    def freeze(self, seconds: float) -> None:
        """Stop it for so long."""
        began = time.time()
        self.send(signal.SIGSTOP)
        time.sleep(seconds)
        self.send(signal.SIGCONT)
        self.stopped.append((began, time.time()))

    def end(self, number: signal.Signals) -> None:
        """End it, and wait; a device that does not end within 10 s is killed, and its status is -9."""
        self.send(number)
        self.wait()

    def wait(self) -> None:
        """Wait for its end."""
        assert self.process is not None
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.statuses[self.process.wait()] += 1


class Chaos:
    """One run."""

    def __init__(self, folder: Path, n_devices: int, n_workers: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.blows: Counter[str] = Counter()
        self.stalls: list[tuple[float, float]] = []  # when the machine woke a thread too late, in Unix seconds
        self._is_over = threading.Event()
        (folder / "mosquitto").mkdir()
        self.broker = Broker(folder / "mosquitto", {})
        (folder / "chaos.hcb").write_bytes(make_bundle())
        (folder / "chaos_sensors.py").write_text(SENSORS)
        (folder / "chaos_answer.py").write_text(ANSWER)
        python = [sys.executable, "-m"]
        worker = ["hardcase.cli", "cloud", "worker", "--hpc", "chaos_answer:answer", "--bundle", "chaos.hcb"]
        worker += ["--broker", self.broker.url, "--json"]
        self.workers = [Member(f"worker-{k}", python + worker, folder) for k in range(n_workers)]
        self.devices = [self._device(folder, k) for k in range(n_devices)]

    def _device(self, folder: Path, k: int) -> Member:
        kind = KINDS[k % len(KINDS)]
        words = [sys.executable, "-m", "hardcase_edge.cli", "run", "chaos.hcb", "--broker", self.broker.url]
        words += ["--device-id", f"d{k}", "--interval", str(INTERVAL_S), "--sensor-timeout-ms", str(TIMEOUT_MS)]
        words += ["--deadline-ms", str(DEADLINE_MS), *["--isolate"] * (kind == "isolated")]
        words += ["--sensors", "number=chaos_sensors:number", "--sensors", "other=chaos_sensors:other"]
        environment = {"CHAOS_KIND": kind, "CHAOS_NUMBERS": str(folder / f"d{k}.numbers")}
        return Member(f"d{k}", words, folder, environment)

    def run(self, seconds: float) -> None:
        """Start all, strike until the time is over, and end all in order."""
        threading.Thread(target=self._watch_machine, daemon=True).start()
        self.broker.start()
        for member in self.workers + self.devices:
            member.start()
        time.sleep(3)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.rng.expovariate(1 / PAUSE_S))
            self._strike()
            for member in self.workers + self.devices:
                if member.process is not None and member.process.poll() is not None:
                    member.wait()  # nobody ended it: its status is counted
                    member.start()
        for member in self.devices + self.workers:
            member.end(signal.SIGTERM)
        self.broker.kill()
        self._is_over.set()

    def _watch_machine(self) -> None:
        """Note when a thread that sleeps 5 ms sleeps for 10: then no process on this machine can be in time."""
        while not self._is_over.is_set():
            began = time.time()
            time.sleep(0.005)
            if (now := time.time()) - began > 0.010:
                self.stalls.append((began, now))

    def _strike(self) -> None:
        rng = self.rng
        device, worker = rng.choice(self.devices), rng.choice(self.workers)
        mortal = rng.choice([d for d in self.devices if d.environment["CHAOS_KIND"] != "full"])  # it tells what it lost
        blows = {
            "mosquitto SIGTERM": lambda: (self.broker.stop(), time.sleep(rng.uniform(0, 2)), self.broker.start()),
            "mosquitto SIGKILL": lambda: (self.broker.kill(), time.sleep(rng.uniform(0, 2)), self.broker.start()),
            "mosquitto frozen": self._freeze_broker,
            "worker SIGTERM": lambda: (worker.end(signal.SIGTERM), worker.start()),
            "worker SIGKILL": lambda: (worker.end(signal.SIGKILL), worker.start()),
            "worker frozen": lambda: worker.freeze(rng.uniform(1, 3)),
            "device SIGTERM": lambda: (device.end(signal.SIGTERM), device.start()),
            "device SIGKILL": lambda: (mortal.end(signal.SIGKILL), mortal.start()),
            "device frozen": lambda: device.freeze(rng.uniform(1, 3)),
            "flood": self._flood,
            "disk full": self._fill_disk,
        }
        name = rng.choice(list(blows))
        self.blows[name] += 1
        blows[name]()

    def _freeze_broker(self) -> None:
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(self.rng.uniform(1, 3))
        os.kill(self.broker.pid, signal.SIGCONT)

    def _flood(self) -> None:
        """Two seconds of requests of one device, as fast as a client sends them; most are garbage."""
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id="flood")
        client.connect(self.broker.host, self.broker.port)
        client.loop_start()
        end = time.monotonic() + 2
        while time.monotonic() < end:
            for _ in range(20):
                client.publish(request_topic("flood"), os.urandom(60), qos=0)
            time.sleep(0.005)
        client.disconnect()
        client.loop_stop()

    def _fill_disk(self) -> None:
        """No file of one device can grow any more for a while; its numbers lie on another disk, so to speak."""
        device = next(d for d in self.devices if d.environment["CHAOS_KIND"] == "full")
        assert device.process is not None
        size = device.path("lines").stat().st_size + FULL_BYTES
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        try:
            resource.prlimit(device.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            time.sleep(3)
            resource.prlimit(device.process.pid, resource.RLIMIT_FSIZE, unlimited)
        except ProcessLookupError:
            return


# ---------------------------------------------------------------- what came of it


@dataclass
class Account:
    """The decisions of one or all devices."""

    begun: int = 0
    routes: Counter[str] = field(default_factory=Counter)
    told_lost: int = 0  # lines that a full disk has cost, as the device says
    cut: int = 0
    missing: int = 0  # no line, and the device neither said so nor was killed
    twice: int = 0
    late: int = 0
    stalled: int = 0  # late, too, but so was the machine itself
    latencies: list[float] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)  # what the devices' logs say of each, on one line

    def add(self, device: Member, stalls: list[tuple[float, float]]) -> None:
        """Count one device's files."""
        numbers = [int(line) for line in device.path("numbers").read_text().split()]
        seen: Counter[int] = Counter()
        nameless = 0  # decisions whose first sensor timed out while the device was frozen
        for line in device.path("lines").read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
                value = record["value"]
            except (ValueError, KeyError):
                self.cut += bool(line)
                continue
            self.routes[record["route"]] += 1
            nameless += value == 0
            seen[int(value)] += value != 0
            self._time(device, record, stalls)
        log = device.path("log").read_text(errors="replace")
        self.begun += len(numbers)
        self.tracebacks += [part[:2000].replace("\n", " | ") for part in log.split("Traceback")[1:]]
        words = [line.split() for line in log.splitlines() if line.endswith("decisions were not written")]
        told = sum(int(line[-5]) for line in words)
        self.told_lost += told
        self.twice += sum(n - 1 for n in seen.values() if n > 1) + len(seen.keys() - {0, *numbers})
        missing = len(set(numbers) - seen.keys())
        # of each process that was killed, one decision may have been under way
        excused = told + nameless + device.killed
        self.missing += max(0, missing - excused)

    def _time(self, device: Member, record: dict[str, float], stalls: list[tuple[float, float]]) -> None:
        began, ended = record["t"] - record["latency_ms"] / 1000, record["t"]
        if _meets(began - 0.1, ended + 0.1, device.stopped):
            return
        self.latencies.append(record["latency_ms"])
        if record["latency_ms"] > DEADLINE_MS + MARGIN_MS:
            # a late machine delays a decision where threads wake: when its sensors are read, and when its wait ends
            is_machines = _meets(began - 0.1, began + 0.2, stalls) or _meets(ended - 0.1, ended + 0.1, stalls)
            self.stalled += is_machines
            self.late += not is_machines


def _meets(began: float, ended: float, spans: list[tuple[float, float]]) -> bool:
    return any(began < to and since < ended for since, to in spans)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--devices", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)


def run(args: Any) -> int:
    """Run, and print what came of it; 1 if anything is missing, twice, late or a traceback."""
    with tempfile.TemporaryDirectory() as folder:
        chaos = Chaos(Path(folder), args.devices, args.workers, args.seed)
        try:
            chaos.run(args.seconds)
        finally:
            for member in chaos.devices + chaos.workers:
                if member.process is not None and member.process.poll() is None:
                    member.process.kill()
            chaos.broker.kill()
        account = Account()
        for device in chaos.devices:
            account.add(device, chaos.stalls)
        report(chaos, account)
    return int(bool(account.missing or account.twice or account.late or account.tracebacks))


def report(chaos: Chaos, account: Account) -> None:
    """Print the figures."""
    times = sorted(account.latencies)
    statuses = sum((d.statuses for d in chaos.devices), Counter())
    print("blows         " + ", ".join(f"{name} {n}" for name, n in sorted(chaos.blows.items())))
    print(f"decisions     {account.begun} begun; " + ", ".join(f"{r} {n}" for r, n in sorted(account.routes.items())))
    print(
        f"lines         {account.missing} missing, {account.twice} twice, {account.cut} cut by full disks and SIGKILL,"
    )
    print(f"              {account.told_lost} lost on full disks, as the devices say")
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    print(f"latency       p50 {p50:.1f} ms, p99 {p99:.1f}, max {times[-1]:.1f}")
    print(f"              {account.late} later than the deadline of {DEADLINE_MS} ms plus {MARGIN_MS} ms, and")
    print(f"              {account.stalled} while the machine itself was late ({len(chaos.stalls)} times)")
    n_devices, n_workers = (sum(m.starts for m in members) for members in (chaos.devices, chaos.workers))
    print(f"processes     {n_devices} of devices, exit statuses {dict(statuses)}; {n_workers} of workers; ", end="")
    print(f"{len(account.tracebacks)} tracebacks of devices")
    print("".join(f"traceback     {text}\n" for text in account.tracebacks), end="")
