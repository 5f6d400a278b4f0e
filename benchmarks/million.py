# SPDX-License-Identifier: Apache-2.0
"""A million decisions on real processes, while worker, broker and store are killed in turn: what is lost or twice.

    python -m benchmarks run million [--decisions 1000000] [--devices 2000] [--rate 2000] [--every 20]

Devices are those of ``hardcase_cloud.sim.fleet.sockets``, each with a TCP connection of its own; they publish every
decision. mosquitto, ``hardcase cloud worker`` and ``hardcase cloud store`` are processes, of which one gets SIGKILL
every ``--every`` seconds and is started again after two. The whole runs once over SQLite and once over PostgreSQL; in
the end the store's records are counted against the devices' own journal.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import markdown
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.sim.fleet.sockets import Fleet
from hardcase_edge.device.machine import RuntimeConfig
from tests.helpers.cloud.brokers import Broker, running_mosquitto
from tests.helpers.cloud.postgres import running_postgres
from tests.helpers.cloud.requests import Command, half_forwarding, write_model

HARD = 0.1
DOWN_S = 2.0
CALM_S = 10.0  # without a fault at the beginning and at the end
SETTLE_S = 120.0  # for the last records
LATE_MS = 2_000 + 250  # the deadline, and what an event loop with 2,000 devices may be late
GOAL_S = 900.0
COUNT = "SELECT device, COUNT(*), COUNT(DISTINCT sequence), MAX(sequence) FROM records GROUP BY device"
TITLES = (
    "store", "decisions", "devices", "minutes", "killed", "local", "cloud", "degraded", "late", "records", "lost",
)  # fmt: skip
HEAD = """# A million decisions on real processes

`python -m benchmarks run million`, on 2 busy cores:

"""


class Process:
    """A ``hardcase`` process that can be killed and started again."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self._command: Command | None = None

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self._command = Command(*self._words)
        self._command.wait_for("ready", seconds=60)

    def kill(self) -> None:
        """End it at once."""
        assert self._command is not None
        self._command.process.kill()
        self._command.process.wait(10)


@contextmanager
def cloud(folder: Path, store_url: str) -> Iterator[tuple[Broker, Process, Process, str]]:
    """Broker, worker and store; and the model's SHA-256."""
    model = write_model(folder)
    with running_mosquitto(folder, max_connections=-1, max_queued_messages=100_000) as broker:
        worker = Process("cloud", "worker", "--broker", broker.url, "--hpc", str(model), "--json")
        store = Process("cloud", "store", "--broker", broker.url, "--store", store_url, "--json")
        worker.start()
        store.start()
        try:
            yield broker, worker, store, hashlib.sha256(model.read_bytes()).hexdigest()
        finally:
            worker.kill()
            store.kill()


def one(folder: Path, store_url: str, n_devices: int, seconds: float, rate: float, every_s: float) -> dict[str, Any]:
    """One run; the figures."""
    rows = np.random.default_rng(1).uniform(-1.0, 1.0, (2000, 2)).astype(np.float32)
    rows[:, 0] -= 1 - 2 * HARD
    with cloud(folder, store_url) as (broker, worker, store, sha256):
        fleet = Fleet(
            half_forwarding(sha256), rows, broker.url, n_devices=n_devices, seconds=seconds, publish="all",
            config=RuntimeConfig(interval_s=n_devices / rate), settle_s=SETTLE_S,
        )  # fmt: skip
        began = time.monotonic()
        fleet.start()
        killed = _kill(broker, worker, store, began + seconds - CALM_S, every_s)
        fleet.wait(seconds + SETTLE_S + 60)
        took_s = time.monotonic() - began
    made, stored = fleet.records()
    late = sum(ms > LATE_MS for _, _, ms in fleet.journal.times())
    return {
        "decisions": len(fleet.journal), "devices": n_devices, "seconds": took_s, "killed": killed,
        "routes": dict(fleet.journal.routes()), "made": made, "acknowledged": stored, "late": late,
        "problems": fleet.reconcile() + in_store(store_url, fleet),
        "counters": dict(fleet.counters),
    }  # fmt: skip


