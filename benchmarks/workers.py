# SPDX-License-Identifier: Apache-2.0
"""Workers: CPU a request, how they share work, how far they are from bare MQTT, and what a kill costs.

    python -m benchmarks run workers [--short] [--only PART ...] [--old FOLDER]

*CPU*: devices ask again as soon as they are answered; CPU of the worker's process over the requests that it served,
with an ONNX model and with a Python function. *Alone*: what a socket costs that only echoes, and what is added to it.
*Scaling*: 1, 2 and 4 workers whose model sleeps 5 ms a request, one at a
time. *Bare*: a request and reply through the same broker, answered by a paho client that does nothing else,
and by a worker, in turns. *Kill*: 600 devices ask once, and one of two workers gets SIGKILL with 400 requests
behind them. *Storm*: the broker gets SIGKILL under a fleet, and comes back.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.alone import alone
from benchmarks.pages import markdown
from hardcase_cloud.mqtt.prober import Prober
from hardcase_cloud.sim.fleet.sockets import Fleet
from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.device.device import RuntimeConfig
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.wire import reply_topic, request_topic
from tests.helpers.cloud.brokers import running_mosquitto
from tests.helpers.cloud.requests import Command, ask, command, half_forwarding, write_model

SHA = "ab" * 32
PARTS = ("cpu", "alone", "scaling", "bare", "kill", "storm")
MAX_MS, MIN_SCALING, MAX_RATIO, MAX_STORM_S = 0.3, (1.9, 3.6), 1.5, 30.0
FUNCTIONS = """
import time
def at_once(X, names):
    return ["green"] * len(X)
def sleeps(X, names):
    time.sleep(0.005 * len(X))
    return ["green"] * len(X)
"""
BARE = """
import sys, threading
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
client = paho.Client(CallbackAPIVersion.VERSION2, protocol=5)
client.on_socket_open = lambda c, u, s: s.setsockopt(6, 1, 1)
client.on_message = lambda c, u, m: c.publish(m.topic.replace("request", "reply"), bytes(64), 0)
client.on_subscribe = lambda *_: print("ready", flush=True)
client.connect("127.0.0.1", int(sys.argv[1]))
client.subscribe("hardcase/v1/bare/request", 1)
client.loop_forever()
"""
RATES = (1_000, 300, 100)  # requests a second
N_ROUNDS, TURN_S = 2, 8.0
N_ASKING, N_KILLED, N_TURNS, N_EACH = 64, 600, 10, 100
PAUSE_S = 0.001  # between two requests: a worker drops what a device asks beyond 1,000 a second
HEAD = """# Workers

`python -m benchmarks run workers` wrote this page, on a machine with 2 cores.

