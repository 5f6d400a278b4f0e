# SPDX-License-Identifier: Apache-2.0
"""The hydraulic rig: every target, paired seeds, f0 and both baselines beside every policy.

    python -m benchmarks run rig [--seeds 10] [--targets accumulator_bar ...]

A run that was stopped goes on where it was: finished seeds are in the JSON; ``--fresh`` begins anew.

For each target and seed: split, train, pick on the judged rows as ``hardcase export --max-loss 0.005`` does, report on
test rows. Rows of the table: f0, each method picked by itself, and "hardcase", picked among all of METHODS; where no
policy of a method is good enough on the judged rows, f0 is picked, and the row says in how many seeds. The JSON keeps
the parameters of every pick. Intervals are 95 % (Student's t over the seeds) of the paired difference to f0.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.pages import ROOT, provenance, rest
from hardcase.training import front_table as seeds
from hardcase.training.front_table import picked, summarise
from hardcase_train.settings.toml import read_config
from hardcase_train.sweep.train import learn
from hardcase_train.tasks.task import make_task

EXAMPLE = ROOT / "examples" / "hydraulic" / "hardcase.toml"
TARGETS = ("cooler_condition_pct", "valve_condition_pct", "pump_leakage", "accumulator_bar", "stable_flag")
METHODS = ("static", "cascade", "adapt-gbrt", "dag")
MAX_LOSS = 0.005
RATIO = 0.9  # of the cheaper baseline's cost, to reach
DAG_RATIO = 0.85  # the same by "dag"
SHOWN = ("| cascade", "| dag", "| hardcase")  # on the page


def run_seed(target: str, seed: int) -> dict[str, dict[str, Any]]:
    """Test figures of each row of the table, by name."""
    task = make_task(read_config(EXAMPLE, seed=seed).but(target=target))
    return picked(task.config.unit, learn(task.problem, METHODS, quiet=True), MAX_LOSS)


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
    texts, done, heads, said = [], results["targets"], list[str](), list[str]()
    if set(done) != set(TARGETS):
        return ""
    for target in TARGETS:
        result = done[target]
        for row in (row for run in result["runs"] for row in run.values()):
            row.setdefault("total", row["cost"])  # errors cost nothing here; older records say so by leaving it out
        text = table(target, summarise(result["runs"]), len(result["runs"]))
        texts.append(rest("a table of each target with every method", text))
        rows, _, verdicts = text.partition("\n|")[2].rpartition("\n\n")
        rows = ["|" + row for row in rows.split("\n|")]
        heads = heads or [f"| target {rows[0]}", f"|---{rows[1]}"]
        heads += [f"| {target} {row}" for row in rows[2:] if row.startswith(SHOWN)]
        verdict_of = verdicts.replace("\n", " ")
        said.append(f"- {target} ({len(result['runs'])} seeds): {verdict_of}")
    return "\n" + "\n".join([*heads, "", *said, "", *texts])


SEEDS = 3


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--targets", nargs="+", default=TARGETS)


def run(args: Any) -> dict[str, Any]:
    """Run the seeds that are not there yet, and print each table."""
    results: dict[str, Any] = args.known().get("targets", {})
    for target in args.targets:
        runs = results.get(target, {"runs": []})["runs"]
        made_with = results.get(target, {}).get("with", [None] * len(runs))
        for seed in range(len(runs), args.seeds):
            runs.append(run_seed(target, seed))
            made_with.append(provenance())
            results[target] = {"rows": summarise(runs), "runs": runs, "with": made_with}
            args.save({"max_loss": MAX_LOSS, "targets": results})
            print(f"{target}, seed {seed}", flush=True)
        print(table(target, results[target]["rows"], len(runs)), flush=True)
    return {"max_loss": MAX_LOSS, "targets": results}
