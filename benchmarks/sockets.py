# SPDX-License-Identifier: Apache-2.0
"""Thousands of simulated devices on real sockets: what they cost, how soon they are connected, and what they lose.

    python -m benchmarks run sockets [--short]

A mosquitto, a worker with a small model, and ``hardcase_cloud.sim.fleet.sockets`` in a process of its own for each row
of the table, so that its memory and its CPU are its own. A tenth of the cases is hard. CPU is that of the fleet's
process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.pages import ROOT, markdown
from hardcase_edge.kernel.machine import VARIABLE
from tests.helpers.cloud.brokers import running_mosquitto
from tests.helpers.cloud.requests import command, half_forwarding, write_model

RUNS = (  # devices, interval s, seconds, evaluator, MQTT
    (1_000, 10.0, 20.0, "kernel", 4),
    (10_000, 10.0, 60.0, "kernel", 5),
    (10_000, 10.0, 60.0, "Python", 5),
    (10_000, 1.0, 20.0, "kernel", 5),
    (15_000, 10.0, 20.0, "kernel", 5),
)
SHORT = ((200, 1.0, 3.0, "kernel", 5), (200, 1.0, 3.0, "Python", 4))
BARS = {"kernel": 100.0, "Python": 250.0}  # us of CPU a decision
MAX_KB, MAX_CONNECT_S = 8.0, 15.0
GOAL = (10_000, 10.0)  # devices and interval of the goals
HARD = 0.1
HEAD = """# Devices on real sockets

`python -m benchmarks run sockets`, on 2 cores with little else to do:

"""


def one(
    url: str, sha256: str, n: int, interval_s: float, seconds: float, evaluator: str, version: int
) -> dict[str, Any]:
    """One fleet, in this process."""
    from hardcase_cloud.sim.fleet.sockets import Fleet, not_connected
    from hardcase_edge.device.machine import RuntimeConfig

    loaded = half_forwarding(sha256)
    rows = np.random.default_rng(1).uniform(-1.0, 1.0, (2000, 2)).astype(np.float32)
    rows[:, 0] -= 1 - 2 * HARD
    config = RuntimeConfig(interval_s=interval_s)
    process = psutil.Process()
    fleet = Fleet(loaded, rows, url, n_devices=n, config=config, seconds=seconds, version=version)
    before, cpu = process.memory_info().rss, sum(process.cpu_times()[:2])
    fleet.start()
    connected, grown = fleet.connected(), process.memory_info().rss - before
    connect_cpu = sum(process.cpu_times()[:2]) - cpu
    troubles, cpu = not_connected(fleet), sum(process.cpu_times()[:2])
    fleet.wait(seconds + 60)
    spent = sum(process.cpu_times()[:2]) - cpu
    hard = sorted(ms for route, _, ms in fleet.journal.times() if route)
    decisions = len(fleet.journal)
    return {
        "devices": n, "interval_s": interval_s, "seconds": seconds, "evaluator": evaluator, "version": version,
        "connected": connected, "connect_s": fleet.connect_s, "connect_cpu_s": connect_cpu, "troubles": troubles,
        "kb": grown / 1024 / n, "decisions": decisions, "us": spent / max(1, decisions) * 1e6,
        "cpu_share": spent / seconds, "routes": dict(fleet.journal.routes()), "counters": dict(fleet.counters),
        "p50": hard[len(hard) // 2] if hard else None, "p99": hard[int(0.99 * len(hard))] if hard else None,
        "problems": fleet.reconcile(),
    }  # fmt: skip


@contextmanager
def cloud(folder: Path) -> Iterator[tuple[str, str]]:
    """A broker and a worker; yields the URL and the model's SHA-256."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the broker's, which inherits it
    model = write_model(folder)
    with (
        running_mosquitto(folder, max_connections=-1) as broker,
        command("cloud", "worker", "--broker", broker.url, "--hpc", str(model), "--json") as worker,
    ):
        worker.wait_for("ready")
        yield broker.url, hashlib.sha256(model.read_bytes()).hexdigest()
        worker.finish()


