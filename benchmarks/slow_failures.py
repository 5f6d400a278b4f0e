# SPDX-License-Identifier: Apache-2.0
"""Sensors that fail slowly: after how many decisions each is suspected, and what the rule is worth; cost of monitors.

    python -m benchmarks run slow_failures [--build build/rig]

The rig's pick (quick effort) decides test rows, drawn with replacement; each sensor that it buys fails in turn with a
bias, noise, or by repeating one reading. Accuracy is that of the program alone, before and with the rule, which does
without a sensor once it is suspected if the export's ``treat_as_dead`` has it and nothing leaves it in doubt. False
alarms are counted on sound rows. ``--streams`` measures again the stream whose world moves, and keeps the rest.
``--cost`` measures again what monitors and a device's side of budgets, drift and audits take, and keeps the rest.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import tracemalloc
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.device_instructions import KINDS as DEVICE_KINDS
from benchmarks.device_instructions import device_side
from benchmarks.pages import ROOT, command, markdown
from benchmarks.recertify import bundle_of
from hardcase_edge.bundle.load import Loaded
from hardcase_edge.kernel.machine import decide, open_machine
from hardcase_edge.more.drift.promise import Promise
from hardcase_edge.more.drift.watch import Watch
from hardcase_export.integers.decide import readings_of
from hardcase_export.picking.monitors import KINDS, failed_readings

MOST = 2_000  # decisions of a run
SEEDS = 5
SIZES = (1.0, 3.0)  # standard deviations
GOAL_US = 20.0  # of a decision more
STREAMS = {"cascade": (), "held": ("--budget", "30")}  # methods, and what else to pick by
SOUND = 50_000  # decisions in which nothing fails


class Rows:
    """Rows decided by one program, each once for each set of dead sensors."""

    def __init__(self, loaded: Loaded, X: np.ndarray, y: np.ndarray) -> None:
        self._program = loaded.machine.program
        self._machine = open_machine(self._program)
        self._readings = readings_of(self._program, X)
        self.y = y
        self._known: dict[tuple[int, frozenset[int]], tuple[dict[str, Any], dict[int, list[Any]]]] = {}

    def __len__(self) -> int:
        return len(self._readings)

    def decide(self, k: int, dead: frozenset[int]) -> tuple[dict[str, Any], dict[int, list[Any]]]:
        """The decision's line, as far as a monitor reads it, and what was read by sensor."""
        if (k, dead) not in self._known:
            row = self._readings[k]
            made = decide(self._machine, row, dead=dead, cloud=False)
            line = {"route": made.route, "failed": made.failed, "confidence": made.confidence / 10_000,
                    "result": int(made.result)}  # fmt: skip
            read = {s: [row[f] for f in self._program.sensors[s].features] for s in made.sensors}
            self._known[k, dead] = line, read
        return self._known[k, dead]

    def accuracy(self, dead: frozenset[int] = frozenset()) -> float:
        """Share of rows that the program alone answers right."""
        return float(np.mean([self.decide(k, dead)[0]["result"] == self.y[k] for k in range(len(self))]))


def alarms(loaded: Loaded, rows: Rows, rng: np.random.Generator, n: int) -> tuple[int, int, str, frozenset[int]]:
    """The first suspect, the decision at which it was named, why, and who counts as dead; -1 if there is none."""
    monitors = loaded.manifest.monitors
    assert monitors is not None
    watch = Watch(monitors, loaded.machine.program)
    for at, k in enumerate(rng.integers(0, len(rows), n).tolist(), 1):
        watch.decided(*rows.decide(k, frozenset()))
        if watch.suspects:
            sensor, (why, _) = next(iter(watch.suspects.items()))
            return sensor, at, why, watch.dead
    return -1, 0, "", frozenset()


