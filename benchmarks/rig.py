# SPDX-License-Identifier: Apache-2.0
"""The hydraulic rig: every target, paired seeds, f0 and both baselines beside every policy.

    python -m benchmarks run rig [--seeds 10] [--targets accumulator_bar ...] [--methods route ...]

A run that was stopped goes on where it was: finished methods of each seed are in the JSON; ``--fresh`` begins anew.

For each target and seed: split, train, pick on the judged rows as ``hardcase export --max-loss 0.005`` does, report on
test rows. Rows of the table: f0, each method picked by itself, and "hardcase", picked among all of POOL; where no
policy of a method is good enough on the judged rows, f0 is picked, and the row says in how many seeds. The JSON keeps
the parameters of every pick. Intervals are 95 % (Student's t over the seeds) of the paired difference to f0.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.pages import ROOT, provenance, rest
from hardcase.training import front_table as seeds
from hardcase.training.front_table import ALL, Row, picked, summarise
from hardcase_train.settings.effort import QUICK
from hardcase_train.settings.toml import read_config
from hardcase_train.sweep.train import learn
from hardcase_train.tasks.task import make_task

EXAMPLE = ROOT / "examples" / "hydraulic" / "hardcase.toml"
TARGETS = ("cooler_condition_pct", "valve_condition_pct", "pump_leakage", "accumulator_bar", "stable_flag")
POOL = ("static", "cascade", "adapt-gbrt", "dag")
BRIEF = ("route", "adapt-lin", "adapt-lstsq")  # at effort quick: at normal each split takes minutes
BESIDE = ("greedy-miser", "budget-prune", "l1", *BRIEF)
MAX_LOSS = 0.005
RATIO = 0.9  # of the cheaper baseline's cost, to reach
DAG_RATIO = 0.85  # the same by "dag"


def add(run: dict[str, Row], target: str, seed: int, methods: Sequence[str]) -> None:
    """Add the rows of these methods to a run, by name, and that of the pick among all where they are POOL."""
    task = make_task(read_config(EXAMPLE, seed=seed).but(target=target))
    points = learn(task.problem, tuple(m for m in methods if m not in BRIEF), quiet=True)
    if brief := tuple(m for m in methods if m in BRIEF):
        quick = replace(task.problem, effort=QUICK)
        points += [p for p in learn(quick, brief, quiet=True) if p.method in brief]
    found = picked(task.config.unit, points, MAX_LOSS)
    if run and run["f0"]["quality"] != found["f0"]["quality"]:
        raise SystemExit(f"{target}, seed {seed}: f0 is not what it was; run it again with --fresh")
    names = ("f0", *methods, *([ALL] if methods == POOL else []))
    run |= {name: found.get(name, found["f0"]) for name in names}  # f0's where no policy has come of a method


def table(target: str, rows: dict[str, dict[str, Any]], n_seeds: int) -> str:
    """The target's table as Markdown."""
    lines = [f"## {target}: {n_seeds} seeds", "", *seeds.table(rows, "mJ")]
    good = {n: r for n, r in rows.items() if r["loss"] <= MAX_LOSS}
    least = min(r["cost"] for r in good.values())
    cheapest = " and ".join(n for n, r in good.items() if r["cost"] <= least + 1e-9)
    lines += ["", f"cheapest at most {MAX_LOSS} below f0: {cheapest}.", *verdict(good)]
    return "\n".join(lines)


def verdict(good: dict[str, dict[str, Any]]) -> list[str]:
    """Our rows compared with the cheaper baseline, of those that are near enough to f0: a sentence each."""
    theirs = [r["cost"] for n, r in good.items() if n in ("static", "cascade")]
    if not theirs:
        return ["No baseline is that near."]
    ratios = [
        f"{name} costs {good[name]['cost'] / min(theirs):.2f} of the cheaper baseline (goal: {ratio})"
        if name in good
        else f"{name} is not that near"
        for name, ratio in (("hardcase", RATIO), ("dag", DAG_RATIO))
    ]
    floor = min(s.cost for s in read_config(EXAMPLE).sensors) / min(theirs)
    return [f"{'; '.join(ratios)}; the cheapest sensor alone would cost {floor:.2f} of it."]


def page(results: dict[str, Any]) -> str:
    """The page of all targets, once all have been run."""
    done = results["targets"]
    if set(done) != set(TARGETS):
        return ""
    for row in (row for result in done.values() for run in result["runs"] for row in run.values()):
        row.setdefault("total", row["cost"])  # errors cost nothing here; older records say so by leaving it out
    lines = ["", "| policy | " + " | ".join(f"`{t}`" for t in TARGETS) + " |", "|---" * (1 + len(TARGETS)) + "|"]
    for name in ("f0", *POOL, ALL, *BESIDE):
        cells = [_cell(name, done[target]["runs"]) for target in TARGETS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    tables, said = [], []
    for target in TARGETS:
        text = table(target, summarise(done[target]["runs"]), len(done[target]["runs"]))
        tables.append(rest("a table of each target, with forwarded shares", text))
        verdict_of = text.rpartition("|\n\n")[2].replace("\n", " ")
        said.append(f"- {target} ({len(done[target]['runs'])} seeds): {verdict_of}")
    return "\n".join([*lines, "", *said, "", *tables])


def _cell(name: str, runs: list[dict[str, Row]]) -> str:
    """Of f0 accuracy and cost; of others how far below f0, the cost, and in how many seeds f0 stands for them."""
    mine = [run for run in runs if name in run]
    if len(mine) < 2:
        return "not run"
    row = summarise(mine)[name]
    if name == "f0":
        return f"{row['quality']:.4f} @ {row['cost']:.0f}"
    cost = "{:.1f} ± {:.1f}" if row["cost"] < 100 else "{:.0f} ± {:.0f}"
    text = f"{row['loss']:.4f} ± {row['loss_pm']:.4f} @ {cost.format(row['cost'], row['cost_pm'])}"
    instead = row["methods"].get("hpc", 0)
    notes = [f"f0 in {instead}"] * bool(instead) + [f"{len(mine)} seeds"] * (len(mine) < len(runs))
    return text + f" ({', '.join(notes)})" * bool(notes)


SEEDS = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--targets", nargs="+", default=TARGETS)
    parser.add_argument("--methods", nargs="+", choices=BESIDE, default=BESIDE, help="beside those of the pick")


def run(args: Any) -> dict[str, Any]:
    """Run what is not there yet, and print each table."""
    results: dict[str, Any] = args.known().get("targets", {})
    for target in args.targets:
        runs = results.get(target, {"runs": []})["runs"]
        made_with = results.get(target, {}).get("with", [[] for _ in runs])
        for seed in range(args.seeds):
            if seed == len(runs):
                runs.append({})
                made_with.append([])
            for some in (POOL, tuple(args.methods)):
                if missing := tuple(name for name in some if name not in runs[seed]):
                    add(runs[seed], target, seed, missing)
                    made_with[seed].append({"methods": missing, **provenance()})
                    results[target] = {"rows": summarise(runs), "runs": runs, "with": made_with}
                    args.save({"max_loss": MAX_LOSS, "targets": results})
                    print(f"{target}, seed {seed}: {' '.join(missing)}", flush=True)
        print(table(target, results[target]["rows"], len(runs)), flush=True)
    return {"max_loss": MAX_LOSS, "targets": results}
