# SPDX-License-Identifier: Apache-2.0
"""Figures of "Indexing Cost Sensitive Prediction" drawn again: what they show is computed here or read from results."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.pages import PAGES, pyplot, save
from hardcase_train.methods.polydom.greedy import ACCURACY, CHEAPEST, PRICES, Sequences, make_sequences
from hardcase_train.methods.polydom.index import candidates, index_all, make_index, naive_lookup
from hardcase_train.methods.polydom.search import search_sets
from hardcase_train.methods.polydom.sets import mask_of

__all__ = ["draw", "figures", "lines"]

Synthetic = Callable[[int, str, int], tuple[list[tuple[int, int, int]], Callable[[int], float]]]
KINDS = ("f0", "f2")
LARGEST, SIZE = 500, 250
N_QUERIES = 300
N_BUDGETS = 60
GREEDY = {"greedy": PRICES, "greedy-acc": (ACCURACY,), "greedy-cost": (CHEAPEST,)}
COLOURS = {
    "all": "#888888", "the paper": "#b7791f", "ours": "#0b4f5c", "greedy": "#8a5a12", "greedy-acc": "#b7791f",
    "greedy-cost": "#d9a441", "poly-dom": "#117a8b", "index-all": "#888888", "naive-lookup": "#b03a2e",
    "hybrid": "#0b4f5c", "greedy per size": "#8a5a12",
}  # fmt: skip


def figures(synthetic: Synthetic, counts_of_features: Sequence[int]) -> dict[str, Any]:
    """Sizes of indexes, retrieval times and accuracy against budget, alpha 1, on one synthetic lattice for each."""
    rows = []
    for kind in KINDS:
        for n in counts_of_features:
            costs, accuracy = synthetic(n, kind, 0)
            found = search_sets(costs, LARGEST, accuracy, 0.5)
            sets = candidates(found)
            index = make_index(sets, LARGEST)
            rng = random.Random(0)
            sizes = [rng.randint(1, LARGEST) for _ in range(N_QUERIES)]
            queries = [(size, int(rng.uniform(0, 1.1) * max(s.at(size) for s in sets))) for size in sizes]
            greedy = make_sequences(found.costs, accuracy, SIZE)
            rows.append(
                {
                    "kind": kind, "n": n, "greedy trained": _expanded(greedy.orders), "poly-dom": index.n_entries,
                    "index-all": index_all(sets, LARGEST).n_entries, "naive-lookup": len(sets),
                    "poly-dom us": _us(index.pick, queries),
                    "naive-lookup us": _us(lambda s, b, sets=sets: naive_lookup(sets, s, b), queries),
                }
            )  # fmt: skip
    return {"rows": rows, "budgets": {kind: _curves(synthetic, kind) for kind in KINDS}}


def _expanded(orders: Sequence[tuple[int, ...]]) -> int:
    """How many sets were compared on the way to these orders."""
    compared = set()
    for order in orders:
        for k in range(len(order)):
            compared |= {mask_of(order[:k]) | 1 << s for s in order[k:]}
    return len(compared)


def _us(pick: Callable[[int, int], object], queries: Sequence[tuple[int, int]]) -> float:
    """Least CPU microseconds of a lookup in five runs."""
    least = float("inf")
    for _ in range(5):
        began = time.process_time()
        for size, budget in queries:
            pick(size, budget)
        least = min(least, time.process_time() - began)
    return 1e6 * least / len(queries)


def _curves(synthetic: Synthetic, kind: str, n: int = 10) -> dict[str, Any]:
    """Accuracy against budget for items of one size, with n features."""
    costs, accuracy = synthetic(n, kind, 0)
    found = search_sets(costs, LARGEST, accuracy, 0.5)
    index = make_index(candidates(found), LARGEST)
    amounts = found.costs.at(SIZE)
    budgets = np.geomspace(amounts[1:].min() / 2, amounts.max() * 1.1, N_BUDGETS)
    curves: dict[str, Any] = {"budget": (budgets / 1e6).tolist()}
    picks = [index.pick(SIZE, int(b)) for b in budgets]
    curves["poly-dom"] = [0.5 if s is None else s.accuracy for s in picks]
    for name, prices in GREEDY.items():
        sequences = make_sequences(found.costs, accuracy, SIZE, prices)
        curves[name] = [_followed(sequences, amounts, accuracy, int(b)) for b in budgets]
    return curves


def _followed(sequences: Sequences, amounts: np.ndarray, accuracy: Callable[[int], float], budget: int) -> float:
    """The accuracy that the sequence reaches on which the best affordable set lies."""
    order = next((o for s, o in sequences.starts if amounts[s.mask] <= budget), sequences.starts[-1][1])
    mask = 0
    for sensor in sequences.orders[order]:
        if amounts[mask | 1 << sensor] > budget:
            break
        mask |= 1 << sensor
    return accuracy(mask) if mask else 0.5


# ---------------------------------------------------------------- drawing


def _has_synthetic(results: dict[str, Any]) -> bool:
    return "figures" in results and "synthetic" in results


def _has_scenes(runs: list[dict[str, Any]]) -> bool:
    has_searches = all("by tolerance" in r.get("searches", {}) for r in runs)
    return bool(runs) and has_searches and any("in time" in r for r in runs)


def lines(results: dict[str, Any]) -> str:
    """The lines of the page that show the pictures."""
    made = []
    if _has_synthetic(results):
        made.append(
            "![sets trained, size of the index and retrieval time against the number of features, and accuracy against "
            "budget, for f0 and f2](polydom-synthetic.svg)"
        )
    if _has_scenes(list(results.get("scenes", {}).values())):
        made.append(
            "![scenes: sets trained and size of the index against the tolerance, violations by distance, accuracy in "
            "time against the budget](polydom-scenes.svg)"
        )
    return "\n\n".join(made)


def draw(results: dict[str, Any]) -> None:
    """Write the pictures that these results allow."""
    if _has_synthetic(results):
        _draw_synthetic(results["synthetic"], results["figures"])
    if _has_scenes(runs := list(results.get("scenes", {}).values())):
        _draw_scenes(runs)


def _draw_synthetic(trained: list[dict[str, Any]], made: dict[str, Any]) -> None:
    figure, axes = pyplot().subplots(2, 4, figsize=(13, 6), layout="constrained")
    for line, (kind, row) in enumerate(zip(KINDS, axes, strict=True)):
        at = [r for r in trained if r["kind"] == kind]
        rows = [r for r in made["rows"] if r["kind"] == kind]
        n = [r["n"] for r in at]
        row[0].semilogy(n, [r["all"] for r in at], "--", color=COLOURS["all"], label="all sets")
        for key, name in (("paper", "the paper"), ("ours", "ours")):
            row[0].semilogy(n, [r[key]["trained"] for r in at], "o-", color=COLOURS[name], ms=3, label=name)
        row[0].semilogy(
            [r["n"] for r in rows], [r["greedy trained"] for r in rows], ".:", color="#444444", label="greedy"
        )
        row[0].set_title(f"{kind}, alpha {at[0]['alpha']:g}: sets trained")
        for name in ("index-all", "poly-dom", "naive-lookup"):
            values = [max(r[name], 1) for r in rows]
            row[1].semilogy([r["n"] for r in rows], values, "o-", color=COLOURS[name], ms=3, label=name)
        row[1].set_title(f"{kind}, alpha 1: entries")
        for name in ("poly-dom", "naive-lookup"):
            row[2].plot(
                [r["n"] for r in rows], [r[f"{name} us"] for r in rows], "o-", color=COLOURS[name], ms=3, label=name
            )
        row[2].set_title(f"{kind}: us of a lookup in Python")
        curves = made["budgets"][kind]
        for name in ("poly-dom", *GREEDY):
            row[3].semilogx(curves["budget"], curves[name], color=COLOURS[name], label=name)
        row[3].set_title(f"{kind}, 10 features, size {SIZE}: accuracy")
        for k, axis in enumerate(row):
            axis.legend(fontsize=7)
            if line:
                axis.set_xlabel("budget" if k == 3 else "features")
    save(figure, PAGES / "polydom-synthetic.svg")


def _draw_scenes(runs: list[dict[str, Any]]) -> None:
    figure, axes = pyplot().subplots(1, 4, figsize=(13, 3.2), layout="constrained")
    sweep = runs[0]["searches"]["by tolerance"]
    for alpha in dict.fromkeys(p["alpha"] for p in sweep):
        for k, key in enumerate(("trained", "entries")):
            points = [
                (p["tolerance"], np.mean([r["searches"]["by tolerance"][i][key] for r in runs]))
                for i, p in enumerate(sweep)
                if p["alpha"] == alpha
            ]
            axes[k].plot(*zip(*points, strict=True), "o-", ms=3, label=f"alpha {alpha:g}")
    axes[0].set_title("sets trained of 8,191")
    axes[1].set_title("entries of the index")
    for axis in axes[:2]:
        axis.set_xlabel("tolerance e")
        axis.legend(fontsize=7)
    by_distance = [r["searches"]["violations"]["by distance"] for r in runs]
    distance = range(1, len(by_distance[0]) + 1)
    for k, label in ((0, "median"), (1, "95th percentile"), (2, "largest")):
        axes[2].plot(distance, np.mean([[d[k] for d in one] for one in by_distance], axis=0), "o-", ms=3, label=label)
    axes[2].axhline(0, color="#bbbbbb", lw=0.8)
    axes[2].set_title("accuracy lost by more extractors")
    axes[2].set_xlabel("extractors more")
    axes[2].legend(fontsize=7)
    timed = [r["in time"]["cpu"] for r in runs if "cpu" in r.get("in time", {})]
    budgets = np.median([t["budgets"] for t in timed], axis=0)
    for name in ("hybrid", "greedy per size", "poly-dom", "greedy-acc", "greedy-cost"):
        curve = np.mean([t["methods"][name]["curve"] for t in timed], axis=0)
        axes[3].semilogx(budgets, curve, "o-", ms=3, color=COLOURS[name], label=name)
    axes[3].set_title("accuracy in time, CPU clock")
    axes[3].set_xlabel("budget in ms")
    axes[3].legend(fontsize=7)
    save(figure, PAGES / "polydom-scenes.svg")