"""


@contextmanager
def workers(url: str, folder: Path, hpc: str, n: int, *flags: str, packages: str = "") -> Iterator[list[Command]]:
    """So many workers; ``packages``: where their packages are, if elsewhere."""
    (folder / "functions.py").write_text(FUNCTIONS)
    (folder / "model.hcb").write_bytes(pack_bundle(half_forwarding(SHA).bundle))
    words = ["cloud", "worker", "--broker", url, "--hpc", hpc, "--json", *flags]
    words += ["--bundle", str(folder / "model.hcb")] if ":" in hpc else []
    path = {"PYTHONPATH": f"{folder}{os.pathsep}{packages or os.environ.get('PYTHONPATH', '')}"}
    with ExitStack() as stack:
        running = [stack.enter_context(command(*words, environment=path)) for _ in range(n)]
        for one in running:
            one.wait_for("ready", seconds=60)
        yield running


def asking(url: str, sha256: str, n: int, seconds: float, interval_s: float = 0.0, **knobs: Any) -> Fleet:
    """Devices whose cases are all hard."""
    config = RuntimeConfig(interval_s=interval_s, deadline_ms=10_000)
    rows = np.ones((8, 2), np.float32)
    return Fleet(half_forwarding(sha256), rows, url, n_devices=n, config=config, seconds=seconds, **knobs)


def cpu_of(pid: int) -> float:
    """Seconds of CPU."""
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


def cpu(folder: Path, seconds: float) -> dict[str, Any]:
    """CPU a request, of a model and of a function, busy and at some rates."""
    found = {}
    model = write_model(folder)
    for name, hpc in (("ONNX model", str(model)), ("function", "functions:at_once")):
        sha256 = hashlib.sha256(model.read_bytes()).hexdigest() if name == "ONNX model" else SHA
        for load, n, interval_s in (("busy", N_ASKING, 0.0), *((f"{n:,} a second", n, 1.0) for n in RATES)):
            with running_mosquitto(folder) as broker, workers(broker.url, folder, hpc, 1) as [worker]:
                fleet = asking(broker.url, sha256, n, seconds, interval_s)
                before = cpu_of(worker.process.pid)
                fleet.start()
                fleet.wait(seconds + 20)
                spent = cpu_of(worker.process.pid) - before
                worker.finish()
                served = worker.wait_for("stopped")["served"]
                found[f"{name}, {load}"] = {"served": served, "ms": 1000 * spent / max(1, served), "s": seconds}
    return found


def turns(folder: Path, old: Path, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of CPU a request at 100 a second, of workers of another clone and of this one, in turns."""
    found: dict[str, list[float]] = {}
    model = write_model(folder)
    there = os.pathsep.join(str(old / name) for name in ("edge_runtime", "train", "export", "cloud_stub", "."))
    for _ in range(N_ROUNDS):
        for name, hpc, sha256 in (
            ("function", "functions:at_once", SHA),
            ("ONNX model", str(model), hashlib.sha256(model.read_bytes()).hexdigest()),
        ):
            for design, packages in (("first", there), ("second", "")):
                with (
                    running_mosquitto(folder) as broker,
                    workers(broker.url, folder, hpc, 1, packages=packages) as [worker],
                ):
                    fleet = asking(broker.url, sha256, 100, seconds, 1.0)
                    before = cpu_of(worker.process.pid)
                    fleet.start()
                    fleet.wait(seconds + 20)
                    spent = cpu_of(worker.process.pid) - before
                answered = fleet.journal.routes()["cloud"]
                found.setdefault(f"{name}, {design} design", []).append(1000 * spent / max(1, answered))
    return found


def scaling(folder: Path, seconds: float) -> dict[str, dict[str, float]]:
    """Answers a second of 1, 2 and 4 workers that sleep, and milliseconds of CPU a request."""
    found = {}
    for n in (1, 2, 4):
        hpc, flags = "functions:sleeps", ("--max-batch", "1", "--linger-ms", "0")
        with running_mosquitto(folder) as broker, workers(broker.url, folder, hpc, n, *flags) as running:
            fleet = asking(broker.url, SHA, N_ASKING, seconds)
            before = sum(cpu_of(one.process.pid) for one in running)
            fleet.start()
            fleet.wait(seconds + 20)
            spent = sum(cpu_of(one.process.pid) for one in running) - before
            answered = fleet.journal.routes()["cloud"]
            found[str(n)] = {"rate": answered / seconds, "ms": 1000 * spent / max(1, answered)}
    return found


def bare(folder: Path) -> dict[str, list[float]]:
    """Median milliseconds of a request and its reply, answered by paho and by a worker, in turns."""
    found: dict[str, list[float]] = {"paho": [], "worker": []}
    with running_mosquitto(folder) as broker, workers(broker.url, folder, "functions:at_once", 1, "--linger-ms", "0"):
        other = subprocess.Popen([sys.executable, "-c", BARE, str(broker.port)], stdout=subprocess.PIPE)
        try:
            assert other.stdout is not None
            other.stdout.readline()
            clients = {name: Prober(parse_address(broker.url), None, name) for name in ("bare", "asks")}
            for name, client in clients.items():
                client.subscribe(reply_topic(name))
            for turn in range(2 * N_TURNS):
                name = ("bare", "asks")[turn % 2]
                took = []
                for k in range(N_EACH):
                    payload = ask(turn * N_EACH + k, (1.0, 1.0), SHA, 2000)
                    began = time.monotonic()
                    clients[name].publish(request_topic(name), payload, correlation=payload[8:24], expiry_s=2)
                    assert clients[name].message() is not None
                    took.append(1000 * (time.monotonic() - began))
                    time.sleep(PAUSE_S)
                found["paho" if name == "bare" else "worker"].append(statistics.median(took))
        finally:
            other.terminate()
            other.wait()
    return found


