# SPDX-License-Identifier: Apache-2.0
"""Other designs of the servo on streams of other seeds than the measured ones: wider windows, and dual averaging.

    python benchmarks/servo_windows.py FOLDER [--seeds 2]

``FOLDER`` is that of ``servo.py --keep``. A decision costs here what the nearest of the fixed thresholds makes it cost,
so a stream takes a tenth of the time. A *window* is the burst of the bucket, in seconds of plan; *growing* lets it grow
with the time since the start, to 2.5 % of it; *dual averaging* sets the price by all that was spent since the start,
divided by the root of the number of decisions, and the bucket only limits.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import servo_streams
from pages import ROOT
from servo_cases import cases
from servo_page import PAGE, page
from servo_streams import EVERY_S, World

from hardcase_edge.bundle.prices import LEVEL
from hardcase_edge.more.servo.bucket import Bucket

__all__ = ["DESIGNS", "try_designs"]

RECORD = ROOT / "benchmarks" / "results" / "servo.json"
FIRST_SEED = 1_000  # of these streams; the page's are 0 to 49
WINDOWS_S = (90, 180, 360, 900, 1800)
GROWING = 0.025
STEP_MS = EVERY_S * 1000


def windowed(world: World, per_hour: int, window_s: float, grows: bool = False) -> Generator[int, int]:
    """Positions of the price; is sent what each decision has cost."""
    burst = max(round(per_hour * window_s / 3600), world.worst)
    bucket = Bucket(per_hour, burst, world.prices.last, world.prices.shipped * LEVEL)
    n = 0
    while True:
        bucket.passed(STEP_MS)
        n += 1
        if grows and (wide := round(GROWING * per_hour * n * EVERY_S / 3600)) > bucket.burst:
            bucket.left += wide - bucket.burst  # the middle moves, and what is spent ahead of the plan stays
            bucket.burst = wide
        cost = yield bucket.position
        bucket.spent(min(cost, bucket.left))


def averaged(world: World, per_hour: int, gain: float) -> Generator[int, int]:
    """The price by dual averaging."""
    bucket = Bucket(per_hour, max(per_hour // 40, world.worst), world.prices.last, 0)
    planned, beyond, n, begin = per_hour * EVERY_S / 3600, 0.0, 0, world.prices.shipped * LEVEL
    while True:
        bucket.passed(STEP_MS)
        n += 1
        x = begin + gain * world.prices.last * beyond / planned / n**0.5
        cost = yield round(min(max(x, 0), world.prices.last))
        beyond += min(cost, bucket.left) - planned
        bucket.spent(cost)


DESIGNS: dict[str, Callable[[World, int], Generator[int, int]]] = {
    **{f"window of {s} s": lambda w, p, s=s: windowed(w, p, s) for s in WINDOWS_S},
    "growing window": lambda w, p: windowed(w, p, 90, grows=True),
    **{f"dual averaging, gain {g:g}": lambda w, p, g=g: averaged(w, p, g) for g in (0.02, 0.08, 0.3, 1.2, 5.0)},
}  # fmt: skip


def one(world: World, rows: np.ndarray, per_hour: int, design: Generator[int, int]) -> dict[str, float]:
    """One stream: loss beside the best fixed threshold, and the largest difference from the plan since the start."""
    step = world.positions[1] - world.positions[0]
    cost, right = np.zeros(len(rows)), np.zeros(len(rows))
    position = next(design)
    for k, row in enumerate(rows.tolist()):
        at = min(round(position / step), len(world.positions) - 1)
        cost[k], right[k] = world.cost[at, row], world.right[at, row]
        position = design.send(int(cost[k]))  # type: ignore[attr-defined]
    counts = np.bincount(rows, minlength=len(world.case.rows))
    total, accuracy = world.cost @ counts, world.right @ counts / len(rows)
    order = np.argsort(total, kind="stable")
    best = float(np.interp(cost.sum(), total[order], np.maximum.accumulate(accuracy[order])))
    since, hours = servo_streams.deviations(cost, per_hour)
    return {"loss": best - float(right.mean()), "since": since, "hours": hours}


def try_designs(world: World, seeds: int) -> dict[str, dict[str, float]]:
    """By design the mean loss over all kinds of streams, and the largest differences from the plan."""
    per_hour, out = servo_streams.plan(world), {}
    streams = [
        servo_streams.stream(world, steps, np.random.default_rng(FIRST_SEED + seed))
        for steps in servo_streams.STEPS.values() for seed in range(seeds)
    ]  # fmt: skip
    for name, design in DESIGNS.items():
        runs = [one(world, rows, per_hour, design(world, per_hour)) for rows in streams]
        out[name] = {
            "loss": float(np.mean([r["loss"] for r in runs])), "since": max(r["since"] for r in runs),
            "hours": max(r["hours"] for r in runs),
        }  # fmt: skip
        print(name, out[name], file=sys.stderr, flush=True)
    return out


def main() -> None:
    """Try the designs on made gas drift, and write them into the record and the page of ``servo.py``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    made: list[Any] = [case for case in cases(args.folder) if case.name == "gas drift"]
    record = json.loads(RECORD.read_text())
    record["designs"] = {"seeds": args.seeds, "rows": try_designs(servo_streams.prepare(made[0]), args.seeds)}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    PAGE.write_text(page(record))


if __name__ == "__main__":
    main()