def measure(runs: tuple[tuple[int, float, float, str, int], ...]) -> list[dict[str, Any]]:
    """Every row, each in a process of its own."""
    measured = []
    for run in runs:
        with tempfile.TemporaryDirectory() as name, cloud(Path(name)) as (url, sha256):
            words = [sys.executable, "-m", "benchmarks", "run", "sockets", "--one", json.dumps([url, sha256, *run])]
            chosen = {**os.environ, VARIABLE: run[3].lower()}
            done = subprocess.run(words, check=True, stdout=subprocess.PIPE, cwd=ROOT, env=chosen)
            measured.append(json.loads(done.stdout))
            print(json.dumps(measured[-1]), file=sys.stderr, flush=True)
    return measured


def missed(m: dict[str, Any]) -> list[str]:
    """What a row does not reach of the goals."""
    what = f"{m['devices']:,} devices every {m['interval_s']:g} s ({m['evaluator']})"
    found = [f"{what}: {p}" for p in (*m["troubles"], *m["problems"])]
    if (m["devices"], m["interval_s"]) != GOAL:
        return found
    if m["us"] > BARS[m["evaluator"]]:
        found.append(f"{what}: {m['us']:.0f} us a decision")
    if m["kb"] > MAX_KB:
        found.append(f"{what}: {m['kb']:.1f} KB a device")
    if m["connect_s"] > MAX_CONNECT_S:
        found.append(f"{what}: connected after {m['connect_s']:.1f} s")
    return found


def page(measured: list[dict[str, Any]]) -> str:
    """The Markdown page."""
    rows = [
        [
            f"{m['devices']:,}", f"{m['interval_s']:g}", "3.1.1" if m["version"] == 4 else "5", m["evaluator"],
            f"{m['connected']:,}", f"{m['connect_s']:.1f}", f"{m['kb']:.1f}", f"{m['decisions'] / m['seconds']:,.0f}",
            f"{m['us']:.0f}", f"{m['cpu_share']:.0%}", f"{m['p50']:.1f}", f"{m['p99']:.0f}",
            f"{m['routes']['degraded']:,}", str(len(m["problems"])),
        ]
        for m in measured
    ]  # fmt: skip
    titles = (
        "devices", "every, s", "MQTT", "evaluator", "connected", "within, s", "KB each", "decisions a second",
        "us CPU each", "of a core", "p50, ms", "p99, ms", "degraded", "lost",
    )  # fmt: skip
    misses = [text for m in measured for text in missed(m)]
    verdict = "Missed: " + "; ".join(misses) + "." if misses else "All of it was met."
    return (
        f"{HEAD}Each device has a TCP connection, a last will, a deadline of 2 s and the exchange, session and wire of "
        f"a real one; {HARD:.0%} of the cases are hard and go to one worker over mosquitto.\n"
        "*KB each* is the process's growth while devices connect, without socket buffers; *us CPU each* is all its CPU "
        "over the decisions; p50 and p99 are of hard cases; *lost* did not end, or ended twice.\n\n"
        f"{markdown(titles, rows)}\n\n"
        f"The goal at 10,000 devices every 10 s for 60 s: at most {BARS['kernel']:g} us a decision with the kernel and "
        f"{BARS['Python']:g} us in Python, {MAX_KB:g} KB a device, all connected within {MAX_CONNECT_S:g} s, 0 lost.\n"
        f"{verdict}\n"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--short", action="store_true", help="a few seconds with 200 devices, which writes no page")
    parser.add_argument("--one", help=argparse.SUPPRESS)


def run(args: Any) -> Any:
    """Measure."""
    if args.one:
        print(json.dumps(one(*json.loads(args.one))))
        return 0
    if args.short:
        print(page(measure(SHORT)).removeprefix(HEAD))
        return 0
    return measure(RUNS)
