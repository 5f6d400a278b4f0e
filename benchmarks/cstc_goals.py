# SPDX-License-Identifier: Apache-2.0
"""The figures of ``benchmarks/cstc.py`` on test rows, and the goals for them: reached or missed, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.cstc_methods import METHODS
from benchmarks.pages import markdown

BUDGETS = {
    "digits": (6, 8, 10, 12.5, 16, 25, 40, 60, 1120),
    "forest": (2, 3, 4, 6, 8, 10, 15, 25, 54),
    "mq2008": (100, 151, 200, 377, 800, 1600),
    "skewed": (80, 130, 200, 400, 800, 1600),
}
IS_LOSS = {"digits": True, "forest": True, "mq2008": False, "skewed": False}
NAMES = [*METHODS, "early exit"]
GOALS: dict[str, list[tuple[str, float, float]]] = {
    "digits": [("linear cstc", 40, 0.035), ("linear cstc", 60, 0.030), ("any", 12.5, 0.0085), ("any", 16, 0.0060)],
    "mq2008": [("any", 151, -0.003), ("any", 377, 0.005), ("cstc", 377, -0.003)],
    "skewed": [("cscc", 130, 0.146)],
    "forest": [],
}
FAMILIES = {
    "linear cstc": [n for n in NAMES if n.startswith("cstc") and "trees" not in n],
    "cstc": [n for n in NAMES if n.startswith(("cstc", "cscc", "cronus"))],
    "cscc": [n for n in NAMES if n.startswith("cscc")],
    "sets": [n for n in NAMES if n.startswith(("static", "cascade", "staged", "greedy-miser"))],
    "any": NAMES,
}
CORE = ("stage-wise", "static", "staged", "cstc-2", "greedy-miser")  # whose splits in common are compared
REFERENCE = {"digits": "static", "forest": "static", "mq2008": "stage-wise", "skewed": "stage-wise"}
N_TEST = 1984  # test rows of the digits, the same in all splits
PRICES = np.geomspace(1e-7, 1e-1, 300)  # quality per cost unit, from one that buys all to one that buys next to nothing
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


def shown(data: str, quality: float) -> float:
    return 1 - quality if IS_LOSS[data] else quality


def beside(results: dict[str, Any], data: str, split: int, budget: float) -> float | None:
    """What a run is compared with, on the same split: ``static`` within the budget, or ``stage-wise`` of any cost."""
    name = REFERENCE[data]
    run = runs_of(results, data, name).get(split)
    found = None if run is None else picked(run["points"], budget if name == "static" else np.inf)
    return None if found is None else shown(data, found[0])


def goals(results: dict[str, Any], data: str) -> list[str]:
    """A line for each goal: the method of the family that is best on validation rows, and whether it reaches it."""
    lines = []
    reference = [beside(results, data, s, np.inf) for s in _common(results, data)]
    known = [r for r in reference if r is not None]
    base = float(np.mean(known)) if known and data == "mq2008" else 0.0
    for family, budget, goal in GOALS[data]:
        best = _best(results, data, FAMILIES[family], budget)
        if best is not None:
            bound = base + goal
            sign = "at most" if IS_LOSS[data] else "at least"
            said = _said(results, data, best, budget, bound)
            reach = _reaching(results, data, FAMILIES[family], budget, bound)
            lines.append(
                f"- Goal ({family}): {sign} {bound:.4f} within {budget:g}; best on validation rows is {best[1]}, "
                f"{best[2]:.4f} @ {best[3]:.3g}: {said}."
            )
            if not reach:
                lines += ["  " + line for line in _why_missed(results, data, FAMILIES[family], budget, bound)]
    return lines


def _is_met(data: str, quality: float, bound: float) -> bool:
    return quality <= bound if IS_LOSS[data] else quality >= bound


def _reaching(results: dict[str, Any], data: str, names: Sequence[str], budget: float, bound: float) -> list[str]:
    """The methods run on all splits in common whose own choice on validation rows reaches a bound on test rows."""
    made = []
    for name in names:
        best = _best(results, data, [name], budget)
        if best is not None and _is_met(data, best[2], bound):
            made.append(f"{name}, {best[2]:.4f} @ {best[3]:.3g}, {_said(results, data, best, budget, bound)}")
    return made


def _said(results: dict[str, Any], data: str, best: Best, budget: float, bound: float) -> str:
    """Whether a goal is reached, by how much, and whether a standard error is as large."""
    gap, error = abs(best[2] - bound), _standard_error(results, data, best[1], budget)
    side = "within" if gap <= error else "beyond"
    word = "reached" if _is_met(data, best[2], bound) else "missed"
    return f"{word} by {gap:.4f}, {side} a standard error ({error:.4f})"


def _standard_error(results: dict[str, Any], data: str, name: str, budget: float, beside: str = "") -> float:
    """Of a method's figure within a budget; of its paired difference to ``beside``, or where the goals are relative.

    It is that over splits; splits of the digits share test rows, whose errors have a binomial variance beside it.
    """
    found = _figures(results, data, name, budget)
    if beside:
        other = _figures(results, data, beside, budget)
    elif data == "mq2008":
        other = _figures(results, data, REFERENCE[data], np.inf)
    else:
        other = dict.fromkeys(found, 0.0)
    shared = sorted(set(found) & set(other))
    variance = np.var([found[s] - other[s] for s in shared], ddof=1) / len(shared)
    if data == "digits":
        shares = [np.mean([own[s] for s in shared]) for own in (found, other)]
        variance += sum(p * (1 - p) for p in shares) / N_TEST
    return float(np.sqrt(variance))


def _figures(results: dict[str, Any], data: str, name: str, budget: float) -> dict[int, float]:
    """What a method has on test rows in each split in common, by its own choice on validation rows."""
    runs = runs_of(results, data, name)
    found = {s: picked(runs[s]["points"], budget) for s in _common(results, data) if s in runs}
    return {s: shown(data, p[0]) for s, p in found.items() if p is not None}


def _common(results: dict[str, Any], data: str) -> list[int]:
    """The splits that all methods of CORE were run on."""
    core = [set(runs) for name in CORE if (runs := runs_of(results, data, name))]
    return sorted(set.intersection(*core)) if core else []


def _why_missed(results: dict[str, Any], data: str, names: Sequence[str], budget: float, bound: float) -> list[str]:
    """What comes closest to a goal that nothing reaches, and whether another choice or more sensors would.

    The four closest are also taken with one price for all splits.
    """
    sign = 1 if IS_LOSS[data] else -1
    own = [best for name in names if (best := _best(results, data, [name], budget)) is not None]
    nearest = sorted(own, key=lambda best: sign * best[2])[:4]
    said = ", ".join(f"{name} {quality:.4f} @ {cost:.3g}" for _, name, quality, cost in nearest)
    fronts = {name: [run["points"] for run in runs_of(results, data, name).values()] for _, name, _, _ in nearest}
    tops = {name: np.mean([max(p[3] for p in run if p[0] <= budget) for run in runs]) for name, runs in fronts.items()}
    top = max(tops, key=lambda name: float(tops[name]))
    priced = {n: p for n, runs in fronts.items() if (p := at_one_price([np.array(r) for r in runs], budget))}
    first = max(priced, key=lambda name: priced[name][0])
    later = [best for name in names if (best := _best(results, data, [name], BUDGETS[data][-2])) is not None]
    most = min(later, key=lambda best: sign * best[2])
    return [
        f"Closest: {said}; by one price for all splits, {first} {shown(data, priced[first][0]):.4f} @ "
        f"{priced[first][1]:.3g}.",
        f"Why: the points that test rows would choose have {shown(data, tops[top]):.4f} at best ({top}), and within "
        f"{BUDGETS[data][-2]:g} the best is {most[1]}, {most[2]:.4f} @ {most[3]:.3g}.",
        *([_in_rows(bound, nearest[0])] if data == "digits" else []),
    ]


def _in_rows(bound: float, best: Best) -> str:
    """What a missed goal is in test rows of the digits, and what another search has on one split of them."""
    return (
        f"Of {N_TEST:,} test rows the goal allows {bound * N_TEST:.0f} errors, and {best[1]} makes "
        f"{best[2] * N_TEST:.0f}."
    )


def _best(results: dict[str, Any], data: str, names: Sequence[str], budget: float) -> Best | None:
    """Of the methods run on all splits in common the one that is best on validation rows within the budget."""
    common = set(_common(results, data))
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
            best = (value, name, shown(data, float(test[0])), float(test[1]))
    return best


def against(results: dict[str, Any], data: str, budgets: Sequence[float] = ()) -> list[str]:
    """At each budget, the best tree of classifiers beside the best policy over sets."""
    if len(_common(results, data)) < 2:
        return []
    cells = {}
    for budget in budgets or BUDGETS[data]:
        pair = [_best(results, data, FAMILIES[family], budget) for family in ("cstc", "sets")]
        if pair[0] is not None and pair[1] is not None:
            (_, tree, a, _), (_, other, b, _) = pair
            error = _standard_error(results, data, tree, budget, other)
            cells[f"within {budget:g}"] = f"{b - a if IS_LOSS[data] else a - b:+.4f} ± {error:.4f}"
    said = "What the best tree of classifiers gains over the best policy over sets, ± a standard error:"
    return [said, "", markdown(tuple(cells), [tuple(cells.values())]), ""] if cells else []


def at_one_price(fronts: Sequence[np.ndarray], budget: float) -> Picked | None:
    """Mean quality and cost on test rows: the price is best in mean validation quality of those within the budget."""
    best: np.ndarray | None = None
    for price in PRICES:
        means = np.mean([front[np.argmax(front[:, 1] - price * front[:, 0])] for front in fronts], axis=0)
        if means[0] <= budget and (best is None or means[1] > best[1]):
            best = means
    return None if best is None else (float(best[3]), float(best[2]))
