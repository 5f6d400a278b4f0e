# SPDX-License-Identifier: Apache-2.0
"""The page and the pictures of ``benchmarks/cstc.py``: figures on test rows of points that validation rows choose."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from . import quadrants
from .cstc_methods import METHODS
from .pictures import pyplot, save

__all__ = ["PAGE", "PATHS", "RESULTS", "pictures", "write_page"]

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "cstc.json", ROOT / "docs" / "benchmarks" / "cstc.md"
PATHS = RESULTS.with_name("cstc_paths.json")  # of benchmarks/cstc_paths.py
BUDGETS = {
    "digits": (6, 8, 10, 12.5, 16, 25, 40, 60),
    "mq2008": (100, 151, 200, 377, 800, 1600),
    "skewed": (80, 130, 200, 400, 800, 1600),
}
IS_LOSS = {"digits": True, "mq2008": False, "skewed": False}
NAMES = [*METHODS, "early exit"]
TITLES = {
    "digits": "3 against 8 in four resolutions, 1,120 pixels at 1 each: error",
    "mq2008": "MQ2008, features cost 1 to 200 and a tree 1: NDCG@5",
    "skewed": "MQ2008 skewed, the same costs: Precision@5",
}
GOALS: dict[str, list[tuple[str, float, float]]] = {
    "digits": [("linear cstc", 40, 0.035), ("linear cstc", 60, 0.030), ("any", 12.5, 0.0085), ("any", 16, 0.0060)],
    "mq2008": [("any", 151, -0.003), ("any", 377, 0.005), ("cstc", 377, -0.003)],
    "skewed": [("cscc", 130, 0.146)],
}
FAMILIES = {
    "linear cstc": [n for n in NAMES if n.startswith("cstc") and "trees" not in n],
    "cstc": [n for n in NAMES if n.startswith(("cstc", "cscc", "cronus"))],
    "cscc": [n for n in NAMES if n.startswith("cscc")],
    "sets": [n for n in NAMES if n.startswith(("static", "cascade", "staged", "greedy-miser"))],
    "any": NAMES,
}
CORE = ("stage-wise", "static", "staged", "cstc-2", "greedy-miser")  # whose splits in common are compared
REFERENCE = {"digits": "static", "mq2008": "stage-wise", "skewed": "stage-wise"}
FIGURES = {
    "6": ("mq2008", ("stage-wise", "single", "early exit", "cronus-4", "cstc-2", "cstc-2, trees answer", "staged")),
    "7": ("skewed", ("stage-wise", "early exit", "adaboost-rs", "and-or", "cronus-4", "cstc-2", "cscc-4", "cascade")),
    "11": ("mq2008", tuple(n for n in NAMES if n.startswith("cstc-2, on trees"))),
    "12": ("digits", ("single", "cstc-1", "cstc-2", "cstc-3, pruned", "astc-2", "static", "staged")),
}  # of Xu et al. (2014)
PRICES = np.geomspace(1e-7, 1e-1, 300)  # quality per cost unit, from one that buys all to one that buys next to nothing
HEAD = """# Trees and cascades of classifiers

`benchmarks/cstc.py` writes this page, with what `benchmarks/quadrants.py` and `benchmarks/cstc_paths.py` have measured.

Each cell is the quality on test rows at the mean cost there (pixels, or the cost of features), of the policy that is \
best on validation rows within the budget.
In brackets is the paired difference to `static`, or to `stage-wise` of any cost, with a 95 % interval over splits.
A number behind a name says how many splits the row has; goals and the comparison with sets use the splits that \
`stage-wise`, `static`, `staged`, `cstc-2` and `greedy-miser` have in common.
Rows with fewer splits than others were stopped, and their figures are not comparable with rows of other splits.
A goal names the method that is best on validation rows, and then every row whose own choice on validation rows \
reaches it on test rows: of many rows, some reach a goal by chance.
Where validation rows are few, as MQ2008's 110 queries with a relevant document, the best of many points on them is \
often the luckiest; a second table takes, in each split, the point of the largest quality minus price times cost on \
validation rows, at one price for all splits, which their mean validation quality within the budget chooses.
That table was added when the first one was known.
No policy forwards: f0 knows nothing here.
Where a tree costs, a policy pays 1 for each tree that it evaluates, beside the meter's sensors.