def kill(folder: Path) -> dict[str, Any]:
    """600 requests, of which 400 are behind two workers when one of them gets SIGKILL."""
    hpc, flags = "functions:sleeps", ("--max-batch", "1", "--linger-ms", "0")
    with running_mosquitto(folder) as broker, workers(broker.url, folder, hpc, 2, *flags) as running:
        config = RuntimeConfig(deadline_ms=10_000)
        rows = np.ones((N_KILLED, 2), np.float32)
        fleet = Fleet(half_forwarding(SHA), rows, broker.url, n_devices=N_KILLED, config=config)
        fleet.start()
        while len(fleet.journal) < N_KILLED // 3:
            time.sleep(0.005)
        behind = N_KILLED - len(fleet.journal)
        os.kill(running[0].process.pid, signal.SIGKILL)
        fleet.wait(30)
        latest = max(ms for _, _, ms in fleet.journal.times())
        return {
            "behind": behind, "routes": dict(fleet.journal.routes()), "latest_ms": latest,
            "counters": dict(fleet.counters), "problems": fleet.reconcile(),
        }  # fmt: skip


def storm(folder: Path, n: int) -> dict[str, Any]:
    """The broker dies under a fleet and comes back: when are all connected, and what became of their decisions?"""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with (
        running_mosquitto(folder, max_connections=-1) as broker,
        workers(broker.url, folder, "functions:at_once", 1),
    ):
        fleet = asking(broker.url, SHA, n, 45.0, 10.0)
        fleet.start()
        time.sleep(3)
        broker.kill()
        time.sleep(1)
        broker.start()
        began = time.monotonic()
        while fleet.connected() < n and time.monotonic() - began < MAX_STORM_S + 5:
            time.sleep(0.1)
        back_s, connected = time.monotonic() - began, fleet.connected()
        fleet.stop()
        return {
            "devices": n, "connected": connected, "back_s": back_s, "routes": dict(fleet.journal.routes()),
            "problems": fleet.reconcile(),
        }  # fmt: skip


def measure(*, short: bool, only: Sequence[str] = PARTS) -> dict[str, Any]:
    """All of it, or only these parts."""
    seconds = 1.0 if short else 6.0
    found: dict[str, Any] = {}
    for name, run in (
        ("cpu", lambda folder: cpu(folder, seconds)),
        ("alone", lambda folder: alone()),
        ("scaling", lambda folder: scaling(folder, seconds)),
        ("bare", bare),
        ("kill", kill),
        ("storm", lambda folder: storm(folder, 200 if short else 10_000)),
    ):
        if name not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found[name] = run(Path(folder))
        print(json.dumps({name: found[name]}), file=sys.stderr, flush=True)
    return found


