# SPDX-License-Identifier: Apache-2.0
"""The page and the pictures of ``benchmarks/cstc.py``: figures on test rows of points that validation rows choose."""

from __future__ import annotations

from itertools import starmap
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import cstc_figures, quadrants
from benchmarks.cstc_goals import BUDGETS, NAMES, against, at_one_price, beside, goals, picked, runs_of, shown
from benchmarks.pages import PAGES, pyplot, rest, save

CROSSED = " crossed"  # behind the name of data whose training rows are judged, too
TITLES = {
    "digits": "3 against 8 in four resolutions, 1,120 pixels at 1 each: error",
    "forest": "Covertype, type 2 or not, 2,000 training and 20,000 test rows, 54 features at 1 each: error",
    "mq2008": "MQ2008, features cost 1 to 200 and a tree 1: NDCG@5",
    "skewed": "MQ2008 skewed, the same costs: Precision@5",
}
SHOWN = {
    "digits": (6, 12.5, 16, 40, 60, 1120),
    "forest": (3, 6, 15, 54),
    "mq2008": (100, 151, 377, 1600),
    "skewed": (80, 130, 400, 1600),
}  # of the budgets, on the page; the pictures have curves
NAMED = {
    "digits": ("cstc-2, interior 0.1", "static", "cascade", "staged", "staged, sets for the rows that come"),
    "mq2008": ("cstc-2", "static", "cascade", "staged", "greedy-miser, 8 leaves", "early exit"),
    "skewed": ("cscc-4", "static", "cascade", "greedy-miser, 8 leaves", "early exit"),
}  # of the methods, on the page
OF_GRAPHS = "4 of Wang et al. (2015), on Forest"
GRAPH = "dag, unions of 6 sets, as in the paper"
FIGURES = {
    "6": ("mq2008", ("stage-wise", "single", "early exit", "cronus-4", "cstc-2", "cstc-2, trees answer", "staged")),
    "7": ("skewed", ("stage-wise", "early exit", "cronus-4", "cstc-2", "cscc-4", "cascade")),
    "11": ("mq2008", tuple(n for n in NAMES if n.startswith("cstc-2, on trees"))),
    "12": ("digits", ("single", "cstc-1", "cstc-2", "cstc-3, pruned", "astc-2", "static", "staged")),
    "4-graphs": ("forest", ("astc-2", "cstc-2", GRAPH, "static", "staged")),
}  # of Xu et al. (2014), whose figure 7 has two methods more, for classes; the last is figure 4 of Wang et al. (2015)


def write_page(results: dict[str, Any], is_whole: bool = False) -> str:
    """The page's Markdown; ``is_whole``: also methods that were stopped, choices by one price, and crossed rows."""
    lines = [""]
    for data in BUDGETS:
        splits = sorted({int(k.split("/")[1]) for k in results if k.startswith(f"{data}/")})
        if splits:
            lines += _section(results, data, len(splits), is_whole)
    return "\n".join([*lines, *cstc_figures.lines(), *quadrants.lines()]).rstrip() + "\n"


def _section(results: dict[str, Any], data: str, n_splits: int, is_whole: bool) -> list[str]:
    budgets = BUDGETS[data] if is_whole else SHOWN[data]
    lines = [f"## {TITLES[data]}, {n_splits} split{'s'[: n_splits > 1]}", ""]
    lines += [
        "| method | " + " | ".join(f"<= {b:g}" for b in budgets) + " | CPU s |",
        "|---" * (len(budgets) + 2) + "|",
    ]
    stopped = {n: len(r) for n in NAMES if (r := runs_of(results, data, n)) and len(r) < n_splits and not is_whole}
    for name in NAMES:
        runs = runs_of(results, data, name)
        if runs and name not in stopped:
            cells = [_cell(results, data, runs, budget) for budget in budgets]
            seconds = np.mean([run["seconds"] for run in runs.values()])
            some = f" ({len(runs)})" if len(runs) < n_splits else ""
            line = f"| {name}{some} | " + " | ".join(_once(cells)) + f" | {seconds:.0f} |"
            is_named = name in NAMED.get(data, NAMES)
            lines.append(line if is_named else rest("the other methods of each table", line).rstrip())
    if stopped:
        lines += ["", f"{len(stopped)} methods with fewer splits are printed by `--all`."]
    shown_of = [*goals(results, data), "", *against(results, data, budgets)]
    lines += ["", *shown_of, *(_one_price(results, data) if is_whole else [])]
    pictures = [
        f"![Figure {k} of the paper, redrawn](cstc-figure-{k}.svg)".replace("4-graphs of the paper", OF_GRAPHS, 1)
        for k, (d, _) in FIGURES.items()
        if d == data
    ]
    return [*lines, "", *pictures, "", *_crossed(results, data, is_whole)]


def _once(cells: list[str]) -> list[str]:
    """Quality and cost once, where a larger budget buys nothing more.

    >>> _once(["0.1 @ 3 (+0.2 ± 0.1)", "0.1 @ 3 (+0.3 ± 0.1)", "-"])
    ['0.1 @ 3 (+0.2 ± 0.1)', 'same (+0.3 ± 0.1)', '-']
    """
    points = [cell.partition(" (")[0] for cell in cells]
    pairs = zip(cells, points, ["-", *points[:-1]], strict=True)
    return [cell.replace(point, "same", 1) if point == before != "-" else cell for cell, point, before in pairs]


