# SPDX-License-Identifier: Apache-2.0
"""The device beside its peers on boosted trees, and one decision and the start of a process on the rig's bundle.

    python -m benchmarks run edge [--only peers|device] [--runs 9]

The peers' part is ``beside.py``: it writes ``edge.json`` and docs/benchmarks/edge.md; the rest writes ``device.json``.
The device's wheel is installed alone in a fresh environment, as on a Pi. Medians are printed, with the best and worst
run; resident memory is the kernel's high-water mark (VmHWM) after the first answer.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import RESULTS, ROOT
from benchmarks.runner import Record
from hardcase_edge.bundle.load import Loaded, load_bundle
from hardcase_edge.kernel.machine import PYTHON, open_machine
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import Machine
from hardcase_export.integers.decide import readings_of

CONFIG = ROOT / "examples" / "hydraulic" / "hardcase.toml"
LIMITS = {
    "decision_us": 200.0,
    "alone_ms": 120.0,
    "alone_mb": 16.0,
    "connected_mb": 30.0,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "rig", help="trained first, if it is not there")
    parser.add_argument("--only", choices=["peers", "device"])


def run(args: Any) -> Any:
    """Measure the peers, which the page shows, and the device, whose figures stand in device.json."""
    status = _device(args) if args.only != "peers" else 0
    if args.only == "device" or status:
        return status
    from benchmarks.beside import beside

    return beside(args.runs)


def page(results: dict[str, Any]) -> str:
    """The page of the peers."""
    from benchmarks.beside import page as text

    return text(results["rows"], results["ratios"], results["machine"])


def problems(results: dict[str, Any]) -> list[str]:
    """Peers that are nearer than they may be."""
    return [f"{r} is beyond its target" for r in results["ratios"] if r["ratio"] > r["target"]]


def _device(args: argparse.Namespace) -> int:
    record = Record(RESULTS / "device.json", {"runs": args.runs, "build": args.build})
    bundle = _bundle(args.build)
    figures = {"bundle_bytes": bundle.stat().st_size, "decision_us": _decision_us(load_bundle(bundle), args.build)}
    with tempfile.TemporaryDirectory() as folder:
        device = _install(Path(folder))
        replay = _replay(Path(folder) / "rows.csv", args.build)
        flags = ["run", str(bundle), "--sensors", f"replay:{replay}", "--interval", "0.5"]
        bare = [_bare(device) for _ in range(args.runs)]
        alone = [_start(device, flags) for _ in range(args.runs)]
        with _broker(args.build / "hpc.onnx") as url:
            linked = [_start(device, [*flags, "--broker", url, "--device-id", "bench"]) for _ in range(args.runs)]
    figures["bare_ms"] = statistics.median(bare)
    for name, runs in (("alone", alone), ("connected", linked)):
        figures[f"{name}_ms"] = statistics.median(ms for ms, _ in runs)
        figures[f"{name}_ms_range"] = [min(ms for ms, _ in runs), max(ms for ms, _ in runs)]
        figures[f"{name}_mb"] = statistics.median(mb for _, mb in runs)
    _print(figures)
    made = {"figures": figures, "limits": LIMITS, "python": sys.version.split()[0]}
    record.save(made)
    return int(any(figures[k] > limit for k, limit in LIMITS.items()))


def _bundle(build: Path) -> Path:
    """The rig's bundle: the policy with a gate, the heavier of what export would pick."""
    hardcase = [sys.executable, "-m", "hardcase.cli"]
    if not (build / "front.json").exists():
        build.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([*hardcase, "train", str(CONFIG), "--out", str(build)], check=True)
    bundle = build.parent / "rig.hcb"
    flags = ["--max-loss", "0.01", "--method", "adapt-gbrt", "--out", str(bundle)]
    subprocess.run([*hardcase, "export", str(build), *flags], check=True)
    return bundle


def _decision_us(loaded: Loaded, build: Path) -> float:
    """Median over test rows of one whole session in pure Python, microseconds; what is forwarded is replied to."""
    with np.load(build / "test.npz") as rows:
        readings = readings_of(loaded.bundle.program, rows["X"])
    sensors = [s.features for s in loaded.bundle.program.sensors]
    machine = open_machine(loaded.bundle.program, PYTHON)
    assert isinstance(machine, Machine)
    times = []
    for row in readings:
        best = min(_once(machine, sensors, row) for _ in range(5))
        times.append(best * 1e6)
    return statistics.median(times)


def _once(machine: Machine, sensors: list[tuple[int, ...]], row: list[float | int | None]) -> float:
    began = time.perf_counter()
    drive(
        machine.session(),
        lambda asked: {s: [row[f] for f in sensors[s]] for s in asked},
        lambda need: (0, 10_000),
    )
    return time.perf_counter() - began


def _install(folder: Path) -> Path:
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT / "edge_runtime")]
    subprocess.run(build, check=True, capture_output=True)
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    install = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel)]
    subprocess.run(install, check=True)
    return python


def _replay(path: Path, build: Path) -> Path:
    with np.load(build / "test.npz") as rows, open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows["feature_names"].tolist())
        writer.writerows(rows["X"].tolist())
    return path


def _bare(python: Path) -> float:
    """Milliseconds that an interpreter takes to start and end: what the machine does just now."""
    began = time.perf_counter()
    subprocess.run([str(python), "-c", "pass"], check=True)
    return (time.perf_counter() - began) * 1000


def _start(python: Path, flags: list[str]) -> tuple[float, float]:
    """Milliseconds from start to the first answer, and megabytes resident then."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    child = subprocess.Popen(
        [str(python.parent / "hardcase-edge"), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    assert child.stdout is not None
    try:
        line = child.stdout.readline()
        took = time.perf_counter() - began
        json.loads(line)
        status = Path(f"/proc/{child.pid}/status").read_text()
        peak_kb = next(int(s.split()[1]) for s in status.splitlines() if s.startswith("VmHWM"))
    finally:
        child.terminate()
        child.wait(10)
    return took * 1000, peak_kb / 1024


@contextmanager
def _broker(hpc: Path) -> Iterator[str]:
    flags = ["cloud", "up", "--workers", "0", "--bind", "127.0.0.1:0", "--hpc", str(hpc), "--json"]
    child = subprocess.Popen([sys.executable, "-m", "hardcase.cli", *flags], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        yield json.loads(child.stdout.readline())["broker"]
    finally:
        child.terminate()
        child.wait(10)


def _print(figures: dict[str, float]) -> None:
    print(f"bundle: {figures['bundle_bytes']} bytes (golden cases included)")
    for key, what, unit in (
        ("decision_us", "one decision, pure Python, median over test rows", "us"),
        ("bare_ms", "an interpreter that starts and ends", "ms"),
        ("alone_ms", "process start to first answer, no broker", "ms"),
        ("alone_mb", "resident then", "MB"),
        ("connected_ms", "process start to first answer, connected", "ms"),
        ("connected_mb", "resident then", "MB"),
    ):
        limit = f" (limit {LIMITS[key]:g})" if key in LIMITS else ""
        print(f"{what}: {figures[key]:.1f} {unit}{limit}")
