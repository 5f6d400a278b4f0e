# SPDX-License-Identifier: Apache-2.0
"""The outbox: what a waiting backlog costs live requests, and whether records survive cuts.

    python benchmarks/outbox.py [--records 1000000] [--waiting 100000] [--live-only] [--out FILE] [--render]

*Live*: a device asks a worker over mosquitto at a fixed pace, by turns with an outbox of 100,000 records that drains to
``hardcase cloud store``, and without. *Cuts*: the device's queue and the store's database, both on this machine's disk,
with a network of our own between them in virtual time. It loses messages and breaks; device and store crash and go on
from their files. Every record that was on the device's disk must be in the store at the end, once.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pages import ROOT, markdown, options, results

sys.path.insert(0, str(ROOT))

from hardcase_edge.fleet.outbox.drain import DrainConfig
from hardcase_edge.fleet.outbox.outbox import Outbox
from hardcase_edge.fleet.outbox.queue import Queue
from hardcase_edge.fleet.outbox.records import Recorder
from hardcase_edge.link.link import Link, LinkConfig
from hardcase_edge.link.wire import ack_topic
from tests.helpers.cloud.brokers import Broker, running_mosquitto
from tests.helpers.edge.device import make_manifest, make_program
from tests.helpers.edge.outbox import DECISION, World, make_config, seconds

PAGE = ROOT / "docs" / "benchmarks" / "outbox.md"
READINGS = (0.5, 1.0, 2.0, None, 4.0)
PACE_S = 0.02
TURNS, REQUESTS = 40, 50  # turns of each kind, requests in a turn: short ones, so that both meet the same neighbours
WORLDS = 20
LOSS, CUT = 0.1, 0.1
WORKER = """
import sys, time
from tests.helpers.edge.device import Cloud
with Cloud(sys.argv[1]):
    print("ready", flush=True)
    sys.stdin.read()
"""
HEAD = """# The outbox

`python benchmarks/outbox.py` wrote this page, on a machine with 2 cores that were never quiet.

"""


class Gate:
    """A link through which records go only while it is open."""

    def __init__(self, link: Link) -> None:
        self.link, self.is_open = link, False

    @property
    def is_connected(self) -> bool:
        """Whether records may go."""
        return self.is_open and self.link.is_connected

    @property
    def connects(self) -> int:
        """The link's."""
        return self.link.connects

    @property
    def is_asking(self) -> bool:
        """The link's."""
        return self.link.is_asking

    def publish_record(self, payload: bytes, *, is_audit: bool) -> bool:
        """The link's."""
        return self.link.publish_record(payload, is_audit=is_audit)


# ---------------------------------------------------------------- live


def live(folder: Path, n_waiting: int, rate: float) -> dict[str, Any]:
    """Latencies of requests with a backlog that drains at this rate, and without, turn and turn about."""
    with running_mosquitto(folder) as broker:
        store = [sys.executable, "-m", "hardcase.cli", "cloud", "store", "--broker", broker.url]
        helpers = [
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for words in ([sys.executable, "-c", WORKER, broker.url], [*store, "--out", str(folder / "store.sqlite")])
        ]
        try:
            for helper in helpers:
                assert helper.stdout is not None
                helper.stdout.readline()
            return _ask(folder, broker, n_waiting, rate)
        finally:
            for helper in helpers:
                helper.terminate()
                helper.wait()


def _ask(folder: Path, broker: Broker, n_waiting: int, rate: float) -> dict[str, Any]:
    queue = Queue(folder / "outbox.sqlite", make_config(drain=DrainConfig(rate=rate)), now=seconds, note=print)
    _fill(queue, n_waiting)
    outbox = Outbox(queue)
    config = LinkConfig.to_broker(broker.url, "dev-1")
    link = Link(config, make_program(), make_manifest())
    link.listen(ack_topic(link.device_id), outbox.on_ack)
    assert link.start(5)
    gate = Gate(link)
    outbox.start(gate)
    took: dict[bool, list[float]] = {False: [], True: []}
    drained = 0
    for turn in range(2 * TURNS):
        gate.is_open = turn % 2 == 1
        time.sleep(0.2 if turn else 1.5)
        before = queue.counters["stored"]
        for _ in range(REQUESTS):
            began = time.perf_counter()
            if link.ask(READINGS, 2.0) is None:
                sys.exit("a request had no reply")
            took[gate.is_open].append(time.perf_counter() - began)
            time.sleep(max(0.0, PACE_S - (time.perf_counter() - began)))
        drained += queue.counters["stored"] - before
    left = queue.waiting
    gate.is_open = False
    outbox.stop()
    link.stop()
    return {
        "rate": rate, "waiting": n_waiting, "left": left, "drained": drained,
        "without": _quantiles(took[False]), "with": _quantiles(took[True]),
    }  # fmt: skip


