# SPDX-License-Identifier: Apache-2.0
"""Policies and streams of ``servo.py``: cases whose hardness steps, decided in virtual time by the servo and at fixed
thresholds; and the instructions of the servo in C, counted by valgrind's callgrind.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.pages import ROOT
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.prices import LEVEL, Prices
from hardcase_edge.kernel.machine import decide, open_machine
from hardcase_edge.more.servo.servo import Servo, spending_bucket
from hardcase_edge.program.cost import to_unit
from hardcase_edge.session.actions import CLOUD

KERNEL = ROOT / "edge_runtime" / "hardcase_edge" / "kernel"
MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "hardcase_servo.h"

int64_t held;
int hc_move(void *image, uint32_t node, int64_t threshold);
int hc_move(void *image, uint32_t node, int64_t threshold) { (void)image, (void)node; held = threshold; return 0; }

int main(int argc, char **argv)
{
    static const uint32_t nodes[] = {1, 2};
    static const int64_t levels[] = {900, 90, 500, 80, 256, 60, 0, 0};
    static const hc_prices prices = {nodes, levels, 2, 4, 1};
    static hc_bucket bucket;
    hc_bucket_open(&bucket, 3600000000, 90000000, HC_LAST(&prices), HC_LEVEL);
    for (long k = argc > 1 ? atol(argv[1]) : 0; k > 0; k--) {
        hc_passed(&bucket, 1000 + (uint32_t)(k & 7));
        hc_set_price(NULL, &prices, hc_position(&bucket));
        hc_spent(&bucket, k % 5 == 0 ? 5000000 : 0);
    }
    printf("%d\\n", (int)sizeof bucket);
    return held > 1000;
}
"""
MANY = 10_000


