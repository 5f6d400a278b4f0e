# SPDX-License-Identifier: Apache-2.0
"""The steps of ``hardcase demo``: train, export, run fleets against a cloud whose worker is killed, reconcile."""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_cloud.sim.fleet.journal import Outcome
from hardcase_cloud.sim.fleet.sockets import Fleet
from hardcase_edge.base.escape import terminal
from hardcase_edge.base.files import write_whole
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.signature import make_keys
from hardcase_edge.device.machine import RuntimeConfig
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.per_class import per_class
from hardcase_edge.more.batch.quality import ACCURACY, Quality
from hardcase_export.bundle import MIN_AGREEMENT, export_point
from hardcase_export.drafts.front import Front, Point
from hardcase_export.integers.point import Build
from hardcase_export.picking.pick import pick
from hardcase_train.methods import BASELINES
from hardcase_train.tasks.task import Task

from ..measuring.measure import class_lines
from ..options import report
from ..reports.cases_part import class_rows
from ..reports.page import figure, render
from ..training.build import build, configure
from ..training.folders import DEMO, claimed, list_files
from .processes import Process, StageError, start_broker, start_device, start_worker
from .routes_chart import routes_svg

MAX_LOSS = 0.005  # loss of quality against f0, on the judged rows
MIN_FORWARD = 0.03  # so that both routes occur before and after the kill
BEST, KILL_TEST = "cheapest", "kill test"
TITLE = "hardcase: easy cases on the device, hard cases to the cloud"
WHICH = f"the cheapest policy that forwards at least {MIN_FORWARD:.0%} of the judged rows; its worker is killed"
N_DEVICES = 20
PASSES = 3  # replays of the test rows by the fleet whose worker is killed
INTERVAL_S = 0.2
EDGE_COUNT = 60
MAX_CLASSES = 12  # shown as text
KILL_AFTER_S = 5.0
REPLAY, REPORT = "edge-1.csv", "report.html"
FILES = (REPLAY, REPORT, "demo.key", "demo.pub")  # beside the bundles and the build
DOWN_S = 1.0


@dataclass(frozen=True)
class Row:
    """One row of the closing table."""

    name: str
    policy: str
    quality: float
    cost: float  # mean, in the unit of cost
    uplink_bytes: int  # sum over all decisions
    p50_ms: float
    p99_ms: float
    degraded: int
    n: int


def run_demo(args: argparse.Namespace) -> int:
    """Run all steps of ``hardcase demo`` with its arguments; 1 if the counts do not reconcile."""
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with claimed(args.out, DEMO, force=args.force):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    args.out.mkdir(exist_ok=True)
    list_files(args.out, DEMO, FILES)
    began = time.monotonic()
    say = _Progress(args.json)
    task, trained = _train(args, say)
    bundles = _export(args.out, trained, say)
    rows, classes, problems, outage, outcomes = _serve(args.out, task, bundles, say)
    values = {
        "rows": [asdict(r) for r in rows],
        "problems": problems,
        "seconds": round(time.monotonic() - began, 1),
        "unit": task.config.unit,
        "kill_test": WHICH,
        "classes": classes,
        "quality": _measure(task).name,
    }
    _write_report(args.out, values, outage, outcomes)
    report(args, values, _text(values, args.out))
    return 1 if problems else 0


class _Progress:
    """Prints a line per step, unless quiet."""

    def __init__(self, is_quiet: bool) -> None:
        self.is_quiet = is_quiet

    def __call__(self, text: str) -> None:
        if not self.is_quiet:
            print(f"== {terminal(text)}", flush=True)


# ---------------------------------------------------------------- train and export


