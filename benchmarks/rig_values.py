# SPDX-License-Identifier: Apache-2.0
"""Two targets of the hydraulic rig as numbers: R² and cost of policies beside a regressor as f0, over seeds.

    python -m benchmarks run rig_values [--seeds 10] [--targets accumulator_bar ...]

Finished seeds are in the JSON and are not run again. Points are picked on judged rows: of those whose mean cost there
is within a share of f0's cost the best. The page has their figures on test rows, as means over seeds, with 95 %
intervals (Student's t) of the paired difference to f0.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.pages import ROOT, rest
from hardcase_train.settings.toml import read_config
from hardcase_train.sweep.train import learn
from hardcase_train.tasks.task import make_task

EXAMPLE = ROOT / "examples" / "hydraulic" / "hardcase.toml"
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "rig_values.json", ROOT / "docs" / "benchmarks" / "rig_values.md"
TARGETS = ("accumulator_bar", "valve_condition_pct")
METHODS = ("static", "cascade", "greedy-miser", "cstc", "astc", "stage-wise")
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5)  # of f0's cost
GOAL, GOAL_SHARE = 0.010, 0.2  # R² below f0's, and the share of its cost


def run_seed(target: str, seed: int) -> dict[str, Any]:
    """Cost and R² on judged rows, then on test rows, of each method's points, and f0's on test rows."""
    config = read_config(EXAMPLE, seed=seed).but(
        target=target, task="value", estimator="ExtraTreesRegressor", effort="quick"
    )
    points = learn(make_task(config).problem, METHODS, quiet=True)
    found: dict[str, Any] = {name: [] for name in ("hpc", *METHODS)}
    for p in points:
        row = [p.valid.cost, p.valid.quality, p.test.cost, p.test.quality]
        found[p.method].append([round(x, 5) for x in row])
    return found


def picked(points: list[list[float]], budget: float) -> list[float] | None:
    """The point that is best on judged rows within the budget."""
    within = [p for p in points if p[0] <= budget]
    return max(within, key=lambda p: (p[1], -p[0])) if within else None


def table(runs: list[dict[str, Any]]) -> list[str]:
    """The lines of a target's table, and whether the goal is reached."""
    f0 = [run["hpc"][0] for run in runs]
    lines = [f"f0: R² {np.mean([p[3] for p in f0]):.4f} at {np.mean([p[2] for p in f0]):.0f} mJ.", ""]
    lines += ["| method | " + " | ".join(f"{100 * s:g} %" for s in SHARES) + " |", "|---" * (1 + len(SHARES)) + "|"]
    near: dict[str, float] = {}
    for name in METHODS:
        cells = []
        for share in SHARES:
            found = [picked(run[name], share * p[2]) for run, p in zip(runs, f0, strict=True)]
            pairs = [(p, own[3] - p[3]) for p, own in zip(found, f0, strict=True) if p is not None]
            if len(pairs) < len(runs):
                cells.append("-")
                continue
            below = [gap for _, gap in pairs]
            half = stats.t.ppf(0.975, len(below) - 1) * np.std(below, ddof=1) / np.sqrt(len(below))
            cost = np.mean([p[2] for p, _ in pairs])
            cells.append(f"{np.mean([p[3] for p, _ in pairs]):.4f} @ {cost:.0f} ({np.mean(below):.4f} ± {half:.4f})")
            if share == GOAL_SHARE:
                near[name] = float(np.mean(below))
        line = f"| {name} | " + " | ".join(cells) + " |"
        lines.append(line if near.get(name, 1.0) <= GOAL else rest("methods that miss the goal", line).rstrip())
    good = [f"{name} ({gap:.4f})" for name, gap in near.items() if gap <= GOAL]
    said = f"reached by {', '.join(good)}" if good else "missed by all"
    return [*lines, "", f"Goal: at most {GOAL:g} below f0 at {100 * GOAL_SHARE:g} % of its cost: {said}."]


def page(results: dict[str, Any]) -> str:
    """The page's Markdown."""
    lines = [""]
    for target, runs in results.items():
        if len(runs) > 1:
            lines += [f"## {target}: {len(runs)} seeds", "", *table(runs), ""]
    return "\n".join(lines).rstrip() + "\n"


SEEDS = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))


def run(args: Any) -> dict[str, Any]:
    """Run the seeds that are not there yet."""
    results = args.known()
    for target in args.targets:
        runs = results.setdefault(target, [])
        for seed in range(len(runs), args.seeds):
            runs.append(run_seed(target, seed))
            args.save(results)
            print(f"{target}, seed {seed}", flush=True)
    return results
