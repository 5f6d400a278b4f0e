# SPDX-License-Identifier: Apache-2.0
"""Streams of ``servo.py``: cases whose hardness steps, decided in virtual time by the servo and at fixed thresholds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.servo_cases import Case
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.prices import LEVEL, Prices
from hardcase_edge.kernel.machine import decide, open_machine
from hardcase_edge.more.servo.servo import Servo, spending_bucket
from hardcase_edge.program.cost import to_unit
from hardcase_edge.session.session import CLOUD

__all__ = ["BASE", "EVERY_S", "HOURS", "STEPS", "World", "deviations", "one", "plan", "prepare", "stream"]

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