def _train(args: argparse.Namespace, say: _Progress) -> tuple[Task, Build]:
    config = configure(args.config, seed=args.seed, effort=args.effort)
    if config.legacy is not None:
        raise InputError(f"{args.config}: f0 is a legacy system, which the demo cannot start; use an [hpc] estimator")
    say(f"training on {config.file.name}: f0 is {config.hpc_name}, methods are {', '.join(config.methods)}")
    methods, wish = (*config.methods, *BASELINES), {"max_loss": MAX_LOSS}
    task, _, trained = build(config, methods, args.out / "train", wish=wish, force=args.force, quiet=args.json)
    return task, trained


def _export(out: Path, trained: Build, say: _Progress) -> dict[str, tuple[Path, Point]]:
    """Write a signed bundle per row of the table; (path, point) by name."""
    say(f"exporting signed bundles, picked on judged rows: at most {MAX_LOSS} below f0")
    _make_keys(out)
    bundles = {}
    for name, point in _points(trained.front).items():
        path = out / f"{name.replace(' ', '-')}.hcb"
        integers = trained.integers(point, MIN_AGREEMENT)
        export_point(trained.front, point, integers, path, key=out / "demo.key")
        bundles[name] = (path, point)
    return bundles


def _make_keys(out: Path) -> None:
    private, public = make_keys()
    write_whole(out / "demo.key", private, mode=0o600)
    write_whole(out / "demo.pub", public)


def _points(front: Front) -> dict[str, Point]:
    """The six policies of the table, by name."""
    f0 = next(p for p in front.points if p.method == "hpc")

    def cheapest(points: list[Point]) -> Point:
        picked = pick(replace(front, points=(f0, *points)), max_loss=MAX_LOSS)
        return picked if picked is not f0 else max(points, key=lambda p: p.valid.quality)  # none is accurate enough

    by_method = {m: [p for p in front.points if p.method == m] for m in ("static", "cascade")}
    both_routes = [p for p in front.points if MIN_FORWARD <= p.valid.forward_rate < 1]
    if not both_routes or not all(by_method.values()):
        raise StageError("no policy uses both routes on this data; try another --seed or other costs")
    return {
        "everything in the cloud": f0,
        "everything local": max(by_method["static"], key=lambda p: (p.valid.quality, -p.valid.cost)),
        "static": cheapest(by_method["static"]),
        "cascade": cheapest(by_method["cascade"]),
        KILL_TEST: cheapest(both_routes),
        BEST: cheapest([p for p in front.points if p is not f0]),
    }


# ---------------------------------------------------------------- cloud and fleet


def _serve(
    out: Path, task: Task, bundles: dict[str, tuple[Path, Point]], say: _Progress
) -> tuple[list[Row], list[dict[str, Any]], list[str], tuple[float, float], list[Outcome]]:
    """The rows of the table, the classes of its last row, what did not reconcile, and the kill test's outcomes."""
    hpc = out / "train" / "hpc.onnx"
    rows, problems = {}, []
    with _cloud(hpc) as (url, worker):
        say(f"the cloud is up at {url}; {N_DEVICES} simulated devices replay the test rows with each bundle")
        for name, (path, point) in bundles.items():
            if name != KILL_TEST:
                outcomes, mismatches = _run_fleet(path, task, url, name)
                rows[name] = _row(name, point, task, outcomes)
                problems += mismatches
        classes = _classes(task, outcomes)
        path, point = bundles[KILL_TEST]
        say(f"{KILL_TEST} ({point.method}): {N_DEVICES} devices and one real hardcase-edge; the worker gets SIGKILL")
        outcomes, mismatches, outage = _run_with_kill(out, path, task, url, worker)
        rows[KILL_TEST] = _row(KILL_TEST, point, task, outcomes)
        problems += mismatches
    return [rows[name] for name in bundles], classes, problems, outage, outcomes


@contextmanager
def _cloud(hpc: Path) -> Iterator[tuple[str, list[Process]]]:
    """Start a broker and a worker: the URL, and a list with the worker, which the caller may replace."""
    broker, url = start_broker(hpc)
    workers: list[Process] = []
    try:
        workers.append(start_worker(url, hpc))
        yield url, workers
    finally:
        for process in (*workers, broker):
            process.stop()