def _fill(queue: Queue, n: int) -> None:
    recorder = Recorder("dev-1", "00" * 32, 1, now=seconds)
    for k in range(n):
        made = recorder.decision(DECISION)
        assert made is not None
        queue.add(made, 0.0)
        if k % 1000 == 999:
            queue.commit(0.0)
    queue.commit(0.0)


def _quantiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=1000)
    return {"n": len(values), "p50": 1000 * cuts[499], "p99": 1000 * cuts[989]}


# ---------------------------------------------------------------- cuts


def cuts(folder: Path, n: int) -> dict[str, Any]:
    """Worlds of records under cuts, and what is lost or twice in them."""
    began, total = time.monotonic(), dict.fromkeys(("records", "kept", "unwritten", "lost or twice"), 0)
    events: dict[str, int] = {}
    for seed in range(WORLDS):
        here = folder / str(seed)
        here.mkdir()
        drain = DrainConfig(window=2000, burst=2000, rate=1e6)
        world = World(
            here, random.Random(seed), make_config(group=1000, most_unwritten=4000, drain=drain), loss=LOSS, cut=CUT
        )
        while len(world.made) < n // WORLDS:
            world.decide(world.rng.randrange(2000))
            world.step(world.rng.random() * 2)
        world.drain()
        total["records"] += len(world.made)
        total["kept"] += world.events["kept"]
        total["unwritten"] += len(world.lost)
        total["lost or twice"] += world.wrong()
        for kind in ("cuts", "crashes", "store crashes"):
            events[kind] = events.get(kind, 0) + world.events[kind]
        print(f"world {seed + 1} of {WORLDS}: {total}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        world.database.close()
    return {**total, **events, "seconds": time.monotonic() - began}


# ---------------------------------------------------------------- the page


def measure(n_records: int, n_waiting: int, cuts_before: dict[str, Any] | None) -> dict[str, Any]:
    """All figures; those of the cuts may have been measured before."""
    measured: dict[str, Any] = {"live": []}
    for rate in (100.0, 1000.0):
        with tempfile.TemporaryDirectory() as folder:
            measured["live"].append(live(Path(folder), n_waiting, rate))
    with tempfile.TemporaryDirectory() as folder:
        measured["cuts"] = cuts_before or cuts(Path(folder), n_records)
    return measured


def page(measured: dict[str, Any]) -> str:
    """The Markdown page."""
    rows = []
    for m in measured["live"]:
        a, b = m["without"], m["with"]
        rows.append(
            [f"{m['rate']:g}", f"{m['drained']:,}", *(f"{x[q]:.2f}" for q in ("p50", "p99") for x in (a, b)),
             f"{b['p99'] / a['p99']:.2f}"]
        )  # fmt: skip
    first, c = measured["live"][0], measured["cuts"]
    titles = ("records a second", "drained", "p50 alone, ms", "p50, ms", "p99 alone, ms", "p99, ms", "ratio of p99")
    return f"""{HEAD}## Live requests beside a backlog

A device asks a worker over mosquitto every {1000 * PACE_S:g} ms, in turns of {REQUESTS} requests: *alone*, and while \
{first["waiting"]:,} records wait and drain to `hardcase cloud store`, at `--outbox-rate` of the first column.
The goal is a ratio of at most 1.5 at the default of 100 records a second.

{markdown(titles, rows)}

## Cuts

{c["records"]:,} records in {WORLDS} worlds took {c["seconds"]:.0f} s.
{100 * LOSS:g} % of the messages were lost each way, the connection broke {c["cuts"]:,} times, the device crashed \
{c["crashes"]:,} times and the store {c["store crashes"]:,} times.
The store had {c["kept"]:,} records at the end; {c["unwritten"]:,} were not on the device's disk yet when it crashed.
**{c["lost or twice"]} were lost or there twice.**
The crashes fall between two calls of SQLite; those within one are `tests/edge/outbox/test_kill.py`'s.
"""


def main() -> None:
    """Measure, print, write JSON and Markdown."""
    parser: argparse.ArgumentParser = options(__doc__, "outbox")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--live-only", action="store_true", help="measure no cuts again; those in --out stay")
    args = parser.parse_args()
    before = json.loads(args.out.read_text())["cuts"] if args.live_only else None
    text = page(results(args, lambda: measure(args.records, args.waiting, before)))
    PAGE.write_text(text)
    print(text.removeprefix(HEAD))


if __name__ == "__main__":
    main()
