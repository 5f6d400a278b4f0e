# SPDX-License-Identifier: Apache-2.0
"""Large tables under a time limit: seconds, memory and cut of the front, beside LightGBM fitted to the same table once.

    python -m benchmarks run large [--only tall ...]

The tables are made: nothing is downloaded. Each column is a sensor of cost 1, and a request costs as much as all of
them. Every table runs in a process of its own, so that its peak memory is its own, and LightGBM in another one. The cut
is 1 - the cost, relative to f0's, of the policy that ``hardcase export --max-loss 0.01`` picks on the judged rows,
measured on test rows. What a limit costs is seen on a fifth of the tall table's rows, with a fifth of its limit and
without one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification

from benchmarks.pages import ROOT
from hardcase_train.stages.deadline import seconds_of

RESULTS = ROOT / "benchmarks" / "results" / "large.json"
TALL = {"n_samples": 300_000, "n_features": 30, "n_informative": 15, "n_classes": 4}
WIDE = {"n_samples": 3_000, "n_features": 2_000, "n_informative": 40}
SHARE = 0.2  # of the tall table's rows, in the sample
TABLES: dict[str, tuple[str, str | None, dict[str, int]]] = {  # what it is, time limit, shape
    "tall": ("300,000 rows x 30 columns, 4 classes", "10m", TALL),
    "wide": ("3,000 rows x 2,000 columns, 2 classes", "10m", WIDE),
    "digits": ("1,797 rows x 64 columns, 10 classes", "60s", {}),
    "sample": ("60,000 rows of the first table", "2m", TALL),
    "longer": ("the same 60,000 rows", "3m", TALL),
    "longest": ("the same 60,000 rows", "8m", TALL),
    "unlimited": ("the same 60,000 rows", None, TALL),
}
MOST_LOST, MOST_MB = 0.01, 2_000  # of cut by a limit; of memory on the tall table
OF_THE_SAMPLE = ("sample", "longer", "longest", "unlimited")
TITLE = "# Large tables under a time limit\n\n"
HEAD = """`python -m benchmarks run large` trains made tables, whose columns cost 1 each, under a time limit; goals, \
on 2 idle cores: the tall table in 10 minutes and 2 GB, the wide one in 10 minutes, the digits in 60 s.
Load is of other processes for each core.

| table | limit | seconds | peak MB | quality, of f0 | cut | LightGBM once, s | ratio | load |
|---|---|---|---|---|---|---|---|---|
"""


def table_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, n_features) and classes (n,) of a table."""
    shape = TABLES[name][2]
    X, y = make_classification(**shape, random_state=0) if shape else load_digits(return_X_y=True)
    if name in OF_THE_SAMPLE:
        return X[: int(SHARE * len(y))], y[: int(SHARE * len(y))]  # in random order
    return X, y


def measure(name: str) -> dict[str, Any]:
    """Figures of one table, in this process."""
    import hardcase

    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    X, y = table_of(name)
    began = time.monotonic()
    policy = hardcase.train(
        X, y, forward_cost=float(X.shape[1]), max_loss=0.01, time_limit=TABLES[name][1], quiet=False
    )
    seconds = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    f0 = next(p.test for p in policy.front.points if p.method == "hpc")
    own = policy.front.picked.test
    figures = {
        "quality": own.quality,
        "f0": f0.quality,
        "cut": 1 - own.cost / f0.cost,
        "method": policy.front.picked.method,
    }
    return {"seconds": seconds, "peak_mb": peak, "load": load, **figures}


def peer(name: str) -> dict[str, float]:
    """Seconds of LightGBM, fitted once as it comes."""
    import lightgbm

    X, y = table_of(name)
    began = time.monotonic()
    lightgbm.LGBMClassifier(verbose=-1).fit(X, y)
    return {"lightgbm_s": time.monotonic() - began}


def page(measured: dict[str, dict[str, Any]]) -> str:
    """The Markdown page."""
    results = {name: measured[name] for name in TABLES if name in measured}
    rows = [
        f"| {TABLES[name][0]} | {TABLES[name][1] or 'none'} | {r['seconds']:.0f} | {r['peak_mb']:.0f} | "
        f"{r['quality']:.4f}, {r['f0']:.4f} | {100 * r['cut']:.1f} % | {r['lightgbm_s']:.1f} | "
        f"{r['seconds'] / r['lightgbm_s']:.0f} | {r['load']:.1f} |"
        for name, r in results.items()
    ]
    return TITLE + missed(results) + HEAD + "\n".join(rows) + "\n" + price_of_the_limit(results)


def missed(results: dict[str, dict[str, Any]]) -> str:
    """A line with the limits and goals that were not kept."""
    seconds = {name: TABLES[name][1] for name in results if name != "unlimited"}
    late = [name for name, limit in seconds.items() if limit and results[name]["seconds"] > seconds_of("limit", limit)]
    said = [f"{TABLES[name][0]} took {results[name]['seconds']:.0f} s of {seconds[name]}" for name in late]
    best = results.get("unlimited", {"cut": 0.0})["cut"]
    low = [name for name in OF_THE_SAMPLE if name in results and best - results[name]["cut"] > MOST_LOST]
    said += [f"the sample's cut with {seconds[name]} is {100 * results[name]['cut']:.1f} %" for name in low]
    if results.get("tall", {"peak_mb": 0})["peak_mb"] > MOST_MB:
        said.append(f"the tall table took {results['tall']['peak_mb']:.0f} MB")
    return f"It falls short of its goals: {'; '.join(said)}.\n\n" if said else ""


def price_of_the_limit(results: dict[str, dict[str, Any]]) -> str:
    """What the limit costs beside the sample without one; nothing before all three are measured."""
    if not {"tall", "sample", "unlimited"} <= set(results):
        return ""
    best = results["unlimited"]["cut"]
    lower = {
        TABLES[name][1]: f"{100 * (best - results[name]['cut']):.1f}" for name in OF_THE_SAMPLE[:-1] if name in results
    }
    tall = f"{100 * (best - results['tall']['cut']):.1f}"
    said = ", ".join(f"{points} with {limit}" for limit, points in lower.items())
    return (
        f"\nBeside the sample without a limit, the cut of the tall table is {tall} points "
        f"lower, and that of the sample {said} (goal: at most {100 * MOST_LOST:.0f}).\n"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--only", choices=TABLES, action="append")
    parser.add_argument("--here", choices=TABLES, help=argparse.SUPPRESS)  # the child process of one table
    parser.add_argument("--peer", choices=TABLES, help=argparse.SUPPRESS)  # that of LightGBM


def run(args: Any) -> Any:
    """Measure each table in a process of its own."""
    if args.here or args.peer:
        print(json.dumps(measure(args.here) if args.here else peer(args.peer)))
        return 0
    results = args.known()
    for name in args.only or TABLES:
        results[name] = {}
        for flag in ("--here", "--peer"):
            command = [sys.executable, "-m", "benchmarks", "run", "large", flag, name]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
            results[name] |= json.loads(done.stdout.splitlines()[-1])
        print(name, results[name], flush=True)
        args.save(results)
    return results