def instructions() -> dict[str, float]:
    """Instructions of one decision more with two thresholds, and bytes of the servo's state."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "main.c").write_text(MAIN)
        command = ["cc", "-std=c99", "-O2", f"-I{KERNEL}", "main.c", str(KERNEL / "hardcase_servo.c"), "-o", "main"]
        subprocess.run(command, cwd=folder, check=True)
        counts = {n: _counted(folder, n) for n in (0, MANY)}
        size = subprocess.run([folder / "main"], capture_output=True, text=True, check=True).stdout
    return {"instructions": (counts[MANY] - counts[0]) / MANY, "state_bytes": int(size)}


def _counted(folder: Path, n: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "./main", str(n)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1])


if __name__ == "__main__":
    print(instructions())


MEAN_COST = 10.0  # mJ, of the policy that is picked
GAS, BOARDS, CLASSES = 12, 4, 5  # sensors of the made array, groups bought together, and gases


@dataclass
class Case:
    """A policy, and rows for streams."""

    name: str
    text: str
    rows: list[list[float]]
    y: list[int]
    hpc: list[int]
    bundle: Path


def room() -> tuple[str, np.ndarray, np.ndarray, dict[str, list[int]], dict[str, float], float]:
    """Room occupancy: 10,129 rows, 4 classes; a node per group of sensors."""
    with np.load(Path(os.environ["HARDCASE_DATA"]) / "room_occupancy.npz") as data:
        X, y, names = data["X"].astype(float), data["y"], [str(n) for n in data["feature_names"]]
    groups = {kind: [k for k, n in enumerate(names) if kind in n] for kind in ("Temp", "Light", "Sound", "CO2", "PIR")}
    costs = {"Temp": 2.0, "Light": 40.0, "Sound": 2.0, "CO2": 10.0, "PIR": 1.0}
    text = "10,129 readings of a room's sensors (UCI Room Occupancy Estimation, CC BY 4.0), 0 to 3 people"
    return text, X, y, groups, costs, 20.0


def gas() -> tuple[str, np.ndarray, np.ndarray, dict[str, list[int]], dict[str, float], float]:
    """Made readings: each gas has a pattern over the array, scaled by the log of its concentration; gains drift."""
    rng = np.random.default_rng(21)
    n = 12_000
    y = rng.integers(0, CLASSES, n)
    patterns = rng.normal(1.0, 0.55, (CLASSES, GAS))
    strength = np.log1p(rng.lognormal(1.2, 0.8, n))[:, None]
    month = np.arange(n) / n * 36
    gain = 1 + month[:, None] * rng.normal(0.0, 0.004, GAS) + 0.03 * np.sin(month[:, None] / 6 + rng.random(GAS) * 6)
    noise = rng.normal(0, 1, (n, GAS)) * np.linspace(0.8, 0.4, GAS)
    X = (patterns[y] * strength * gain + noise).astype(np.float32).astype(float)
    groups = {f"board {b}": list(range(b * GAS // BOARDS, (b + 1) * GAS // BOARDS)) for b in range(BOARDS)}
    costs = {f"board {b}": cost for b, cost in enumerate((1.0, 2.0, 10.0, 30.0))}
    text = (
        f"12,000 made readings of {GAS} gas sensors on {BOARDS} boards, {CLASSES} gases: each gas has a pattern, "
        "scaled by the logarithm of its concentration, and each sensor's gain drifts over 36 months"
    )
    return text, X, y, groups, costs, 20.0


def cases(folder: Path) -> list[Case]:
    """Train what the folder does not have yet."""
    from sklearn.ensemble import RandomForestClassifier

    import hardcase

    made = []
    for name, make in {"room occupancy": room, "gas drift": gas}.items():
        text, X, y, groups, costs, forward = make()
        order = np.random.default_rng(5).permutation(len(y))
        ours, theirs = order[: len(y) // 2], order[len(y) // 2 :]
        bundle, answers = folder / f"{name}.hcb", folder / f"{name}.npy"
        forest = RandomForestClassifier(200, random_state=0)
        if not bundle.is_file():
            policy = hardcase.train(
                X[ours], y[ours], sensors=groups, costs=costs, forward_cost=forward, unit="mJ", hpc=forest,
                methods=["cascade"], effort="quick", budget=MEAN_COST, jobs=1,
            )  # fmt: skip
            policy.export(bundle, method="cascade", budget=MEAN_COST, prices=True, min_agreement=0.99)
            np.save(answers, forest.fit(X[ours], y[ours]).predict(X[theirs]))
        made.append(Case(name, text, X[theirs].tolist(), y[theirs].tolist(), np.load(answers).tolist(), bundle))
    return made


HOURS, EVERY_S = 8, 2  # a case each two seconds
STEPS = {"steps": (1, 1, 4, 4, 1, 1, 4, 1), "one step": (1, 1, 1, 1, 4, 4, 4, 4), "fast": (1, 4) * 4}
BASE = 0.12  # share of hard cases in an hour of hardness 1
FINE = 8  # fixed thresholds tried in hindsight, for each level of the table


@dataclass
class World:
    """A case's rows, decided at fixed thresholds: (positions, rows)."""

    case: Case
    prices: Prices
    positions: list[int]
    cost: np.ndarray
    right: np.ndarray
    hard: np.ndarray  # rows on which the shipped policy spends more than in the mean
    worst: int


