# SPDX-License-Identifier: Apache-2.0
"""Running budgets in virtual time: spending against the plan under steps of hardness, and accuracy at equal spending.

    HARDCASE_DATA=FOLDER python benchmarks/servo.py [--seeds 50] [--only NAME] [--keep FOLDER] [--out FILE] [--render]

Two policies are trained on rows that no stream uses: room occupancy, and made readings of a drifting gas array. A
stream draws its cases from the other rows: hard ones, on which the shipped policy spends more than in the mean, and
easy ones; the share of hard cases steps by four times.
``--keep`` keeps the trained bundles, so that a second run does not train; ``--only`` runs the streams of one policy
again, and keeps the figures of the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pages import ROOT, markdown, options, results
from servo_c import instructions

sys.path.insert(0, str(ROOT))

from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.prices import LEVEL, Prices
from hardcase_edge.kernel.machine import decide, open_machine
from hardcase_edge.program.cost import to_unit
from hardcase_edge.servo.servo import Servo, spending_bucket
from hardcase_edge.session.session import CLOUD

PAGE = ROOT / "docs" / "benchmarks" / "servo.md"
HOURS, EVERY_S = 8, 2  # a case each two seconds
STEPS = {"steps": (1, 1, 4, 4, 1, 1, 4, 1), "one step": (1, 1, 1, 1, 4, 4, 4, 4), "fast": (1, 4) * 4}
BASE = 0.12  # share of hard cases in an hour of hardness 1
FINE = 8  # fixed thresholds tried in hindsight, for each level of the table
GOALS = {"deviation": 0.03, "loss": 0.005}
HEAD = """# Running budgets under steps of hardness

`HARDCASE_DATA=FOLDER python benchmarks/servo.py` wrote this page; [budgets](../budgets.md) says what a running budget \
is.
The servo's gain was chosen on a simulation without rows, after runs of two of these seeds had been looked at.

Streams of {hours} hours with a case each {every} s, {seeds} seeds each, in virtual time, on rows that no training saw.
A hard case is one on which the shipped policy spends more than in the mean.
An hour of hardness 1 has {base} of them, an hour of hardness 4 four times as many.
The plan lies half-way between what the highest price takes in a hard hour and the lowest in an easy one, so that \
there is a price that keeps to it in every hour.

{about}
## Spending

{spending}

*since start* is what was spent since the start against the plan for that time, the largest difference at any moment \
from the second hour on; *an hour* is one hour's spending against an hour's plan.
*of the limit* is how much of the burst was spent ahead of the plan at the worst moment: 100 % is the hard limit.
The goal, within 3 % of the plan from the second hour on, is {on_plan} for what is spent since the start.
The shipped thresholds, which do not move, follow the hardness.

## Accuracy at equal spending

{accuracy}

*best fixed in hindsight* is the best of all fixed positions of the same table at what the servo spent in all, chosen \
with the stream's own labels.
It keeps to no hourly plan: it spends more in hard hours than in easy ones, and a servo that spends alike in every \
hour cannot.
*a price for each hour* is the best fixed position of each hour among those that spend the plan in every hour, in \
hindsight, too: what lies between it and the best fixed one is the price of an hourly plan.
What lies between the servo and it is the price's own motion: in a burst of 90 seconds there are few dear cases, so \
the price follows their chance order, too.
The goal, at most 0.5 points below it in the mean over the seeds, is {accurate}.

{designs}## What it takes