def measure(build: Path) -> dict[str, Any]:
    """Everything."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rig.hcb"
        loaded = bundle_of(build, path)
        n_bytes = path.stat().st_size
    monitors, names = loaded.manifest.monitors, loaded.manifest.sensors
    assert monitors is not None
    with np.load(build / "test.npz") as arrays:
        X, y = arrays["X"], arrays["y"]
    sound = Rows(loaded, X, y)
    bought = sorted({s for k in range(len(sound)) for s in sound.decide(k, frozenset())[1]})
    kinds = [(kind, size) for kind in KINDS for size in (SIZES if kind != "stuck" else (0.0,))]
    failures = [_failure(loaded, X, y, s, *kind) for s in bought for kind in kinds]
    alarms = [alarms(loaded, sound, np.random.default_rng(k), SOUND)[0] for k in range(SEEDS)]
    return {
        "accuracy": sound.accuracy(), "sensors": list(names), "bought": [names[s] for s in bought],
        "watched": [names[r.sensor] for r in monitors.residuals], "dead": [names[s] for s in monitors.treat_as_dead],
        "failures": failures, "alarms": sum(a >= 0 for a in alarms), "bundle_bytes": n_bytes,
        "monitor_bytes": len(str(monitors.to_json()).replace(" ", "")),
    }  # fmt: skip


def measure_cost(build: Path) -> dict[str, Any]:
    """What monitors cost, and a decision of a device in Python with budgets, drift and audits."""
    with np.load(build / "test.npz") as arrays, tempfile.TemporaryDirectory() as folder:
        X, y = arrays["X"], arrays["y"]
        cost = _cost(loaded := bundle_of(build, Path(folder) / "rig.hcb"), Rows(loaded, X, y))
        wish = ("--max-loss", "0.005", "--method", "cascade", "--prices", "--min-agreement", "0.95")
        bundle_of(build, path := Path(folder) / "prices.hcb", *wish)
        return {**cost, "device": device_side(path, build / "test.npz")}


def _failure(loaded: Loaded, X: np.ndarray, y: np.ndarray, s: int, kind: str, size: float) -> dict[str, Any]:
    program, names = loaded.machine.program, loaded.manifest.sensors
    rng = np.random.default_rng(s)
    rows = Rows(loaded, failed_readings(X, program.sensors[s].features, kind, rng, size), y)
    runs = [alarms(loaded, rows, np.random.default_rng(k), MOST) for k in range(SEEDS)]
    named = [at for sensor, at, *_ in runs if sensor == s]
    wrong = [names[sensor] for sensor, *_ in runs if sensor not in (s, -1)]
    acted = [dead for *_, dead in runs]
    dead = max(set(acted), key=acted.count)
    return {
        "sensor": names[s], "kind": kind, "size": size, "named": named, "wrong": wrong,
        "why": sorted({why for _, _, why, _ in runs if why}), "accuracy": rows.accuracy(),
        "acted": sum(map(bool, acted)), "with_rule": rows.accuracy(dead),
        "without_sensor": rows.accuracy(frozenset({s})),
    }  # fmt: skip


def measure_streams(build: Path) -> list[dict[str, Any]]:
    """The example of streams, whose room moves while no sensor fails: the device's own run, watching and acting."""
    here = ROOT / "examples" / "streams"
    if not (build / "front.json").exists():
        command("train", here / "hardcase.toml", "--out", build, "--effort", "quick", "--quiet")
    with (here / "occupancy.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["part"] == "test"]
    names, made = ("Temperature", "Humidity", "Light", "CO2"), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        replay = Path(folder) / "rows.csv"
        replay.write_text("\n".join([",".join(names), *(",".join(row[n] for n in names) for row in rows)]) + "\n")
        for method, wish in STREAMS.items():
            path = Path(folder) / f"{method}.hcb"
            command("export", build, "--method", method, *wish, "--monitors", "--out", path)
            it: dict[str, Any] = {"method": method}
            for drift in ("watch", "act"):
                flags = ["run", str(path), "--sensors", f"replay:{replay}", "--drift", drift]
                done = subprocess.run([sys.executable, "-m", "hardcase_edge.cli", *flags], check=True,
                                      capture_output=True, text=True)  # fmt: skip
                lines = [json.loads(line) for line in done.stdout.splitlines()]
                it[drift] = sum(x["label"] == row["occupied"] for x, row in zip(lines, rows, strict=True)) / len(rows)
                it["told"] = [line.split(": ", 1)[1] for line in done.stderr.splitlines() if "seems to fail" in line]
            made.append({**it, "rows": len(rows)})
    return made


def _cost(loaded: Loaded, rows: Rows) -> dict[str, Any]:
    """Microseconds of a decision, and bytes, of all monitors and a promise."""
    tracemalloc.start()
    watch, promise = Watch(loaded.manifest.monitors, loaded.machine.program), Promise(0.95, 0.5)  # type: ignore[arg-type]
    n_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    given = [rows.decide(k % len(rows), frozenset()) for k in range(20_000)]
    times = []
    for _ in range(3):
        began = time.process_time()
        for line, read in given:
            watch.decided(line, read)
            promise.decided(is_forwarded=False)
        times.append((time.process_time() - began) / len(given) * 1e6)
    return {"us": min(times), "bytes": n_bytes, "machine": platform.machine(), "load": os.getloadavg()[0],
            "modules": _modules()}  # fmt: skip


def _modules() -> int:
    """Bytes of memory that a process takes more when it has loaded what ``--drift`` loads."""
    text = (
        "import resource,sys\nimport hardcase_edge.bundle.load, hardcase_edge.device.device, hardcase_edge.link.link\n"
        "def rss():\n for l in open('/proc/self/status'):\n  if l.startswith('VmRSS'): return int(l.split()[1])*1024\n"
        "a=rss()\nimport hardcase_edge.more.drift.companion\nprint(rss()-a)"
    )
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    return int(done.stdout)


def _beyond(device: dict[str, Any]) -> bool:
    """Whether monitors take more of a decision's time than the goal allows."""
    return bool(device["all"]["us"] - device["plain"]["us"] > GOAL_US)


def page(measured: dict[str, Any], is_whole: bool = False) -> str:
    """The Markdown page; ``is_whole``: with a row for each failure."""
    text = (
        "# Sensors that fail slowly\n\n"
        + ("It falls short of its goal for a decision's time.\n\n" if _beyond(measured["device"]) else "")
        + "`python -m benchmarks run slow_failures` lets sensors fail from the first decision on.\n"
        f"The rig's pick buys {len(measured['bought'])} of {len(measured['sensors'])} sensors and is right on "
        f"{measured['accuracy']:.1%} of the test rows alone; others predict {', '.join(measured['watched']) or 'none'} "
        "well enough to suspect them: whoever reads one sensor alone cannot tell that it fails.\n"
        f"*named* says in how many of {SEEDS} runs of {MOST:,} decisions of each failure the right sensor was "
        "suspected first, *after* how many decisions (median), and *another* in how many another one was.\n"
        "*accuracy* is the program's with a failure, such as a bias of three standard deviations, *rule* with `--drift "
        "act`, and *dead* without that sensor; all failures of a row lie between the two shares, and `--all` has a row "
        "for each.\n\n"
    )
    rows = []
    for _, some in groupby(measured["failures"], lambda f: f["sensor"]):
        failures = list(some)
        if is_whole:
            rows += [_row([f], f"{f['kind']} {f['size']:g}" if f["size"] else f["kind"]) for f in failures]
        else:
            rows.append(_row(failures, f"{len(failures)} failures"))
    head = ("sensor", "failure", "named", "after", "another", "accuracy", "rule", "dead")
    text += markdown(head, rows)
    found = [f for f in measured["failures"] if f["named"] or f["wrong"]]
    named, acted = sum(len(f["named"]) + len(f["wrong"]) for f in found), sum(f["acted"] for f in found)
    return text + (
        f"\n\nIn {acted} of the {named} runs that suspect a sensor it counts as dead.\n"
        f"On sound rows, {measured['alarms']} of {SEEDS} runs of {SOUND:,} decisions suspect one.\n\n"
        f"{_streams(measured['streams'])}## What it costs\n\n"
        f"All monitors and the promise take {measured['us']:.1f} us of a decision (goal: 20, on "
        f"{measured['machine']} at a load of {measured['load']:.1f}), {measured['bytes'] / 1024:.0f} KB of state and "
        f"{measured['modules'] / 1024:.0f} KB of code (goal: 2 MB together), and about "
        f"{measured['monitor_bytes']:,} of the bundle's {measured['bundle_bytes']:,} bytes.\n"
        f"{_device(measured['device'], measured['load'])}"
    )


def whole(measured: dict[str, Any]) -> str:
    """The page with every failure."""
    return page(measured, is_whole=True)


def _row(failures: list[dict[str, Any]], kind: str) -> list[str]:
    """Of one failure, or of all of a sensor."""
    named, wrong = (sum(len(f[key]) for f in failures) for key in ("named", "wrong"))
    medians = [float(np.median(f["named"])) for f in failures if f["named"]]
    after = " to ".join(dict.fromkeys(f"{end(medians):,.0f}" for end in (min, max))) if medians else ""
    ends = [[f"{end(f[key] for f in failures):.1%}" for end in (min, max)] for key in
            ("accuracy", "with_rule", "without_sensor")]  # fmt: skip
    return [
        failures[0]["sensor"],
        kind,
        str(named),
        after,
        str(wrong),
        *(" to ".join(dict.fromkeys(e)) for e in ends),
    ]


def _streams(runs: list[dict[str, Any]]) -> str:
    """The stream whose world moves."""
    rows = [(f"`{x['method']}`", f"{x['watch']:.3f}", f"{x['act']:.3f}", "; ".join(x["told"])) for x in runs]
    return (
        "## A world that moves, and no sensor that fails\n\n"
        f"In `examples/streams` the climate of the {runs[0]['rows']:,} test rows is not that of the training rows, and "
        "only the climate predicts the module, so the module is in doubt with it, and is read on (`--streams` measures "
        "this alone).\n\n" + markdown(("method", "accuracy, watch", "accuracy, act", "told"), rows) + "\n\n"
    )


def _device(device: dict[str, dict[str, float]], load: float) -> str:
    """A decision of the device's loop, by what it does beside deciding."""
    plain, rows = device["plain"], []
    for kind, figures in device.items():
        more = figures["instructions"] - plain["instructions"], figures["us"] - plain["us"]
        flags = " ".join(DEVICE_KINDS[kind]) or "none"
        added = ("", "") if kind == "plain" else (f"{more[0]:,.0f}", f"{more[1]:.1f} us")
        rows.append((kind, f"`{flags}`" if kind not in ("plain", "all") else "", f"{figures['instructions']:,.0f}",
                     added[0], f"{figures['us']:.1f} us", added[1]))  # fmt: skip
    goal = "missed" if _beyond(device) else "met"
    return (
        "\n## A decision of the device, in instructions\n\n"
        "The device's own loop in Python with the kernel in C decides the rig's rows, with free sensors, without a "
        "network, and with a budget that is spent as fast as it fills ([why Python](../decisions/c-kernel.md)).\n"
        "Instructions are callgrind's, of the whole process; the time is the least of several rounds without it.\n\n"
        + markdown(("kind", "flags", "instructions", "more", "time", "more"), rows)
        + f"\n\nThe goal, {GOAL_US:.0f} us a decision more for all of it together, is {goal}: "
        f"it takes {device['all']['us'] - plain['us']:.1f} us more, and a plain decision took {plain['us']:.1f} us in "
        f"the same run, at a load of {load:.1f}.\n"
        f"That is {device['all']['instructions'] / plain['instructions']:.1f} times the instructions of a plain one "
        f"and {device['all']['us'] / plain['us']:.1f} times its time; the servo [in C](servo.md#what-it-takes) takes a "
        "few hundred.\n"
    )


def _measured(args: argparse.Namespace, before: dict[str, Any]) -> dict[str, Any]:
    """What the flags ask for, beside what was measured before."""
    measured = before or measure(args.build)
    if args.streams or not before:
        measured |= {"streams": measure_streams(args.room)}
    return measured | measure_cost(args.build) if args.cost or not before else measured


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "rig")
    parser.add_argument("--cost", action="store_true", help="measure costs alone, beside what was measured before")
    parser.add_argument("--streams", action="store_true", help="measure the stream alone, in the same way")
    parser.add_argument("--room", type=Path, default=ROOT / "build" / "streams", help="the stream's build")


def run(args: Any) -> Any:
    """Measure all, or some beside what was measured before."""
    return _measured(args, args.known() if args.cost or args.streams else {})
