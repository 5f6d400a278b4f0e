# SPDX-License-Identifier: Apache-2.0
"""Speed of trees of classifiers: 141,000 rows, 3,000 columns that need 519 sensors, 15 nodes, on made-up data.

    python -m benchmarks.many_trees grow                  a tree of the dictionary, beside LightGBM's, one thread each
    python -m benchmarks.many_trees fit --prices 1        one price; --prices 8: eight, each from the one before
    python -m benchmarks.many_trees render                writes docs/benchmarks/many_trees.md from the JSON

Columns are as trees of depth 2 give them: four values, by two features of made-up rows. The value to learn is a sum of
such trees, of which other ones matter on either side of a cheap feature.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_train.methods.cstc.descent import along, prices_of
from hardcase_train.methods.cstc.fit import has_by_then
from hardcase_train.methods.cstc.objective import Objective, Rule, payers_of
from hardcase_train.methods.cstc.shape import tree
from hardcase_train.policy.losses import SquaredLoss
from hardcase_train.trees.binning import make_bins
from hardcase_train.trees.grower import Grower

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "many_trees.json", ROOT / "docs" / "benchmarks" / "many_trees.md"
N_ROWS, N_SENSORS, N_COLUMNS, DEPTH = 141_000, 519, 3_000, 3
COSTS = (1.0, 5.0, 20.0, 50.0, 100.0, 150.0, 200.0)
SHARES = np.array([123, 31, 191, 125, 16, 32, 1]) / 519  # of the sensors, as in Xu et al. (2014), 6.2
N_TURNS = 7
SHAPE = {"max_leaves": 16, "max_depth": 4, "min_rows": 20, "l2": 1.0}
GOALS = {"grow": "at most 2 times LightGBM", "fit-1": "at most 300 s and 4 GB", "fit-8": "at most 1,200 s and 4 GB"}


def rows() -> tuple[np.ndarray, np.random.Generator]:
    """(n, 519) made-up readings."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(N_ROWS, N_SENSORS)).astype(np.float32), rng


def objective() -> Objective:
    """Columns, the value to learn, and what sensors and trees cost."""
    X, rng = rows()
    Z, needs = np.empty((N_ROWS, N_COLUMNS), dtype=np.float32), []
    for t in range(N_COLUMNS):
        a, b = rng.choice(N_SENSORS, 2, replace=False)
        place = 2 * (X[:, a] > rng.normal()) + (X[:, b] > rng.normal())
        Z[:, t] = 0.2 * rng.normal(size=4).astype(np.float32)[place]
        needs.append(sorted({int(a), int(b)}))
    side = X[:, 0] > 0
    weight = rng.normal(size=(2, N_COLUMNS)) * (rng.random((2, N_COLUMNS)) < 0.05)
    y = np.where(side, Z @ weight[0].astype(np.float32), Z @ weight[1].astype(np.float32)) + 2 * side
    y += 0.3 * rng.normal(size=N_ROWS)
    costs = rng.choice(COSTS, N_SENSORS, p=SHARES)
    loss = SquaredLoss(((y - y.mean()) / y.std()).astype(np.float64), np.ones(N_ROWS))
    return Objective(Z, loss, tree(DEPTH), payers_of(needs, costs, tree_cost=1.0), Rule())