What a decision more takes in a device's Python, alone and beside drift monitors and audits, is in \
[the table of the device's loop](slow_failures.md#a-decision-of-the-device-in-instructions), and the modules with all \
that they hold take {kb:.0f} KB.
The goal is 20 us for all three together and 2 MB.
In C it takes {instructions:.0f} instructions (x86-64, -O2, callgrind) with two thresholds, and {state} bytes.
"""
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


# ---------------------------------------------------------------- policies


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


# ---------------------------------------------------------------- streams


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


def run(world: World, rows: np.ndarray, per_hour: int) -> tuple[np.ndarray, np.ndarray, float]:
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
    cost, right, beyond = run(world, rows, per_hour)
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


# ---------------------------------------------------------------- what it takes


HOLDS = """
import sys, tempfile, tracemalloc
from hardcase_edge.base.clock import Clock
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.cli import make_parser

loaded = load_bundle(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    flags = ["--budget-per-hour", "10000", "--budget-file", folder + "/b.json", "--sensors", "replay:-"]
    args = make_parser().parse_args(["run", sys.argv[1], *flags])
    tracemalloc.start()
    from hardcase_edge.running.budgeting import budgets_of
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
    return out | {key: before[key] for key in ("designs",) if key in before}


# ---------------------------------------------------------------- the page


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def hours(stream: dict[str, Any]) -> str:
    return " ".join(map(str, STEPS[stream["kind"]]))


def spending(r: dict[str, Any]) -> str:
    """Each stream's spending, of the worst seed."""
    titles = ("rows", "hours' hardness", "since start", "an hour", "of the limit", "within 3 %", "shipped: an hour")
    rows = []
    for s in r["streams"]:
        worst = s["worst"]
        figures = (percent(worst["since"]), percent(worst["hours"]), percent(worst["beyond"], 0))
        kept = f"{s['kept']} of {r['seeds']}"
        rows.append((s["case"], hours(s), *figures, kept, percent(worst["shipped_hours"])))
    return markdown(titles, rows)


def accuracy(r: dict[str, Any]) -> str:
    """Each stream's accuracy, in the mean over the seeds."""
    titles = ("rows", "hours' hardness", "servo", "a price for each hour", "best fixed in hindsight", "loss",
              "loss, worst seed", "shipped",
              "shipped spends, of plan")  # fmt: skip
    rows = []
    for s in r["streams"]:
        mean, loss = s["mean"], (s["mean"]["loss"], s["worst"]["loss"])
        points = [f"{100 * x:.2f} points" for x in loss]
        shares = [percent(mean[key], 2) for key in ("accuracy", "even", "hindsight", "shipped")]
        rows.append((s["case"], hours(s), *shares[:3], *points, shares[3], percent(mean["shipped_cost"], 0)))
    return markdown(titles, rows)


def designs(r: dict[str, Any]) -> str:
    """What other designs would lose; nothing if nobody has tried them."""
    if "designs" not in r:
        return ""
    rows = [
        (name, f"{100 * d['loss']:.2f} points", percent(d["since"]), percent(d["hours"]))
        for name, d in r["designs"]["rows"].items()
    ]
    return (
        "### Other designs\n\n"
        "`python benchmarks/servo_windows.py FOLDER` tries other servos on made gas drift, on streams of "
        f"{r['designs']['seeds']} seeds for each hardness that none of the tables above has; a decision there costs "
        "what the nearest fixed threshold makes it cost, and no limit cuts it off.\n\n"
        + markdown(("design", "loss", "since start", "an hour"), rows)
        + "\n\nA wider window does not lose less: the price then follows a step of hardness later.\n"
        "Dual averaging sets the price by all that was spent since the start, divided by the root of the number of "
        "decisions, so it hardly moves after some hours.\nIt loses nothing where it may spend a hard hour's need from "
        "easy hours, and the more it keeps to each hour's plan, the more it loses.\n"
        "With a gain of 0.3 it stays within about 3 % of the plan since the start and loses 0.2 points, but an hour "
        "then spends up to a quarter more or less than the plan: that is not a budget per hour, and its hard limit "
        "would be a burst of a quarter of an hour.\n"
        "So the loss beside the best fixed threshold is the price of an hourly plan, and the servo stays as it is.\n\n"
    )


def page(r: dict[str, Any]) -> str:
    """The page."""
    about = "".join(
        f"- *{c['name']}*: {c['text']}; {c['nodes']} thresholds move over {c['levels']} levels, from "
        f"{c['costs'][0]:.1f} to {c['costs'][1]:.1f} mJ a decision on validation rows.\n"
        for c in r["cases"]
    )
    off = [f"{s['case']}, {hours(s)}" for s in r["streams"] if s["kept"] < r["seeds"]]
    missed = [f"{s['case']}, {hours(s)}" for s in r["streams"] if s["mean"]["loss"] > GOALS["loss"]]
    return HEAD.format(
        hours=HOURS, every=EVERY_S, seeds=r["seeds"], base=percent(BASE, 0), about=about, spending=spending(r),
        accuracy=accuracy(r), designs=designs(r), on_plan=f"missed by {'; '.join(off)}" if off else "met",
        accurate=f"missed by {'; '.join(missed)}" if missed else "met",
        kb=r["bytes"] / 1024, instructions=r["c"]["instructions"], state=r["c"]["state_bytes"],
    )  # fmt: skip


def main() -> None:
    parser = options(__doc__, "servo")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", default="", choices=("", "room occupancy", "gas drift"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as holder:
        folder = args.keep or Path(holder)
        folder.mkdir(parents=True, exist_ok=True)
        before = json.loads(args.out.read_text()) if args.only and args.out.is_file() else {}
        r = results(args, lambda: measure(args.seeds, folder, args.only, before))
    PAGE.write_text(page(r))
    print(page(r))


if __name__ == "__main__":
    main()