def _cell(results: dict[str, Any], data: str, runs: dict[int, Any], budget: float) -> str:
    """Mean quality at mean cost, and the paired difference with its interval."""
    found = {s: p for s, run in runs.items() if (p := picked(run["points"], budget)) is not None}
    if not found:
        return "-"
    quality, cost = np.mean(list(found.values()), axis=0)
    text = f"{shown(data, quality):.4f} @ {cost:.3g}" if cost < 1000 else f"{shown(data, quality):.4f} @ {cost:.0f}"
    others = {s: beside(results, data, s, budget) for s in found}
    gaps = [shown(data, found[s][0]) - b for s, b in others.items() if b is not None]
    if len(gaps) < 2 or not any(gaps):
        return text
    half = stats.t.ppf(0.975, len(gaps) - 1) * np.std(gaps, ddof=1) / np.sqrt(len(gaps))
    return f"{text} ({np.mean(gaps):+.4f} ± {half:.4f})"


def _crossed(results: dict[str, Any], data: str, is_whole: bool) -> list[str]:
    """What is picked on all judged queries beside what validation queries alone pick, on the same splits."""
    rows, splits = [], set()
    gains: dict[float, list[float]] = {budget: [] for budget in BUDGETS[data]}
    for name in NAMES:
        crossed, alone = (runs_of(results, key, name) for key in (data + CROSSED, data))
        if shared := sorted(set(crossed) & set(alone)):
            splits |= set(shared)
            cells = []
            for budget in BUDGETS[data]:
                pairs = [(picked(crossed[s]["points"], budget), picked(alone[s]["points"], budget)) for s in shared]
                if any(one is None or other is None for one, other in pairs):
                    cells.append("-")
                    continue
                (q, c), (q_alone, c_alone) = np.mean(pairs, axis=0)
                gains[budget].append(q - q_alone)
                cells.append(f"{shown(data, q):.4f} @ {c:.3g} ({shown(data, q_alone):.4f} @ {c_alone:.3g})")
            rows.append(f"| {name} ({len(shared)}) | " + " | ".join(cells) + " |")
    if not rows:
        return []
    return [
        f"### {TITLES[data].split(',')[0]}, judged rows crossed", "",
        "Here training queries are judged, too, four times as many ([why](../decisions/judged-rows.md)).",
        *(_rows_crossed(data, splits, rows) if is_whole else []),
        f"Mean gain of crossing over {len(rows)} methods: {', '.join(starmap(_gain, gains.items()))}.", "",
    ]  # fmt: skip


def _rows_crossed(data: str, splits: set[int], rows: list[str]) -> list[str]:
    return [
        "In brackets is what validation queries alone pick on the same splits "
        f"({', '.join(map(str, sorted(splits)))}); all figures are of test rows.", "",
        "| method | " + " | ".join(f"<= {b:g}" for b in BUDGETS[data]) + " |", "|---" * (len(BUDGETS[data]) + 1) + "|",
        *rows, "",
    ]  # fmt: skip


def _gain(budget: float, gains: list[float]) -> str:
    return f"{np.mean(gains):+.4f} within {budget:g} ({sum(x < 0 for x in gains)} of {len(gains)} lose)"


def _one_price(results: dict[str, Any], data: str) -> list[str]:
    """A table of choices by one price for all splits, of the methods run on all of them."""
    runs = {name: runs_of(results, data, name) for name in NAMES}
    most = max(map(len, runs.values()))
    rows = []
    for name, by_split in runs.items():
        fronts = [np.array(run["points"]) for run in by_split.values()]
        if len(fronts) == most > 1:
            cells = [at_one_price(fronts, budget) for budget in BUDGETS[data]]
            texts = ["-" if c is None else f"{shown(data, c[0]):.4f} @ {c[1]:.3g}" for c in cells]
            rows.append(f"| {name} | " + " | ".join(texts) + " |")
    if not rows:
        return []
    return [
        f"Chosen by one price for all {most} splits:", "",
        "| method | " + " | ".join(f"<= {b:g}" for b in BUDGETS[data]) + " |",
        "|---" * (len(BUDGETS[data]) + 1) + "|", *rows, "",
    ]  # fmt: skip


def pictures(results: dict[str, Any]) -> None:
    """The paper's figures, redrawn."""
    cstc_figures.draw()
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
        axes.set_ylabel({"digits": "error", "forest": "error", "mq2008": "NDCG@5", "skewed": "Precision@5"}[data])
        axes.legend(fontsize=7)
        axes.grid(visible=True, alpha=0.3)
        if data == "digits":
            axes.set_xlim(0, 200)
            axes.set_ylim(0, 0.12)
        figure.tight_layout()
        save(figure, PAGES / f"cstc-figure-{number}.svg")
        plots.close(figure)


def _curve(data: str, runs: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean cost and quality on test rows over budgets, chosen on validation rows."""
    costs = [p[0] for run in runs for p in run["points"] if p[0] > 0]
    rows = []
    for budget in np.geomspace(max(min(costs), 1e-3), max(costs), 24):
        found = [picked(run["points"], budget) for run in runs]
        if all(p is not None for p in found):
            quality, cost = np.mean([p for p in found if p is not None], axis=0)
            rows.append((cost, shown(data, quality)))
    made = np.array(sorted(set(rows))).reshape(-1, 2)
    return made[:, 0], made[:, 1]
