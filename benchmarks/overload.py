# SPDX-License-Identifier: Apache-2.0
"""Overload: what a worker answers when it is offered more than it can, and how soon all is well again afterwards.

    python benchmarks/overload.py [--old FOLDER] [--devices 2000] [--seconds 10] [--out FILE] [--render]

The HPC sleeps 4 ms a row, so that not this machine but the model is the limit. Its capacity is found first, with
devices that ask again as soon as they are answered. Then fleets of ``--devices`` devices, all of whose cases are hard,
ask at a multiple of it, at a fixed pace that does not wait for answers. ``--old`` names a clone with an older worker,
to which devices as of then talk: they ask again every second, whatever happens, and know no busy reply.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pages import ROOT, markdown, options, results

sys.path.insert(0, str(ROOT))

from hardcase_cloud.fleet import device as fleet_device
from hardcase_cloud.fleet.sockets import Fleet
from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.device.device import RuntimeConfig
from hardcase_edge.exchange.circuit import Circuit
from hardcase_edge.exchange.exchange import Exchange, Over, Send
from tests.helpers.cloud.brokers import running_mosquitto
from tests.helpers.cloud.requests import command, half_forwarding

PAGE = ROOT / "docs" / "benchmarks" / "overload.md"
SHA = "ab" * 32
ROW_MS, DEADLINE_MS = 4, 2000
SLOW = f"""
import time
def answer(X, names):
    time.sleep({ROW_MS / 1000} * len(X))
    return ["green"] * len(X)
"""
OFFERED = (0.5, 1.0, 1.5, 2.0, 4.0)
N_CLOSED = 64  # devices that ask without a pause, to find the capacity
SETTLE_S = 4.0  # of each step, which do not count
SURGE, BASE, SURGE_S, AFTER_S = 4.0, 0.5, 8.0, 8.0
LEAST_SHARE, MOST_BACK_S = 0.8, 3.0
PREFIXES = iter(range(10_000))
LOCAL, CLOUD, DEGRADED = range(3)
HEAD = """# Overload

`python benchmarks/overload.py --old FOLDER` wrote this page, on a machine with 2 cores that had little else to do.