def _run_fleet(bundle: Path, task: Task, url: str, name: str) -> tuple[list[Outcome], list[str]]:
    prefix = name.replace(" ", "-")
    fleet = Fleet(load_bundle(bundle), task.problem.test.X, url, n_devices=N_DEVICES, prefix=prefix)
    outcomes = fleet.run(120)
    return outcomes, [f"{name}: {p}" for p in fleet.reconcile()]


def _run_with_kill(
    out: Path, bundle: Path, task: Task, url: str, worker: list[Process]
) -> tuple[list[Outcome], list[str], tuple[float, float]]:
    loaded = load_bundle(bundle)
    rows = np.tile(task.problem.test.X, (PASSES, 1))
    replay = out / REPLAY
    count = _write_replay(replay, task)
    fleet = Fleet(loaded, rows, url, n_devices=N_DEVICES, config=RuntimeConfig(interval_s=INTERVAL_S), prefix="sim")
    device = start_device(bundle, out / "demo.pub", url, replay, count, INTERVAL_S)
    fleet.start()
    time.sleep(KILL_AFTER_S)
    killed = time.monotonic()
    worker[0].kill()
    time.sleep(DOWN_S)
    worker[0] = start_worker(url, out / "train" / "hpc.onnx")
    back = time.monotonic()
    outcomes = fleet.join(120)
    status = device.wait(120)
    problems = [f"{KILL_TEST}: {p}" for p in fleet.reconcile()] + _check_device(device, status, count)
    problems += _check_routes(outcomes, killed, back)
    return outcomes, problems, (killed, back)


def _check_device(device: Process, status: int, count: int) -> list[str]:
    """Check that the real device exited cleanly and decided each item once, by one route."""
    decisions = [line for line in device.lines if "route" in line]
    routes = sum(d["route"] in ("local", "cloud", "degraded") for d in decisions)
    if status != 0 or len(decisions) != count or routes != count:
        return [f"hardcase-edge exited with status {status} after {len(decisions)} decisions; expected {count}"]
    return []


def _check_routes(outcomes: list[Outcome], killed: float, back: float) -> list[str]:
    """Check that both routes occur before the kill and after the return."""
    problems = []
    for when, part in (
        ("before the kill", [o for o in outcomes if o.began + o.latency_ms / 1000 < killed]),
        ("after the worker's return", [o for o in outcomes if o.began > back]),
    ):
        lacking = {"local", "cloud"} - {o.route for o in part}
        if lacking:
            problems.append(f"{KILL_TEST}: no {' and no '.join(sorted(lacking))} decision {when}")
    return problems


def _write_replay(path: Path, task: Task) -> int:
    """Write raw samples of test rows (or features, if the data has no windows) as a replay file; the row count."""
    index = task.problem.test.index[:EDGE_COUNT]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if task.table.samples is None:
            writer.writerow(task.features)
            texts = [task.table.categories.get(name, ()) for name in task.features]
            for row in task.problem.test.X[:EDGE_COUNT].tolist():
                writer.writerow(["" if x != x else t[int(x)] if t else x for x, t in zip(row, texts, strict=True)])
        else:
            sensors = list(task.table.windows)
            n_samples = task.table.samples.shape[2]
            writer.writerow([f"{s}[{k}]" for s in sensors for k in range(n_samples)])
            writer.writerows(task.table.samples[index].reshape(len(index), -1).tolist())
    return len(index)


# ---------------------------------------------------------------- the end


