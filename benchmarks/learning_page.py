# SPDX-License-Identifier: Apache-2.0
"""What the runs of ``learning.py`` come to: picks on the judged rows, their figures on test rows, tables, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import adapt_figures
from benchmarks.learning_cases import BASELINES, CASES, Case
from benchmarks.pages import PAGES, pyplot, rest, save
from hardcase_edge.errors import InputError
from hardcase_edge.more.fronts.front import Judged
from hardcase_export.drafts.front import Front, Point
from hardcase_export.picking.pick import pick

MAX_LOSSES = tuple(k * 0.00125 for k in range(21))
WITHIN = 0.01
WISHES = (0.005, WITHIN)
EQUAL_LOSSES = (0.0025, 0.005, 0.01, 0.02)
BUDGETS = (2, 3, 4, 5, 6, 7, 8)
OLDER = {CASES[name].title for name in ("letters-authors", "covertype-2")}
SHOWN = (2, 4, 5, 6, 8)  # of these, in the table; the picture has all


def picks_of(case: Case, run: dict[str, Any]) -> dict[str, Any]:
    """Test figures of the policy picked for each loss, by method; "hardcase" is picked among all."""
    (f0,) = _points(run, "hpc")
    names = [m for m in case.methods if m in run]
    out: dict[str, Any] = {"f0": f0.test.quality, "picks": {}}
    for name in (*names, "hardcase"):
        mine = [p for m in (names if name == "hardcase" else [name]) for p in _points(run, m)]
        front = Front("unit", (f0, *mine))
        out["picks"][name] = {str(loss): _picked(front, f0, loss, len(case.sensors)) for loss in MAX_LOSSES}
    return out


def _points(run: dict[str, Any], method: str) -> list[Point]:
    out = []
    for figures in run[method]:
        valid, test = Judged(*figures[:4]), Judged(*figures[4:7])
        out.append(Point(method, {}, valid, test, ""))
    return out


def _picked(front: Front, f0: Point, loss: float, total: int) -> dict[str, Any]:
    """Cut and loss on test rows of what is picked; f0 itself where nothing is near enough."""
    try:
        point = pick(front, max_loss=loss)
    except InputError:
        point = f0
    return {
        "method": point.method,
        "cut": 1 - point.test.cost / total,
        "loss": f0.test.quality - point.test.quality,
        "forward_rate": point.test.forward_rate,
    }


# ---------------------------------------------------------------- the page


def mean_curve(runs: list[dict[str, Any]], method: str) -> np.ndarray:
    """(n_losses, 2): mean loss and mean cut on test rows of what is picked for each loss."""
    return np.array(
        [[np.mean([r["picks"][method][str(m)][key] for r in runs]) for key in ("loss", "cut")] for m in MAX_LOSSES]
    )


def cut_at(curve: np.ndarray, loss: float) -> float:
    """The cut of a mean curve at a loss, between its points; nan outside them."""
    order = np.argsort(curve[:, 0], kind="stable")
    return float(np.interp(loss, curve[order, 0], curve[order, 1], left=np.nan))


def wished(runs: list[dict[str, Any]], method: str, wish: float) -> tuple[np.ndarray, np.ndarray]:
    """Cut and loss on test rows, (n_splits,) each, of what is picked on judged rows for a wish."""
    picked = [r["picks"][method][str(wish)] for r in runs]
    return np.array([p["cut"] for p in picked]), np.array([p["loss"] for p in picked])


def _with_width(values: np.ndarray, digits: int) -> str:
    """A mean in hundredths, with the half-width of its 95 % interval where there are several splits."""
    width = f" ± {100 * _half_width(values):.{digits}f}" if len(values) > 1 else ""
    return f"{100 * values.mean():.{digits}f}{width}"


def _ahead(curves: dict[str, np.ndarray], loss: float) -> float:
    """How much more ``adapt-gbrt`` cuts than the best baseline that has a policy at this loss."""
    return cut_at(curves["adapt-gbrt"], loss) - float(np.nanmax([cut_at(curves[m], loss) for m in BASELINES]))


def table(case: Case, runs: list[dict[str, Any]]) -> str:
    """A case as Markdown: each method within a point of f0, then cuts at equal losses."""
    f0 = np.mean([r["f0"] for r in runs])
    lines = [
        f"## {case.title}",
        "",
        f"{len(runs)} split{'s' * (len(runs) > 1)} of {case.sizes[0]:,}/{case.sizes[1]:,}/{case.sizes[2]:,} rows; f0 "
        f"({case.n_trees} extremely randomised trees) {f0:.4f}.",
        "",
    ]
    shown = [m for m in runs[0]["picks"] if m != "hardcase"]
    curves = {m: mean_curve(runs, m) for m in shown}
    titles = [f"{w}: cut, % | points below" for w in WISHES] + [f"at {100 * loss:.2f}" for loss in EQUAL_LOSSES]
    rows = ["| method | " + " | ".join(titles) + " |", "|---" * (2 * len(WISHES) + len(EQUAL_LOSSES) + 1) + "|"]
    for name in runs[0]["picks"]:
        cells = []
        for wish in WISHES:
            cut, loss = wished(runs, name, wish)
            cells += [_with_width(cut, 1), _with_width(loss, 2)]
        cuts = [100 * cut_at(curves[name], loss) if name in curves else np.nan for loss in EQUAL_LOSSES]
        cells += ["" if np.isnan(c) else f"{c:.1f}" for c in cuts]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    if case.title in OLDER:
        lines.append(rest("cuts of older cases", "\n".join(rows)))
    else:
        lines += [*rows, ""]
    cut, loss = wished(runs, "hardcase", WITHIN)
    said = "reached" if cut.mean() >= case.cut and loss.mean() <= WITHIN else "missed"
    lines += [f"The goal is a cut of {100 * case.cut:.0f} % within a point; `hardcase`, asked for that, "
              f"cuts {100 * cut.mean():.1f} % at {100 * loss.mean():.2f} points: {said}."]  # fmt: skip
    others = len(lines)
    if case.ahead is not None:
        enough = [x for x in np.arange(0.0025, 0.02, 0.0001) if _ahead(curves, x) >= case.ahead]
        said = (
            f"reached from {100 * enough[0]:.2f} to {100 * enough[-1]:.2f} points below f0" if enough else "not reached"
        )
        lines += [
            f"- at equal accuracy {100 * case.ahead:.0f} points of cut ahead of the best baseline: "
            f"{said}; at a point: {100 * _ahead(curves, WITHIN):.1f}."
        ]
    if case.graph_cut is not None and "dag" in shown:
        cut = 100 * cut_at(curves["dag"], WITHIN)
        lines += [f"- `dag` cuts {100 * case.graph_cut:.0f} % within a point; at a point: {cut:.1f} %."]
    for loss, least in case.best_cuts:
        best = max((c for c in (cut_at(curves[m], loss) for m in shown) if not np.isnan(c)), default=0.0)
        said = "reached" if best >= least else f"missed by {100 * (least - best):.1f} points"
        lines += [f"- the best method cuts {100 * least:.1f} % at {100 * loss:.1f} points: {said}."]
    lines[others:others] = ["Other goals are read from curves by test rows:"] * (len(lines) > others)
    return "\n".join(lines)


def budget_tables(case: Case, runs: Sequence[dict[str, Any]]) -> str:
    """Mean test error of each method for a budget, mixed and picked, and whether ``dag`` is under both baselines."""
    names = (*BASELINES, "adapt-gbrt", "dag")
    lines = [
        "| by | method | " + " | ".join(map(str, SHOWN)) + " |", "|---" * (len(SHOWN) + 2) + "|",
    ]  # fmt: skip
    verdicts = []
    for what, error_at in (("mix", _mixed_error), ("pick", _picked_error)):
        each = {n: np.array([[error_at(_points(r, n), b) for r in runs] for b in BUDGETS]) for n in names}
        found = {n: e.mean(axis=1) for n, e in each.items()}
        for n in names:
            cells = ["" if np.isnan(x) else f"{x:.4f}" for b, x in zip(BUDGETS, found[n], strict=True) if b in SHOWN]
            lines.append(f"| {what} | {n} | " + " | ".join(cells) + " |")
        least = [min(BASELINES, key=lambda n: found[n][k]) for k in range(len(BUDGETS))]
        away = [each["dag"][k] - each[least[k]][k] for k in range(len(BUDGETS))]
        under = [str(b) for b, a in zip(BUDGETS, away, strict=True) if a.mean() < 0]
        above = [_above(b, n, a) for b, n, a in zip(BUDGETS, least, away, strict=True) if a.mean() >= 0]
        goal = " (the goal: every budget)" if case.every_budget else ""
        budgets = "; ".join([", ".join(under) or "none", *above])
        if above or case.every_budget:
            verdicts.append(f"By {what}, `dag` is under both baselines at the budgets{goal}: {budgets}.")
    return rest("errors by budget", "\n".join(lines)) + "\n" + "\n".join(verdicts)


def _above(budget: float, baseline: str, away: np.ndarray) -> str:
    """How far above the better baseline, by split."""
    pm = f" ± {_half_width(away):.4f}" if len(away) > 1 else ""
    return f"at {budget} it is {away.mean():.4f}{pm} above {baseline}"


def _half_width(values: np.ndarray) -> float:
    """Of a mean's 95 % interval by Student's t."""
    n = len(values)
    return float(stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n))


def _picked_error(points: Sequence[Point], budget: float) -> float:
    try:
        return 1 - pick(Front("unit", tuple(points)), budget=budget).test.quality
    except InputError:
        return float("nan")


def _mixed_error(points: Sequence[Point], budget: float) -> float:
    """Of a fleet of which a part runs one policy and the rest another: those on the hull of the judged rows."""
    hull: list[Point] = []
    for p in sorted(points, key=lambda p: (p.valid.cost, -p.valid.quality)):
        if hull and p.valid.quality <= hull[-1].valid.quality:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], p):
            hull.pop()
        hull.append(p)
    costs, errors = [p.valid.cost for p in hull], [1 - p.test.quality for p in hull]
    return float(np.interp(budget, costs, errors, left=np.nan))


def _slope(a: Point, b: Point) -> float:
    """Accuracy gained per unit of cost, on the judged rows."""
    return (b.valid.quality - a.valid.quality) / max(b.valid.cost - a.valid.cost, 1e-12)


def draw(name: str, runs: list[dict[str, Any]], path: Path) -> None:
    """The mean curves of a case: cut over points lost, a line per method."""
    figure, axes = pyplot().subplots(figsize=(7.2, 4.2), layout="constrained")
    for method in runs[0]["picks"]:
        curve = mean_curve(runs, method)
        style = "-" if method not in BASELINES else "--"
        axes.plot(100 * curve[:, 0], 100 * curve[:, 1], f"o{style}", markersize=3.5, linewidth=1, label=method)
    axes.axvline(100 * WITHIN, color="#999999", linewidth=0.8)
    axes.set_xlabel("points of accuracy below f0, on test rows")
    axes.set_ylabel("cut of f0's cost (%)")
    axes.set_title(CASES[name].title, fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    save(figure, path)


def picked_runs(case: Case, by_seed: dict[str, Any]) -> list[dict[str, Any]]:
    """The picks of every seed that has the baselines, of the methods that all of these have."""
    runs = [by_seed[s] for s in sorted(by_seed, key=int) if set(by_seed[s]) >= set(BASELINES)]
    common = set.intersection(*(set(run) for run in runs))
    return [picks_of(case, {m: run[m] for m in run if m in common}) for run in runs]


def draw_errors(name: str, runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Test error over mean cost, a line per method: the paper on graphs has it as figure 4."""
    figure, axes = pyplot().subplots(figsize=(6.0, 3.8), layout="constrained")
    total = len(CASES[name].sensors)
    costs = np.linspace(0.5, total, 60)
    for method in ("static", "cascade", "adapt-gbrt", "dag"):
        points = [np.array([row[4:6] for row in run[method]]) for run in runs]
        points = [p[np.argsort(p[:, 1], kind="stable")] for p in points]
        errors = [np.interp(costs, p[:, 1], 1 - p[:, 0], left=np.nan, right=np.nan) for p in points]
        axes.plot(costs, np.mean(errors, axis=0), "--" if method in BASELINES else "-", label=method)
    axes.set_xlabel("mean cost (sensors of cost 1)")
    axes.set_ylabel("error on test rows")
    axes.set_title(CASES[name].title, fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)


def text_of(results: dict[str, Any]) -> str:
    """All cases that have runs."""
    texts = []
    for name, by_seed in results.items():
        runs = picked_runs(CASES[name], by_seed)
        pictures = f"![Cut over points lost](learning-{name}.svg)"
        with_dag = [run for run in by_seed.values() if "dag" in run]
        if with_dag:
            pictures += f"\n\n{budget_tables(CASES[name], with_dag)}\n\n![Error over cost](dag-{name}.svg)"
        texts.append(f"{table(CASES[name], runs)}\n\n{pictures}")
    texts.append("\n".join(adapt_figures.lines()))
    return "\n" + "\n\n".join(texts) + "\n"


def draw_all(results: dict[str, Any]) -> None:
    """The pictures of the page."""
    for name, by_seed in results.items():
        draw(name, picked_runs(CASES[name], by_seed), PAGES / f"learning-{name}.svg")
        with_dag = [run for run in by_seed.values() if "dag" in run]
        if with_dag:
            draw_errors(name, with_dag, PAGES / f"dag-{name}.svg")
    adapt_figures.draw(PAGES)