def fit(n_prices: int) -> dict[str, Any]:
    """Seconds, peak memory, and at each price the objective and what paths cost."""
    made = objective()
    began, steps = time.perf_counter(), []
    free = np.ones((len(made.shape), N_COLUMNS), dtype=bool)
    known = prices_of(made, 8)
    for priced, weights in along(made, free, known if n_prices > 1 else [known[4]]):
        has = has_by_then(priced, replace(weights, coef=np.where(np.abs(weights.coef) > 1e-3, weights.coef, 0)), 519)
        costs = [float(made.payers.cost[:N_SENSORS] @ has[k]) for k, _ in made.shape.exits]
        live = int(weights.coef[:, :-1].any(axis=(0, 2)).sum())
        steps.append([priced.rule.price, priced(weights)[0], live, min(costs), max(costs)])
        print(f"{time.perf_counter() - began:.0f} s, price {steps[-1][0]:.2g}, {live} columns", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": time.perf_counter() - began, "peak_mb": peak, "steps": steps}


def grow() -> dict[str, Any]:
    """Median seconds of a tree, ours and LightGBM's, of 16 leaves, 64 bins and one thread."""
    import lightgbm

    X, rng = rows()
    y = X[:, :20] @ rng.normal(size=20) + rng.normal(size=N_ROWS)
    bins = make_bins(X.astype(np.float64), ("f64",) * N_SENSORS, 64)
    grower = Grower(bins.transform(X), bins.sizes, np.arange(N_SENSORS))
    params = {"objective": "l2", "num_leaves": 16, "max_depth": 4, "max_bin": 64, "min_data_in_leaf": 20,
              "lambda_l2": 1.0, "num_threads": 1, "verbose": -1}  # fmt: skip
    theirs = lightgbm.Booster(params, lightgbm.Dataset(X, y, params=params).construct())
    score, took = np.zeros(N_ROWS), {"ours": list[float](), "lightgbm": list[float]()}
    for _ in range(2 + N_TURNS):
        began = time.perf_counter()
        theirs.update()
        middle = time.perf_counter()
        tree_ = grower.grow(2 * (score - y)[:, None], np.full((N_ROWS, 1), 2.0), np.zeros(N_SENSORS), **SHAPE)
        score += 0.1 * tree_.leaves[tree_.leaf_of_row, 0]
        took["ours"].append(time.perf_counter() - middle)
        took["lightgbm"].append(middle - began)
    ours, other = (statistics.median(took[name][2:]) for name in ("ours", "lightgbm"))
    return {"ours_s": ours, "lightgbm_s": other, "ratio": ours / other, "version": lightgbm.__version__}


def page(results: dict[str, Any]) -> str:
    """The page's Markdown."""
    lines = [
        "# Trees of classifiers over many trees", "",
        "`python -m benchmarks.many_trees` writes this page.",
        "The made-up data have 141,000 rows, 519 sensors and 3,000 columns, and the tree has 15 nodes.",
        "", "| what | goal | measured |", "|---|---|---|",
    ]  # fmt: skip
    if "grow" in results:
        r = results["grow"]
        text = f"{1000 * r['ours_s']:.0f} ms, LightGBM {r['version']} {1000 * r['lightgbm_s']:.0f} ms: {r['ratio']:.2f}"
        lines.append(f"| a tree of 16 leaves on all 519 features, one thread | {GOALS['grow']} | {text} |")
    for key, what in (("fit-1", "one price"), ("fit-8", "eight prices, each from the one before")):
        if key in results:
            r = results[key]
            lines.append(f"| {what} | {GOALS[key]} | {r['seconds']:.0f} s, {r['peak_mb'] / 1024:.1f} GB |")
        else:
            lines.append(f"| {what} | {GOALS[key]} | not measured yet |")
    for key in ("fit-1", "fit-8"):
        if key in results:
            lines += ["", f"{'One price' if key == 'fit-1' else 'Eight prices'}:", ""]
            lines += ["| price | objective | columns in use | cheapest path | dearest path |", "|---|---|---|---|---|"]
            lines += [f"| {p:.2g} | {v:.4f} | {n} | {low:g} | {top:g} |" for p, v, n, low, top in results[key]["steps"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run one part and write JSON and page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("grow", "fit", "render"))
    parser.add_argument("--prices", type=int, choices=(1, 8), default=1)
    args = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if args.what == "grow":
        results["grow"] = grow()
    elif args.what == "fit":
        results[f"fit-{args.prices}"] = fit(args.prices)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))
    print(page(results))


if __name__ == "__main__":
    main()
