# SPDX-License-Identifier: Apache-2.0
"""Running budgets in virtual time: spending against the plan under steps of hardness, and accuracy at equal spending.

    HARDCASE_DATA=FOLDER python -m benchmarks run servo [--seeds 50] [--only NAME]

Two policies are trained on rows that no stream uses: room occupancy, and made readings of a drifting gas array. A
stream draws its cases from the other rows: hard ones, on which the shipped policy spends more than in the mean, and
easy ones; the share of hard cases steps by four times. ``--only`` runs the
streams of one policy again, and keeps the figures of the other.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.servo_page import GOALS, page
from benchmarks.servo_streams import STEPS, cases, instructions, one, prepare

__all__ = ["SEEDS", "arguments", "page", "run"]

HOLDS = """
import sys, tempfile, tracemalloc
from hardcase_edge.base.clock import Clock
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.cli import run_config

loaded = load_bundle(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    flags = ["--budget-per-hour", "10000", "--budget-file", folder + "/b.json", "--sensors", "replay:-"]
    args = run_config(["run", sys.argv[1], *flags])
    tracemalloc.start()
    from hardcase_edge.more.servo.companion import budgets_of
    budgets = budgets_of(args, loaded, Clock(), print)
    print(tracemalloc.get_traced_memory()[0])
"""


def holds(bundle: Path) -> int:
    """Bytes of a device's memory that running budgets take in Python."""
    done = subprocess.run([sys.executable, "-c", HOLDS, bundle], capture_output=True, text=True, check=True)
    return int(done.stdout)


def measure(seeds: int, folder: Path, only: str, before: dict[str, Any]) -> dict[str, Any]:
    """All of it, or one policy's streams beside what was measured before."""
    out: dict[str, Any] = {"seeds": seeds}
    for key, name in (("streams", "case"), ("cases", "name")):
        out[key] = [some for some in before.get(key, []) if only not in ("", some[name])]
    for case in [case for case in cases(folder) if only in ("", case.name)]:
        world = prepare(case)
        out["cases"].append({
            "name": case.name, "text": case.text, "nodes": len(world.prices.nodes), "levels": len(world.prices.levels),
            "hard": float(world.hard.mean()), "costs": [world.prices.costs[0], world.prices.costs[-1]],
        })  # fmt: skip
        for kind, steps in STEPS.items():
            runs = [one(world, steps, seed) for seed in range(seeds)]
            worst = {key: max(r[key] for r in runs) for key in ("since", "hours", "beyond", "loss", "shipped_hours")}
            mean = {key: float(np.mean([r[key] for r in runs])) for key in runs[0]}
            kept = sum(r["since"] <= GOALS["deviation"] for r in runs)
            out["streams"].append({"case": case.name, "kind": kind, "worst": worst, "mean": mean, "kept": kept})
            print(case.name, kind, out["streams"][-1], file=sys.stderr)
        out["bytes"] = holds(case.bundle)
    out["c"] = instructions()
    return out


SEEDS = 50


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--only", default="", choices=("", "room occupancy", "gas drift"))


def run(args: Any) -> Any:
    """Measure all, or one policy's streams beside what was measured before."""
    with tempfile.TemporaryDirectory() as folder:
        return measure(args.seeds, Path(folder), args.only, args.known() if args.only else {})
