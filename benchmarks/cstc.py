# SPDX-License-Identifier: Apache-2.0
"""Trees and cascades of classifiers (Xu et al. 2014) beside static sets, cascades and GreedyMiser, on their data.

    python -m benchmarks.cstc --data digits --split 0 --method cstc-2 cascade    adds results to the JSON
    python -m benchmarks.cstc --render                                           only writes the page again

A run that was stopped goes on where it was: what is in the JSON is not run again. Methods are the keys of ``METHODS``.
Points are chosen on validation rows: of those whose mean cost there is within a budget the best. The page has their
figures on test rows, as means over splits with 95 % intervals (Student's t) of the paired difference to ``static``.
``HARDCASE_DATA`` names the folder of the data sets.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from hardcase_train.data.effort import NORMAL
from hardcase_train.data.problem import Problem
from hardcase_train.methods.adapt.greedy_miser import GreedyMiser
from hardcase_train.methods.baselines.cascade import ConfidenceCascade
from hardcase_train.methods.baselines.static import StaticSubset
from hardcase_train.methods.cstc.cost_tree import CostSensitiveTree
from hardcase_train.methods.graph.nested import nested_points
from hardcase_train.methods.graph.reduce import inclusion
from hardcase_train.policy.front import Point, best_points, with_test
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.nested_sets import Chains
from hardcase_train.stages.priced_sets import PricedSets
from hardcase_train.stages.screening import screen
from hardcase_train.stages.subset_search import SubsetSearch

from . import digits38, relevance

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "cstc.json", ROOT / "docs" / "benchmarks" / "cstc.md"
EFFORT = replace(NORMAL, n_tree_prices=6)
LARGEST = 64  # sensors of a priced set that is trained
PROBLEMS: dict[str, Callable[[int, Any], Problem]] = {"digits": digits38.problem_of, "mq2008": relevance.problem_of}
BUDGETS = {"digits": (6, 8, 10, 12.5, 16, 25, 40, 60), "mq2008": (100, 151, 200, 377, 800, 1874)}
LOSS = {"digits": "error", "mq2008": "1 - NDCG@5"}

Run = Callable[[Problem, SubsetSearch], list[Point]]


def tree(**params: Any) -> Run:
    """A tree of classifiers on all sensors."""
    return lambda problem, search: CostSensitiveTree(**params).points(search.judge)


def priced(name: str) -> Callable[[SubsetSearch], list[tuple[int, ...]]]:
    return lambda search: [s for s in getattr(search.once(PricedSets), name) if len(s) <= LARGEST]


def static_sets(search: SubsetSearch) -> list[Point]:
    points = []
    for sensors in priced("plain")(search):
        points += StaticSubset.run(search, {"sensors": list(sensors), "classifier": "trees"})
    return points


def staged(name: str) -> Run:
    """Priced cuts over nested sets from prices; of values, without a stage that is sure of nothing."""

    def run(problem: Problem, search: SubsetSearch) -> list[Point]:
        chain = priced(name)(search)
        graph = inclusion([(), problem.offered, *chain] if len(problem.offered) <= LARGEST else [(), *chain])
        return nested_points(search, graph, {"classifier": "trees"})

    return run


def searched(problem: Problem, search: SubsetSearch) -> list[Point]:
    """The cascade over the sets of the greedy search, on the sensors that screening keeps."""
    kept, _ = screen(problem)
    own = SubsetSearch(Judge(kept, is_alone=True), 1)
    chain = [list(s) for s in own.once(Chains).greedy]
    return ConfidenceCascade.run(own, {"chain": chain, "classifier": "trees"})


def miser(problem: Problem, search: SubsetSearch) -> list[Point]:
    """GreedyMiser over its gammas, as a sweep has them."""
    return [p for params in GreedyMiser.grid(search) for p in GreedyMiser.run(search, params)]


METHODS: dict[str, Run] = {
    "single": tree(depth=0),
    "cstc-1": tree(depth=1),
    "cstc-2": tree(depth=2),
    "cstc-2, trees answer": tree(depth=2, leaves="trees"),
    "cscc-4": tree(shape="cascade", depth=3),
    "cronus-4": tree(shape="cronus", depth=3),
    "static": lambda problem, search: static_sets(search),
    "staged": staged("plain"),
    "staged, sets for the rows that come": staged("onward"),
    "cascade, searched sets": searched,
    "greedy-miser": miser,
}


def known() -> dict[str, Any]:
    """The results so far."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def points_of(data: str, split: int, names: list[str], results: dict[str, Any]) -> None:
    """Add the figures of these methods to the results."""
    problem = PROBLEMS[data](split, EFFORT)
    search = SubsetSearch(Judge(problem, is_alone=True), 1)
    for name in names:
        key = f"{data}/{split}/{name}"
        if key in results:
            continue
        began = time.process_time()
        points = with_test(problem, best_points(METHODS[name](problem, search)))
        seconds = time.process_time() - began
        figures = [[p.valid["cost"], p.valid["quality"], p.test["cost"], p.test["quality"]] for p in points]
        results.update(known())  # of other runs meanwhile
        results[key] = {"seconds": round(seconds, 1), "points": [[round(x, 5) for x in row] for row in figures]}
        print(key, f"{seconds:.0f} s,", len(points), "points", flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def picked(points: list[list[float]], budget: float) -> tuple[float, float] | None:
    """Loss and mean cost on test rows of the point that is best on validation rows within the budget."""
    within = [p for p in points if p[0] <= budget]
    if not within:
        return None
    best = max(within, key=lambda p: (p[1], -p[0]))
    return 1 - best[3], best[2]


def page(results: dict[str, Any]) -> str:
    """The page's Markdown."""
    lines = [HEAD]
    for data, budgets in BUDGETS.items():
        splits = sorted({int(k.split("/")[1]) for k in results if k.startswith(f"{data}/")})
        if not splits:
            continue
        lines += [f"## {TITLES[data]}: {len(splits)} split{'s'[: len(splits) > 1]}", ""]
        lines += [
            "| method | " + " | ".join(f"<= {b:g}" for b in budgets) + " | CPU s |",
            "|---" * (len(budgets) + 2) + "|",
        ]
        for name in METHODS:
            runs = {s: results[key] for s in splits if (key := f"{data}/{s}/{name}") in results}
            if runs:
                cells = [_cell(results, data, runs, budget) for budget in budgets]
                seconds = np.mean([run["seconds"] for run in runs.values()])
                lines.append(f"| {name} ({len(runs)}) | " + " | ".join(cells) + f" | {seconds:.0f} |")
        lines.append("")
    return "\n".join(lines)


def _cell(results: dict[str, Any], data: str, runs: dict[int, Any], budget: float) -> str:
    """Mean loss at mean cost, and the paired difference to ``static`` with its interval."""
    found = {s: p for s, run in runs.items() if (p := picked(run["points"], budget)) is not None}
    if not found:
        return "-"
    loss, cost = np.mean(list(found.values()), axis=0)
    text = f"{loss:.4f} @ {cost:.3g}"
    beside = {s: picked(results.get(f"{data}/{s}/static", {"points": []})["points"], budget) for s in found}
    gaps = [found[s][0] - b[0] for s, b in beside.items() if b is not None]
    if len(gaps) < 2 or not any(gaps):
        return text
    half = stats.t.ppf(0.975, len(gaps) - 1) * np.std(gaps, ddof=1) / np.sqrt(len(gaps))
    return f"{text} ({np.mean(gaps):+.4f} ± {half:.4f})"


TITLES = {
    "digits": "3 against 8 in four resolutions, 1,120 pixels at 1 each",
    "mq2008": "MQ2008, features cost 1 to 200, 1 - NDCG@5",
}
HEAD = """# Trees and cascades of classifiers

`benchmarks/cstc.py` writes this page; `benchmarks/quadrants.py` has the synthetic data of the paper.

Each cell is the loss on test rows at the mean cost there (pixels, or the cost of features), of the policy that is \
best on validation rows within the budget.
In brackets is the paired difference to `static` with a 95 % interval over splits.
A number behind a name says how many splits the row has.
No policy forwards: f0 knows nothing here.

- `single`, `cstc`, `cscc` and `cronus` are [the method `cstc`](../training.md#train) with linear nodes on \
standardised readings; the number counts levels below the root, or nodes of a cascade.
- `static`: boosted trees on the nested sets from prices.
- `staged`: the same sets as stages, with the cuts of a price, and once more with later sets bought for the rows that \
come to them.
- `cascade, searched sets`: the cascade over the sets of the greedy search, after screening.
"""


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=PROBLEMS, default="digits")
    parser.add_argument("--split", type=int, nargs="+", default=[0])
    parser.add_argument("--method", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--render", action="store_true")
    args = parser.parse_args()
    results = known()
    if not args.render:
        for split in args.split:
            points_of(args.data, split, args.method, results)
    PAGE.write_text(page(results).rstrip() + "\n")


if __name__ == "__main__":
    main()