def _row(name: str, point: Point, task: Task, outcomes: list[Outcome]) -> Row:
    test, rows = task.problem.test, np.array([o.item for o in outcomes]) % len(task.problem.test.y)
    labels = [o.label for o in outcomes]
    answers = np.array([task.classes.index(label) for label in labels] if task.classes else labels)
    groups = None if test.group is None else test.group[rows]
    latency = [o.latency_ms for o in outcomes] or [float("nan")]
    return Row(
        name=name,
        policy=point.method,
        quality=_measure(task)(task.y[test.index][rows], answers, None, groups),
        cost=float(np.mean([o.cost for o in outcomes])),
        uplink_bytes=sum(o.uplink_bytes for o in outcomes),
        p50_ms=float(np.percentile(latency, 50)),
        p99_ms=float(np.percentile(latency, 99)),
        degraded=sum(o.route == "degraded" for o in outcomes),
        n=len(outcomes),
    )


def _measure(task: Task) -> Quality:
    """What the table shows of answers: the measure of values, and of classes the share that is right."""
    return ACCURACY if task.classes else task.problem.quality


def _classes(task: Task, outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """Counts, recall and precision of each class, as plain values; empty of values."""
    if not task.classes:
        return []
    y, number = task.problem.test.y, {label: k for k, label in enumerate(task.classes)}
    truth = [int(y[o.item % len(y)]) for o in outcomes]
    counts = per_class(truth, [number[o.label] for o in outcomes], len(task.classes))
    return [{"class": label, **count.to_json()} for label, count in zip(task.classes, counts, strict=True)]


def _write_report(out: Path, values: dict[str, Any], outage: tuple[float, float], outcomes: list[Outcome]) -> None:
    front = (out / "train" / "front.svg").read_text(encoding="utf-8")
    write_whole(out / REPORT, page_of(values, front, routes_svg(outcomes, outage)).encode())


def page_of(values: Mapping[str, Any], front_svg: str, routes: str) -> str:
    """The page of the demonstration, of what it prints with ``--json`` and two pictures, which are SVG documents."""
    forms = {"quality": "{:.4f}", "cost": "{:.2f}", "p50_ms": "{:.2f}", "p99_ms": "{:.2f}", "uplink_bytes": "{:,}"}
    rows = [[forms.get(f.name, "{}").format(r[f.name]) for f in fields(Row)] for r in values["rows"]]
    shown = {**values, "rows": rows, "front": figure(front_svg), "routes": figure(routes)}
    return render("demo", heading=TITLE, by_class=class_rows(values["classes"]), **shown)


def _text(values: dict[str, Any], out: Path) -> list[str]:
    titles = (
        "",
        "policy",
        values["quality"],
        f"cost/{values['unit']}",
        "bytes up",
        "p50 ms",
        "p99 ms",
        "degraded",
        "n",
    )
    by_class = class_lines(values["classes"], MAX_CLASSES) if values["classes"] else []
    lines = ["", f"{BEST}, by class, on test rows:", *by_class] if by_class else []
    lines += ["", _line(titles)]
    for r in values["rows"]:
        bytes_up = f"{r['uplink_bytes'] / r['n']:.1f}"
        times = (f"{r['p50_ms']:.2f}", f"{r['p99_ms']:.2f}")
        figures = (f"{r['quality']:.4f}", f"{r['cost']:.2f}", bytes_up, *times, r["degraded"], r["n"])
        lines.append(_line((r["name"], r["policy"], *figures)))
    lines += ["", f"{values['quality']} and cost on test rows; bytes up: mean request payload per decision"]
    lines.append(f"{KILL_TEST}: {WHICH}")
    lines.append(f"{BEST}: the pick of hardcase export --max-loss {MAX_LOSS}")
    verdict = "asked = local + cloud + degraded, each once; both routes used before the kill and after it"
    lines += [f"PROBLEM: {p}" for p in values["problems"]] or [f"reconciled: {verdict}"]
    lines.append(f"{values['seconds']:.0f} s; report: {out / REPORT}")
    return lines


def _line(cells: tuple[Any, ...]) -> str:
    widths = (24, 11, 9, 11, 9, 8, 8, 9, 6)
    first, *rest = (str(c) for c in cells)
    return f"{first:{widths[0]}s} " + " ".join(f"{c:>{w}s}" for c, w in zip(rest, widths[1:], strict=True))
