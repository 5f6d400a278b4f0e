# SPDX-License-Identifier: Apache-2.0
"""Letters and Covertype: how much of f0's cost each method cuts, at what loss of accuracy, over ten random splits.

    HARDCASE_DATA=FOLDER python -m benchmarks run learning [--cases letters ...] [--seeds 10]

For each case and seed: rows are drawn, f0 is fitted, every method trained, and for each loss of a list the policy is
picked on the judged rows as ``hardcase export --max-loss`` does; its figures on test rows are what is reported. The
JSON holds the points of every method, so a run that was stopped goes on where it was, and a method may be added. Rows
of every split: results/splits.npz.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning_cases import CASES, Case, problem_of, split_of
from benchmarks.learning_page import draw_all, picked_runs, table, text_of
from benchmarks.pages import ROOT, provenance, unmarked
from hardcase_train.sweep.train import learn

RESULTS = ROOT / "benchmarks" / "results"
FIGURES = (("valid", ("quality", "cost", "forward_rate", "loss_se")), ("test", ("quality", "cost", "forward_rate")))


def run_seed(case: Case, seed: int, methods: Sequence[str]) -> dict[str, Any]:
    """Each method's points: FIGURES end to end, then the parameters; "hpc" is f0's one point."""
    problem = problem_of(case, seed)
    out: dict[str, Any] = {name: [] for name in ("hpc", *methods)}
    for p in learn(problem, tuple(methods), quiet=True):
        figures = [round(getattr(getattr(p, rows), key), 6) for rows, keys in FIGURES for key in keys]
        out[p.method].append([*figures, _brief(p.params)])
    return out


def _brief(params: dict[str, Any]) -> dict[str, Any]:
    """How a point was made, without the sets and cuts that make it large."""
    plain = {k: v for k, v in params.items() if isinstance(v, str | int | float)}
    return plain | {f"n_{k}": len(params[k]) for k in ("stages", "sensors") if k in params}


def save_splits(cases: list[str], seeds: int, path: Path) -> None:
    """Each row's part in each split: 0, 1, 2 for train, valid, test, 255 for none; (n_seeds, n_rows) per case."""
    out = {}
    for name in cases:
        n = len(CASES[name].rows()[1])
        several = 1 if CASES[name].in_order else seeds
        part = np.full((several, n), 255, dtype=np.uint8)
        for seed in range(several):
            for k, rows in enumerate(split_of(CASES[name], n, seed)):
                part[seed, rows] = k
        out[name] = part
    np.savez_compressed(path, **out)


SEEDS = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--methods", nargs="+", help="only these, the rest another time")


def run(args: Any) -> dict[str, Any]:
    """Run what is not there yet, and print each table."""
    results: dict[str, Any] = args.known()
    for name in args.cases:
        runs = results.setdefault(name, {})
        for seed in range(1 if CASES[name].in_order else args.seeds):
            made = runs.setdefault(str(seed), {})
            missing = [m for m in args.methods or CASES[name].methods if m in CASES[name].methods and m not in made]
            if missing:
                began = time.monotonic()
                made |= run_seed(CASES[name], seed, missing)
                made.setdefault("with", {}).update(dict.fromkeys(missing, provenance()))
                args.save(results)
                print(f"{name}, seed {seed}, {' '.join(missing)}: {time.monotonic() - began:.0f} s", flush=True)
        print(unmarked(table(CASES[name], picked_runs(CASES[name], runs))), flush=True)
    save_splits([c for c in CASES if c in results], args.seeds, RESULTS / "splits.npz")
    return results


def page(results: dict[str, Any]) -> str:
    """The page of the cases that have been run."""
    return text_of({c: results[c] for c in CASES if c in results})


def draw(results: dict[str, Any]) -> None:
    """The pictures of the page."""
    draw_all({c: results[c] for c in CASES if c in results})