def _kill(broker: Broker, worker: Process, store: Process, until: float, every_s: float) -> dict[str, int]:
    """Kill one after the other until the time comes; how often each."""
    killed: Counter[str] = Counter()
    acts: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        "worker": (worker.kill, worker.start),
        "broker": (broker.kill, broker.start),
        "store": (store.kill, store.start),
    }
    at = time.monotonic() + CALM_S
    for name in cycle(acts):
        if at > until:
            return dict(killed)
        time.sleep(max(0.0, at - time.monotonic()))
        kill, start = acts[name]
        kill()
        killed[name] += 1
        time.sleep(DOWN_S)
        start()
        at += every_s
    raise AssertionError("a cycle does not end")


def in_store(url: str, fleet: Fleet) -> list[str]:
    """What the store's records and the devices' journal do not agree in."""
    database = Database(url)
    try:
        counted = database.read(
            "SELECT device, COUNT(*), COUNT(DISTINCT sequence), MAX(sequence) FROM records GROUP BY device"
        )
        routes = Counter(row["route"] for row in database.rows())
    finally:
        database.close()
    asked = {f"sim-{k}": n for k, n in fleet.journal.asked.items()}
    wrong = [device for device, *numbers in counted if set(numbers) != {asked.get(device)}]
    problems = [f"{len(wrong)} devices have other records than decisions, for example {wrong[0]}"] if wrong else []
    if missing := set(asked) - {row[0] for row in counted}:
        problems.append(f"{len(missing)} devices have no records, for example {min(missing)}")
    if routes != (journal := Counter(+fleet.journal.routes())):
        problems.append(f"the store has the routes {dict(routes)}, the devices {dict(journal)}")
    return problems


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Both runs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the broker's, which inherits it
    seconds = 1.02 * args.decisions / args.rate
    measured = {}
    for dialect in ("SQLite", "PostgreSQL"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if dialect == "SQLite":
                measured[dialect] = one(folder, str(folder / "store.db"), args.devices, seconds, args.rate, args.every)
            else:
                with running_postgres(flushes=True) as cluster:
                    measured[dialect] = one(folder, cluster.url, args.devices, seconds, args.rate, args.every)
        print(dialect, measured[dialect], file=sys.stderr, flush=True)
    return measured


def page(measured: dict[str, Any]) -> str:
    """The page."""
    rows, problems = [], []
    for dialect, m in measured.items():
        killed = ", ".join(f"{name} {n}x" for name, n in m["killed"].items())
        routes = [f"{m['routes'].get(route, 0):,}" for route in ("local", "cloud", "degraded")]
        rows.append(
            (dialect, f"{m['decisions']:,}", f"{m['devices']:,}", f"{m['seconds'] / 60:.1f}", killed, *routes,
             f"{m['late']:,}", f"{m['made']:,}", f"{m['made'] - m['acknowledged']:,}")
        )  # fmt: skip
        problems += [f"{dialect}: {p}" for p in m["problems"]]
        if m["seconds"] > GOAL_S:
            problems.append(f"{dialect}: it took {m['seconds'] / 60:.1f} minutes")
    verdict = "All of it adds up." if not problems else "\n".join(f"- {p}" for p in problems)
    return (
        f"{HEAD}Each device has a TCP connection to mosquitto and a deadline of 2 s, and publishes every decision; "
        f"{HARD:.0%} of the cases are hard.\n"
        "Worker, broker and store are killed by SIGKILL in turn, and at the end decisions are compared with records.\n"
        f"*Late* is decisions that took more than {LATE_MS:,} ms; *lost* is records without the store's "
        f"acknowledgement.\n\n{markdown(TITLES, rows)}\n\n"
        "The goal: a million decisions of 2,000 devices within 15 minutes, and not one too few or twice, in both.\n"
        f"{verdict}\n"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--decisions", type=int, default=1_000_000, help="fewer write no page")
    parser.add_argument("--devices", type=int, default=2_000)
    parser.add_argument("--rate", type=float, default=2_000.0, help="decisions a second of all devices")
    parser.add_argument("--every", type=float, default=20.0, help="seconds from one kill to the next")


def run(args: Any) -> Any:
    """Measure."""
    measured = measure(args)
    if args.decisions >= 1_000_000:
        return measured
    print(page(measured))
    return int(bool(problems(measured)))


def problems(measured: dict[str, Any]) -> list[str]:
    """What does not add up."""
    return [str(problem) for m in measured.values() for problem in m["problems"]]