def prepare(case: Case) -> World:
    """Decide each row at each of the fixed thresholds."""
    loaded = load_bundle(case.bundle)
    prices = loaded.manifest.prices
    assert prices is not None
    machine = open_machine(loaded.bundle.program, moved=prices.nodes)
    positions = list(range(0, prices.last + 1, LEVEL // FINE))
    cost, right = (np.zeros((len(positions), len(case.rows))) for _ in range(2))
    classes = list(loaded.manifest.classes)
    replies = [(classes.index(label), 9_000) for label in case.hpc]
    for p, position in enumerate(positions):
        for node, threshold in zip(prices.nodes, prices.at(position), strict=True):
            machine.move(node, threshold)
        for k, row in enumerate(case.rows):
            d = decide(machine, row, replies[k])
            cost[p, k], right[p, k] = d.cost, classes[int(d.result)] == case.y[k]
    shipped = positions.index(prices.shipped * LEVEL)
    return World(case, prices, positions, cost, right, cost[shipped] > cost[shipped].mean(), loaded.report.worst_cost)


def stream(world: World, steps: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Numbers of rows: each hour's share of hard cases is a multiple of the first hour's; its order is random."""
    n = 3600 // EVERY_S
    easy, hard = np.flatnonzero(~world.hard), np.flatnonzero(world.hard)
    rows = []
    for step in steps:
        is_hard = rng.random(n) < BASE * step
        rows.append(np.where(is_hard, rng.choice(hard, n), rng.choice(easy, n)))
    return np.concatenate(rows)


def plan(world: World) -> int:
    """Micro-units in an hour: half-way between what the highest price takes where cases are hard, and the lowest where
    they are easy, so that there is a price that keeps to it in each hour."""
    share = np.array([1.0, 4.0]) * BASE
    easy, hard = (world.cost[:, rows].mean(axis=1) for rows in (~world.hard, world.hard))
    most, least = (easy[p] * (1 - s) + hard[p] * s for p, s in ((0, share[0]), (-1, share[1])))
    return round((most + least) / 2 * 3600 / EVERY_S)


def spent(world: World, rows: np.ndarray, per_hour: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Cost of each decision of the servo, whether it is right, and the most that was spent beyond the plan."""
    loaded = load_bundle(world.case.bundle)
    machine = open_machine(loaded.bundle.program, moved=world.prices.nodes)
    classes = list(loaded.manifest.classes)
    replies = [(classes.index(label), 9_000) for label in world.case.hpc]
    servo = Servo(world.prices, spending_bucket(per_hour, world.worst, world.prices))
    bucket = servo.spending
    assert bucket is not None
    cost, right = np.zeros(len(rows)), np.zeros(len(rows))
    spent, beyond, before = 0, -1e18, ()
    for k, row in enumerate(rows.tolist()):
        servo.passed(EVERY_S * 1000)
        budget, _ = servo.begin(None)
        thresholds = servo.thresholds
        if thresholds != before:
            for node, threshold in zip(world.prices.nodes, thresholds, strict=True):
                machine.move(node, threshold)
            before = thresholds
        d = decide(machine, world.case.rows[row], replies[row], budget=budget)
        servo.ended(d.cost, d.route == CLOUD)
        cost[k], right[k] = d.cost, classes[int(d.result)] == world.case.y[row]
        spent += d.cost
        beyond = max(beyond, spent - per_hour * (k + 1) * EVERY_S / 3600)
    return cost, right, beyond / bucket.burst


def deviations(cost: np.ndarray, per_hour: float) -> tuple[float, float]:
    """From the second hour on, the largest difference from the plan, as a share: since the start, and of an hour."""
    n = 3600 // EVERY_S
    planned = per_hour * np.arange(1, len(cost) + 1) / n
    since = np.abs(np.cumsum(cost) / planned - 1)[n:].max()
    hours = np.abs(cost.reshape(-1, n).sum(axis=1) / per_hour - 1)[1:].max()
    return float(since), float(hours)


def even(world: World, rows: np.ndarray, per_hour: int) -> float:
    """Accuracy of the best fixed position of each hour that spends the hour's plan, chosen in hindsight."""
    n, shares = 3600 // EVERY_S, []
    for hour in rows.reshape(-1, n):
        counts = np.bincount(hour, minlength=len(world.case.rows))
        total, accuracy = world.cost @ counts, world.right @ counts / n
        order = np.argsort(total, kind="stable")
        shares.append(np.interp(per_hour, total[order], accuracy[order]))
    return float(np.mean(shares))


def one(world: World, steps: tuple[int, ...], seed: int) -> dict[str, float]:
    """One stream."""
    rows = stream(world, steps, np.random.default_rng(seed))
    shipped = world.positions.index(world.prices.shipped * LEVEL)
    per_hour = plan(world)
    cost, right, beyond = spent(world, rows, per_hour)
    since, hours = deviations(cost, per_hour)
    counts = np.bincount(rows, minlength=len(world.case.rows))
    total, accuracy = world.cost @ counts, world.right @ counts / len(rows)
    order = np.argsort(total, kind="stable")
    best = float(np.interp(cost.sum(), total[order], np.maximum.accumulate(accuracy[order])))
    fixed = world.cost[shipped][rows]
    return {
        "since": since,
        "hours": hours,
        "beyond": beyond,
        "accuracy": float(right.mean()),
        "hindsight": best,
        "even": even(world, rows, per_hour),
        "loss": best - float(right.mean()),
        "shipped": float(accuracy[shipped]),
        "shipped_cost": float(fixed.sum() / HOURS / per_hour),
        "shipped_hours": deviations(fixed, per_hour)[1],
        "plan": to_unit(per_hour),
    }
