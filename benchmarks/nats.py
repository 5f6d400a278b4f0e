# SPDX-License-Identifier: Apache-2.0
"""NATS as the engine: three servers on loopback, and what the kill of a worker or of a server costs.

    python benchmarks/nats.py [--short] [--out FILE] [--render]

Devices speak MQTT 3.1.1 to one server's listener, two workers take their requests from a stream of three replicas that
is flushed at each write, and the model sleeps 5 ms a request, one at a time. 600 devices ask once, and with two thirds
of the requests unanswered one of the workers, or a server that is not the devices', gets SIGKILL; or both of these
servers do, so that the one that is left is a minority, and are started again after 3 s.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pages import ROOT, markdown, options, results
from workers import SHA, workers

sys.path.insert(0, str(ROOT))

from hardcase_cloud.fleet.sockets import Fleet
from hardcase_cloud.mqtt.check import check_broker
from hardcase_edge.device.device import RuntimeConfig
from hardcase_edge.link.address import parse_address
from tests.helpers.cloud.nats import Nats, running_nats
from tests.helpers.cloud.requests import Command, half_forwarding

PAGE = ROOT / "docs" / "benchmarks" / "nats.md"
N_DEVICES = 600
MINORITY, AWAY_S = "two of three servers, for 3 s", 3.0
HEAD = """# NATS

`python benchmarks/nats.py` wrote this page, on a machine with 2 cores.

"""


def once(n: int, kill: Callable[[Nats, list[Command]], None] | None) -> dict[str, Any]:
    """So many requests, and what became of them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_nats(folder, 3) as nats:
            first, *rest = nats.url.removeprefix("nats://").split(",")
            url = "nats://" + ",".join((*rest, first))  # workers begin at a server that is not the devices'
            flags = ("--max-batch", "1", "--linger-ms", "0")
            with workers(url, folder, "functions:sleeps", 2, *flags) as running:
                fleet = Fleet(
                    half_forwarding(SHA), np.ones((n, 2), np.float32), f"mqtt://127.0.0.1:{nats.mqtt_ports[0]}",
                    n_devices=n, config=RuntimeConfig(deadline_ms=10_000),
                )  # fmt: skip
                fleet.start()
                until = time.monotonic() + 60
                while len(fleet.journal) < n // 3 and time.monotonic() < until:
                    time.sleep(0.005)
                behind = n - len(fleet.journal)
                if kill is not None:
                    kill(nats, running)
                fleet.wait(40)
                counters = {name: fleet.counters.get(name, 0) for name in ("busy", "resent")}
                return {
                    "behind": behind, "routes": {k: v for k, v in fleet.journal.routes().items() if v}, **counters,
                    "latest_ms": max(ms for _, _, ms in fleet.journal.times()), "problems": fleet.reconcile(),
                }  # fmt: skip


def leave_a_minority(nats: Nats, running: list[Command]) -> None:
    """Kill two servers, and start them again."""
    for k in (1, 2):
        nats.kill(k)
    time.sleep(AWAY_S)
    for k in (1, 2):
        nats.start(k)


def measure(*, short: bool) -> dict[str, Any]:
    """All of it."""
    n = 90 if short else N_DEVICES
    found: dict[str, Any] = {}
    for what, kill in (
        ("nothing", None),
        ("a worker", lambda nats, running: os.kill(running[0].process.pid, signal.SIGKILL)),
        ("a server", lambda nats, running: nats.kill(1)),
        (MINORITY, leave_a_minority),
    ):
        found[what] = once(n, kill)
        print(json.dumps({what: found[what]}), file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as name, running_nats(Path(name)) as nats:
        findings = check_broker(parse_address(f"mqtt://127.0.0.1:{nats.mqtt_ports[0]}"))
    return {"n": n, "runs": found, "check": [[f.does, f.what, f.detail] for f in findings]}


def page(m: dict[str, Any]) -> str:
    """The Markdown page."""
    rows = [
        [what, f"{r['behind']}", ", ".join(f"{v} {k}" for k, v in r["routes"].items()),
         f"{r['busy']}", f"{r['resent']}", f"{r['latest_ms'] / 1000:.1f}"]
        for what, r in m["runs"].items()
    ]  # fmt: skip
    misses = [f"{what}: {p}" for what, r in m["runs"].items() for p in r["problems"]]
    misses += [
        f"killed {what}: {r['routes'].get('cloud', 0)} of {m['n']} answered by the cloud"
        for what, r in m["runs"].items()
        if r["routes"].get("cloud", 0) < m["n"] and what != MINORITY
    ]
    verdict = "Missed: " + "; ".join(misses) + "." if misses else "All of it was met."
    table = markdown(("killed", "unanswered then", "routes", "told busy", "sent again", "last decision after, s"), rows)
    check = markdown(("", "what", "detail"), m["check"])
    return (
        f"{HEAD}## Kills\n\n{m['n']} devices ask once, with a deadline of 10 s, through one of three servers "
        "(`sync_interval: always`); two workers, whose model sleeps 5 ms a request.\n"
        "The machine has 2 cores; the broker servers, the workers and the devices share them.\n\n"
        f"{table}\n\nThe goal is that the cloud answers all, each once.\nA minority of the servers takes no requests, "
        "so its devices may decide alone, each once and within its deadline, and are marked degraded.\n"
        f"{verdict}\n\n## Its listener for MQTT\n\n"
        f"What `hardcase cloud check-broker` says of it:\n\n{check}\n"
    )


def main() -> None:
    """Measure, print, write JSON and Markdown."""
    parser: argparse.ArgumentParser = options(__doc__, "nats")
    parser.add_argument("--short", action="store_true", help="a few requests, which writes no page")
    parser.add_argument("--minority", action="store_true", help="measure this alone, beside what was measured before")
    args = parser.parse_args()
    if args.minority:
        found = json.loads(args.out.read_text())
        found["runs"][MINORITY] = once(N_DEVICES, leave_a_minority)
        args.out.write_text(json.dumps(found, indent=1) + "\n")
        args.render = True
    if args.short:
        print(page(measure(short=True)).removeprefix(HEAD))
        return
    text = page(results(args, lambda: measure(short=False)))
    PAGE.write_text(text)
    print(text.removeprefix(HEAD))


if __name__ == "__main__":
    main()