- `single`, `cstc`, `cscc` and `cronus` are [the method `cstc`](../training.md#train) with linear nodes on \
standardised readings unless they are `on trees`; the number counts levels below the root, or nodes of a cascade.
- `zeros kept` and `trees answer` are two ways of fine-tuning; without a word, all columns of the sensors that \
a row has bought are fitted again.
- `stage-wise`, `and-or`, `adaboost-rs`, `astc` and `greedy-miser` are methods too; `early exit` judges a whole query \
at once (`benchmarks/early_exit.py`) and is not a program.
- `static`: boosted trees on the nested sets from prices; `cascade`: the same sets as stages, with one confidence.
- `staged`: the same sets with the cuts of a price, and once more with later sets bought for the rows that come to them.
- `greedy-miser, 8 leaves`: the same method with trees of depth 3 and more prices.
- `cascade, searched sets`: the cascade over the sets of the greedy search, after screening.
"""

Picked = tuple[float, float]  # quality and cost on test rows
Best = tuple[float, str, float, float]  # quality on validation rows, name, figure and cost on test rows


def picked(points: list[list[float]], budget: float) -> Picked | None:
    """The point that is best on validation rows within the budget."""
    within = [p for p in points if p[0] <= budget]
    if not within:
        return None
    best = max(within, key=lambda p: (p[1], -p[0]))
    return best[3], best[2]


def runs_of(results: dict[str, Any], data: str, name: str) -> dict[int, Any]:
    """The runs of a method by split."""
    keys = {int(k.split("/")[1]): k for k in results if k.startswith(f"{data}/") and k.split("/", 2)[2] == name}
    return {split: results[key] for split, key in sorted(keys.items())}


def write_page(results: dict[str, Any]) -> str:
    """The page's Markdown."""
    lines = [HEAD]
    for data in BUDGETS:
        splits = sorted({int(k.split("/")[1]) for k in results if k.startswith(f"{data}/")})
        if splits:
            lines += _section(results, data, len(splits))
    return "\n".join([*lines, *quadrants.lines(), *_paths()]).rstrip() + "\n"


def _paths() -> list[str]:
    """What the paths of trees of classifiers cost, and the share of test rows on each."""
    if not PATHS.exists():
        return []
    lines = [
        "## Path costs", "",
        "`benchmarks/cstc_paths.py` takes one split.",
        "A path is shown as its cost and the share of test rows that end on it; a path that no row takes is left out.",
        "Where all paths cost the same, the tree is a fixed set.", "",
        "| data | method | within | on test rows | paths |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for key, rows in json.loads(PATHS.read_text()).items():
        data, _, name = key.split("/", 2)
        for budget, cost, quality, ways, *more in rows:
            ap = f" (AP@5 {more[0]:.4f})" if more else ""
            shown = ", ".join(f"{way:.4g} ({share:.0%})" for way, share in ways)
            lines.append(f"| {data} | {name} | {budget:g} | {_shown(data, quality):.4f}{ap} @ {cost:.3g} | {shown} |")
    return lines


def _section(results: dict[str, Any], data: str, n_splits: int) -> list[str]:
    budgets = BUDGETS[data]
    lines = [f"## {TITLES[data]}, {n_splits} split{'s'[: n_splits > 1]}", ""]
    lines += [
        "| method | " + " | ".join(f"<= {b:g}" for b in budgets) + " | CPU s |",
        "|---" * (len(budgets) + 2) + "|",
    ]
    for name in NAMES:
        runs = runs_of(results, data, name)
        if runs:
            cells = [_cell(results, data, runs, budget) for budget in budgets]
            seconds = np.mean([run["seconds"] for run in runs.values()])
            lines.append(f"| {name} ({len(runs)}) | " + " | ".join(cells) + f" | {seconds:.0f} |")
    lines += ["", *_goals(results, data), "", *_against(results, data), *_one_price(results, data)]
    pictures = [
        f"![Figure {k} of the paper, redrawn](cstc-figure-{k}.svg)" for k, (d, _) in FIGURES.items() if d == data
    ]
    return [*lines, "", *pictures, ""]


def _shown(data: str, quality: float) -> float:
    return 1 - quality if IS_LOSS[data] else quality


def _beside(results: dict[str, Any], data: str, split: int, budget: float) -> float | None:
    """What a run is compared with, on the same split: ``static`` within the budget, or ``stage-wise`` of any cost."""
    name = REFERENCE[data]
    run = runs_of(results, data, name).get(split)
    found = None if run is None else picked(run["points"], budget if name == "static" else np.inf)
    return None if found is None else _shown(data, found[0])


def _cell(results: dict[str, Any], data: str, runs: dict[int, Any], budget: float) -> str:
    """Mean quality at mean cost, and the paired difference with its interval."""
    found = {s: p for s, run in runs.items() if (p := picked(run["points"], budget)) is not None}
    if not found:
        return "-"
    quality, cost = np.mean(list(found.values()), axis=0)
    text = f"{_shown(data, quality):.4f} @ {cost:.3g}" if cost < 1000 else f"{_shown(data, quality):.4f} @ {cost:.0f}"
    beside = {s: _beside(results, data, s, budget) for s in found}
    gaps = [_shown(data, found[s][0]) - b for s, b in beside.items() if b is not None]
    if len(gaps) < 2 or not any(gaps):
        return text
    half = stats.t.ppf(0.975, len(gaps) - 1) * np.std(gaps, ddof=1) / np.sqrt(len(gaps))
    return f"{text} ({np.mean(gaps):+.4f} ± {half:.4f})"


def _goals(results: dict[str, Any], data: str) -> list[str]:
    """A line for each goal: the method of the family that is best on validation rows, and whether it reaches it."""
    lines = []
    core = [set(runs) for name in CORE if (runs := runs_of(results, data, name))]
    common = set.intersection(*core) if core else set()
    reference = [_beside(results, data, s, np.inf) for s in sorted(common)]
    known = [r for r in reference if r is not None]
    base = float(np.mean(known)) if known and data == "mq2008" else 0.0
    for family, budget, goal in GOALS[data]:
        best = _best(results, data, FAMILIES[family], budget)
        if best is not None:
            bound = base + goal
            sign = "at most" if IS_LOSS[data] else "at least"
            said = "reached" if _is_met(data, best[2], bound) else "missed"
            reach = _reaching(results, data, FAMILIES[family], budget, bound)
            lines.append(
                f"- Goal ({family}): {sign} {bound:.4f} within {budget:g}; best on validation rows is {best[1]}, "
                f"{best[2]:.4f} @ {best[3]:.3g}: {said}.\n  Rows that reach it: {', '.join(reach) or 'none'}."
            )
            if not reach:
                lines.append("  " + _closest(results, data, FAMILIES[family], budget))
    return lines


def _is_met(data: str, quality: float, bound: float) -> bool:
    return quality <= bound if IS_LOSS[data] else quality >= bound


def _reaching(results: dict[str, Any], data: str, names: Sequence[str], budget: float, bound: float) -> list[str]:
    """The methods run on all splits in common whose own choice on validation rows reaches a bound on test rows."""
    made = []
    for name in names:
        best = _best(results, data, [name], budget)
        if best is not None and _is_met(data, best[2], bound):
            made.append(f"{name} ({best[2]:.4f} @ {best[3]:.3g})")
    return made


def _closest(results: dict[str, Any], data: str, names: Sequence[str], budget: float) -> str:
    """The four methods that come closest to a goal that none reaches, and the best that any of their points could."""
    own = [best for name in names if (best := _best(results, data, [name], budget)) is not None]
    nearest = sorted(own, key=lambda best: best[2] if IS_LOSS[data] else -best[2])[:4]
    said = ", ".join(f"{name} {quality:.4f} @ {cost:.3g}" for _, name, quality, cost in nearest)
    ceilings = []
    for _, name, _, _ in nearest:
        tops = [max(p[3] for p in run["points"] if p[0] <= budget) for run in runs_of(results, data, name).values()]
        ceilings.append(_shown(data, float(np.mean(tops))))
    ceiling = min(ceilings) if IS_LOSS[data] else max(ceilings)
    return f"Closest: {said}. If the test rows chose the points, which they must not, one of these had {ceiling:.4f}."


def _best(results: dict[str, Any], data: str, names: Sequence[str], budget: float) -> Best | None:
    """Of the methods run on all splits in common the one that is best on validation rows within the budget."""
    core = [set(runs) for name in CORE if (runs := runs_of(results, data, name))]
    common = set.intersection(*core) if core else set()
    best: Best | None = None
    for name in names:
        by_split = runs_of(results, data, name)
        runs = [by_split[split] for split in sorted(common & set(by_split))]
        within = [[p for p in run["points"] if p[0] <= budget] for run in runs]
        if not runs or len(runs) < len(common) or not all(within):
            continue
        value = float(np.mean([max(p[1] for p in own) for own in within]))
        test = np.mean([p for run in runs if (p := picked(run["points"], budget)) is not None], axis=0)
        if best is None or value > best[0]:
            best = (value, name, _shown(data, float(test[0])), float(test[1]))
    return best


def _against(results: dict[str, Any], data: str) -> list[str]:
    """A line for each budget: the best tree of classifiers beside the best policy over sets."""
    lines = ["Trees of classifiers beside policies over sets, each the best on validation rows within the budget:", ""]
    for budget in BUDGETS[data]:
        pair = [_best(results, data, FAMILIES[family], budget) for family in ("cstc", "sets")]
        if pair[0] is not None and pair[1] is not None:
            (_, tree, a, a_cost), (_, other, b, b_cost) = pair
            is_behind = a > b if IS_LOSS[data] else a < b
            lines.append(
                f"- within {budget:g}: {tree} {a:.4f} @ {a_cost:.3g}, {other} {b:.4f} @ {b_cost:.3g}; "
                f"the tree {'loses' if is_behind else 'gains'} {abs(a - b):.4f}."
            )
    return [*lines, ""] if len(lines) > 2 else []


def _one_price(results: dict[str, Any], data: str) -> list[str]:
    """A table of choices by one price for all splits, of the methods run on all of them."""
    runs = {name: runs_of(results, data, name) for name in NAMES}
    most = max(map(len, runs.values()))
    rows = []
    for name, by_split in runs.items():
        fronts = [np.array(run["points"]) for run in by_split.values()]
        if len(fronts) == most > 1:
            cells = [_at_one_price(fronts, budget) for budget in BUDGETS[data]]
            shown = ["-" if c is None else f"{_shown(data, c[0]):.4f} @ {c[1]:.3g}" for c in cells]
            rows.append(f"| {name} | " + " | ".join(shown) + " |")
    if not rows:
        return []
    return [
        f"Chosen by one price for all {most} splits:", "",
        "| method | " + " | ".join(f"<= {b:g}" for b in BUDGETS[data]) + " |",
        "|---" * (len(BUDGETS[data]) + 1) + "|", *rows, "",
    ]  # fmt: skip


def _at_one_price(fronts: Sequence[np.ndarray], budget: float) -> Picked | None:
    """Mean quality and cost on test rows: the price is best in mean validation quality of those within the budget."""
    best: np.ndarray | None = None
    for price in PRICES:
        means = np.mean([front[np.argmax(front[:, 1] - price * front[:, 0])] for front in fronts], axis=0)
        if means[0] <= budget and (best is None or means[1] > best[1]):
            best = means
    return None if best is None else (float(best[3]), float(best[2]))


def pictures(results: dict[str, Any]) -> None:
    """The paper's figures 6, 7, 11 and 12, redrawn."""
    plots = pyplot()
    for number, (data, names) in FIGURES.items():
        figure, axes = plots.subplots(figsize=(7.2, 4.2))
        for name in names:
            runs = list(runs_of(results, data, name).values())
            if runs:
                axes.plot(*_curve(data, runs), marker=".", linewidth=1, label=name)
        if not axes.lines:
            plots.close(figure)
            continue
        axes.set_xlabel("mean cost of a decision, test rows")
        axes.set_ylabel({"digits": "error", "mq2008": "NDCG@5", "skewed": "Precision@5"}[data])
        axes.legend(fontsize=7)
        axes.grid(visible=True, alpha=0.3)
        if data == "digits":
            axes.set_xlim(0, 200)
            axes.set_ylim(0, 0.12)
        figure.tight_layout()
        save(figure, PAGE.parent / f"cstc-figure-{number}.svg")
        plots.close(figure)


def _curve(data: str, runs: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean cost and quality on test rows over budgets, chosen on validation rows."""
    costs = [p[0] for run in runs for p in run["points"] if p[0] > 0]
    rows = []
    for budget in np.geomspace(max(min(costs), 1e-3), max(costs), 24):
        found = [picked(run["points"], budget) for run in runs]
        if all(p is not None for p in found):
            quality, cost = np.mean([p for p in found if p is not None], axis=0)
            rows.append((cost, _shown(data, quality)))
    made = np.array(sorted(set(rows))).reshape(-1, 2)
    return made[:, 0], made[:, 1]