def page(m: dict[str, Any]) -> str:
    """The Markdown page."""
    misses = [f"{name}: {c['ms']:.2f} ms of CPU a request" for name, c in m["cpu"].items() if c["ms"] > MAX_MS]
    misses += [f"{n} workers that sleep: {c['ms']:.2f} ms" for n, c in m["scaling"].items() if c["ms"] > MAX_MS]
    rates = {n: c["rate"] for n, c in m["scaling"].items()}
    gains = [rates["2"] / rates["1"], rates["4"] / rates["1"]]
    misses += [
        f"{n} workers answered {gain:.2f} times as many as one"
        for n, gain, least in zip((2, 4), gains, MIN_SCALING, strict=True)
        if gain < least
    ]
    paho, ours = (statistics.median(m["bare"][who]) for who in ("paho", "worker"))
    if ours > MAX_RATIO * paho:
        misses.append(f"a request and its reply took {ours / paho:.2f} times as long as with bare paho")
    k, s = m["kill"], m["storm"]
    misses += k["problems"] + s["problems"]
    if s["back_s"] > MAX_STORM_S or s["connected"] < s["devices"]:
        misses.append(f"{s['connected']:,} of {s['devices']:,} were back after {s['back_s']:.1f} s")
    verdict = "Missed: " + "; ".join(misses) + "." if misses else "All of it was met."
    cpu_rows = [[name, f"{c['served'] / c['s']:,.0f}", f"{c['ms']:.3f}"] for name, c in m["cpu"].items()]
    return (
        f"{HEAD}## CPU a request\n\n{markdown(('', 'requests a second', 'ms of CPU a request'), cpu_rows)}\n\n"
        f"*Busy*: {N_ASKING} devices ask again as soon as they are answered.\nThe goal is at most {MAX_MS:g} ms.\n"
        f"{_why(m)}\n\n"
        "## Workers that share\n\nThe model sleeps 5 ms a request, one at a time.\n\n"
        + markdown(
            ("workers", "answers a second", "times one worker", "ms of CPU a request"),
            [[n, f"{r:.0f}", f"{r / rates['1']:.2f}", f"{m['scaling'][n]['ms']:.3f}"] for n, r in rates.items()],
        )
        + f"\n\nThe goal is {MIN_SCALING[0]:g} and {MIN_SCALING[1]:g}.\n\n## Beside bare MQTT\n\n"
        f"A request and its reply took {ours:.2f} ms with a worker and {paho:.2f} ms with a paho client that answers "
        f"without looking, through the same mosquitto, in {N_TURNS} turns each of {N_EACH}: {ours / paho:.2f} times as "
        f"long.\nThe goal is at most {MAX_RATIO:g}.\n\n## A worker that is killed\n\n"
        f"{N_KILLED} devices asked once, with a deadline of 10 s; {k['behind']} had no answer yet when one of two "
        f"workers got SIGKILL.\nRoutes: {_said(k['routes'])}; sent again: {k['counters'].get('resent', 0)}; the last "
        f"decision came after {k['latest_ms'] / 1000:.1f} s.\n\n## A broker that is killed\n\n"
        f"{s['connected']:,} of {s['devices']:,} devices were connected again {s['back_s']:.1f} s after the broker was "
        f"back; routes: {_said(s['routes'])}.\nThe goal is {MAX_STORM_S:g} s.\n\n{verdict}\n"
    )


def _why(m: dict[str, Any]) -> str:
    """What a request that comes alone costs at the least, and two designs beside each other."""
    steps = [[step, f"{apart:.0f}", f"{at_once:.0f}"] for step, (apart, at_once) in m["alone"].items()]
    return (
        "### A request that comes alone\n\nA process that only echoes messages of 100 bytes, and what a worker must "
        "add to that, in us of CPU a message:\n\n"
        + markdown(("it", "at 100 a second", "at once after each other"), steps)
        + "\n\nThe same instructions cost several times as much after 10 ms in which the processor did something else, "
        "so what counts is how much code a lone request runs through, and how often it wakes a thread.\n"
        + (_designs(m) if "turns" in m else "")
        + "A third design, which does not wait for company while requests come alone, is not in the worker: on a busy "
        "machine a process that is kept waiting finds company, and it cost more there."
    )


def _designs(m: dict[str, Any]) -> str:
    """The worker of another clone beside this one."""
    rows = [[name, ", ".join(f"{ms:.3f}" for ms in each)] for name, each in m["turns"].items()]
    return (
        "The first design called functions through an event and a semaphore of Python, and took a model's answer apart "
        "with eight calls of numpy; the second one hands a call over with two bare locks, and takes answers apart "
        "without numpy.\n"
        "Both at 100 requests a second, in turns, in ms of CPU a request (`--old FOLDER` names a clone with the first, "
        "and compares them again):\n\n"
        + markdown(("worker", "in each round"), rows)
        + f"\n\nThe machine's load average was {m['load']:.0f} then: a processor that never rests answers more cheaply "
        "than one that is woken for each request.\n"
    )


def _said(routes: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in Counter(routes).items() if n)


def compared_before(before: dict[str, Any]) -> dict[str, Any]:
    """What ``--old`` measured, which other runs keep."""
    return {name: before[name] for name in ("turns", "load") if name in before}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--short", action="store_true", help="about half a minute, which writes no page")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these, beside what was measured before")
    parser.add_argument("--old", type=Path, metavar="FOLDER", help="a clone of before; measure both in turns, alone")


def run(args: Any) -> Any:
    """Measure."""
    if args.old:
        with tempfile.TemporaryDirectory() as name:
            return {**args.known(), "turns": turns(Path(name), args.old, TURN_S), "load": os.getloadavg()[0]}
    if args.only:
        return {**args.known(), **measure(short=False, only=args.only)}
    if args.short:
        print(page(measure(short=True)).removeprefix(HEAD))
        return 0
    return {**compared_before(args.known()), **measure(short=False)}