"""


class OldExchange(Exchange):
    """As devices asked before: every second again under the same id, until the deadline."""

    __slots__ = ("_at", "_is_sent", "_reply", "_sends")

    def __init__(self, resend_ms: int, counters: Any) -> None:
        super().__init__(resend_ms, counters)
        self.circuit = Circuit()

    def can_ask(self, now: int) -> bool:
        """Whether a request may begin."""
        return self._id == b"" and self.circuit.lets_through(now)

    def poll(self, now: int, connection: int) -> Send | Over | None:
        """What to do now."""
        if self._id != b"" and self._end is None and now < self._until:
            if not connection or now < self._next_at:
                return None
            is_again = self._n_sent > 0
            if is_again and (self._until - now <= 50 or self._is_test):
                self._next_at = self._until
                return None
            self._next_at = now + self._resend_ms
            return Send(self._id, self._until - now, is_again)
        return super().poll(now, connection)


@contextmanager
def cloud(folder: Path, old: str | None) -> Iterator[tuple[str, Any]]:
    """A broker and one worker, of this clone or of an older one."""
    (folder / "slow.py").write_text(SLOW)
    bundle = folder / "model.hcb"
    bundle.write_bytes(pack_bundle(half_forwarding(SHA).bundle))
    root = Path(old) if old else ROOT
    parts = [root / "edge_runtime", root / "train", root / "export", root / "cloud_stub", root, folder]
    with running_mosquitto(folder, max_connections=-1) as broker:
        flags = ["--broker", broker.url, "--hpc", "slow:answer", "--bundle", str(bundle), "--json"]
        environment = {"PYTHONPATH": os.pathsep.join(map(str, parts))}
        with command("cloud", "worker", *flags, environment=environment) as worker:
            worker.wait_for("ready", seconds=60)
            yield broker.url, worker
            worker.finish()


def fleet(url: str, n: int, interval_s: float, seconds: float) -> Fleet:
    """Devices all of whose cases are hard."""
    rows = np.ones((16, 2), np.float32)
    config = RuntimeConfig(interval_s=interval_s, deadline_ms=DEADLINE_MS)
    return Fleet(
        half_forwarding(SHA), rows, url, n_devices=n, config=config, seconds=seconds, prefix=f"f{next(PREFIXES)}"
    )


def capacity(url: str, seconds: float) -> float:
    """Answers a second of devices that ask again as soon as they have an answer."""
    asking = fleet(url, N_CLOSED, 0.0, seconds)
    asking.start()
    asking.wait(seconds + 10)
    return asking.journal.routes()["cloud"] / seconds


def step(url: str, rate: float, n: int, seconds: float) -> dict[str, Any]:
    """Offer so many requests a second from n devices, and count what becomes of those after the first seconds."""
    offering = fleet(url, n, n / rate, seconds + SETTLE_S)
    offering.start()
    began = time.monotonic() + SETTLE_S
    offering.wait(seconds + SETTLE_S + 10)
    late = [(route, ms) for route, at, ms in offering.journal.times() if began <= at < began + seconds]
    answered = sorted(ms for route, ms in late if route == CLOUD)
    return {
        "offered": len(late) / seconds,
        "answered": len(answered) / seconds,
        "p50": answered[len(answered) // 2] if answered else None,
        "p99": answered[int(0.99 * len(answered))] if answered else None,
        "sent": offering.counters["sent"],
        "resent": offering.counters["resent"],
        "busy": offering.counters["busy"],
        "problems": offering.reconcile(),
    }


def surge(url: str, most: float, n: int) -> dict[str, Any]:
    """Half of the capacity all the time, and four times as much in between: when is the half well again?"""
    n_base = max(1, round(n * BASE / SURGE))
    pace_s = n_base / (BASE * most)
    base = fleet(url, n_base, pace_s, 600.0)
    more = fleet(url, n, n / ((SURGE - BASE) * most), SURGE_S)
    base.start()
    time.sleep(3)
    more.start()
    more.wait(SURGE_S + 10)
    ended = time.monotonic()
    time.sleep(AFTER_S)
    base.stop()
    last = max((at + ms / 1000 for route, at, ms in base.journal.times() if route == DEGRADED), default=0.0)
    after = [route for route, at, _ in base.journal.times() if at > ended + MOST_BACK_S]
    return {
        "back_s": max(0.0, last - ended),
        "degraded_later": after.count(DEGRADED) / max(1, len(after)),
        "problems": base.reconcile() + more.reconcile(),
    }


def curve(old: str | None, n: int, seconds: float) -> dict[str, Any]:
    """Capacity, steps and surge of one worker."""
    with tempfile.TemporaryDirectory() as name, cloud(Path(name), old) as (url, worker):
        exchange: Callable[..., Any] = OldExchange if old else Exchange
        fleet_device.Exchange = exchange  # type: ignore[misc]
        most = capacity(url, 5.0)
        steps = {f"{times:g}": step(url, times * most, n, seconds) for times in OFFERED}
        back = surge(url, most, n)
        worker.finish()
        return {"capacity": most, "steps": steps, "surge": back, "worker": worker.wait_for("stopped")}


def measure(old: str | None, n: int, seconds: float, before: dict[str, Any]) -> dict[str, Any]:
    """The new worker's curve, and the old one's, which stays as it was ``before`` if there is no older clone."""
    measured = {**before, "devices": n, "new": curve(None, n, seconds)}
    if old:
        measured["old"] = curve(old, n, seconds)
    return measured


def page(measured: dict[str, Any]) -> str:
    """The Markdown page."""
    rows = []
    for times in (f"{x:g}" for x in OFFERED):
        cells = [f"{times}x"]
        for which in ("old", "new"):
            one = measured.get(which)
            if one is None:
                cells += ["", "", ""]
                continue
            s = one["steps"][times]
            p99 = "" if s["p99"] is None else f"{s['p99']:.0f}"
            cells += [f"{s['offered']:.0f}", f"{s['answered'] / one['capacity']:.0%}", p99]
        rows.append(cells)
    titles = ("offered", *(f"{w}: {t}" for w in ("old", "new") for t in ("a second", "answered", "p99, ms")))
    new = measured["new"]
    missed = []
    for times, s in new["steps"].items():
        due = min(float(times), 1.0) * LEAST_SHARE
        if s["answered"] < due * new["capacity"]:
            missed.append(f"at {times}x {s['answered'] / new['capacity']:.0%} of the capacity were answered")
        if s["p99"] is not None and s["p99"] > DEADLINE_MS:
            missed.append(f"at {times}x the p99 was {s['p99']:.0f} ms")
        missed += s["problems"]
    if new["surge"]["back_s"] > MOST_BACK_S:
        missed.append(f"after the surge the last degraded decision ended {new['surge']['back_s']:.1f} s later")
    verdict = "Missed: " + "; ".join(missed) + "." if missed else "All of it was met."
    lines = [
        f"One worker, whose HPC sleeps {ROW_MS} ms a row; {measured['devices']:,} devices on connections of their own, "
        f"which decide at a fixed pace, with a deadline of {DEADLINE_MS} ms, and all of whose cases are hard.",
        "The offered rate is a multiple of the capacity, which devices found in the same run that ask again as soon "
        "as they are answered: "
        + ", ".join(f"{measured[w]['capacity']:.0f} a second ({w})" for w in ("old", "new") if w in measured)
        + ".",
        "*Answered* is the answers of the HPC a second as a share of that capacity; all other decisions were made by "
        "the devices alone, and marked degraded.",
        "Old: requests acknowledged as they came, first come first served, and sent again every second.",
        "New: earliest deadline first, acknowledged when answered, busy replies, and a retry budget of 10 %.",
        "",
        markdown(titles, rows),
        "",
        f"A surge of {SURGE:g}x for {SURGE_S:g} s, with {BASE:g}x before, meanwhile and after it:",
        "",
        markdown(
            ("", "last degraded decision after the surge's end, s", f"degraded more than {MOST_BACK_S:g} s later"),
            [
                [w, f"{measured[w]['surge']['back_s']:.1f}", f"{measured[w]['surge']['degraded_later']:.1%}"]
                for w in ("new",)
            ],
        ),
        "",
        "The goal: at 2x and 4x at least 80 % of the capacity answered, the p99 of the answered within the deadline, "
        f"no decision without an end, and all well within {MOST_BACK_S:g} s of the surge's end.",
        verdict,
        "",
    ]
    return HEAD + "\n".join(lines)


def main() -> None:
    """Measure, print, write JSON and Markdown."""
    parser: argparse.ArgumentParser = options(__doc__, "overload")
    parser.add_argument("--old", metavar="FOLDER", help="a clone with an older worker")
    parser.add_argument("--devices", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    before = json.loads(args.out.read_text()) if args.out.is_file() else {}
    text = page(results(args, lambda: measure(args.old, args.devices, args.seconds, before)))
    PAGE.write_text(text)
    print(text.removeprefix(HEAD))


if __name__ == "__main__":
    main()
