"""Letters and Covertype: how much of f0's cost each method cuts, at what loss of accuracy, over ten random splits.

    HARDCASE_DATA=FOLDER python benchmarks/learning.py [--cases letters ...] [--seeds 10]
    python benchmarks/learning.py --render       # only write docs/benchmarks/learning.md again from the JSON

For each case and seed: rows are drawn, f0 is fitted, every method trained, and for each loss of a list the policy is
picked on the judged rows as ``hardcase export --max-loss`` does; its figures on test rows are what is reported. The
JSON holds the points of every method, so a run that was stopped goes on where it was, and a method may be added. Rows
of every split: results/splits.npz.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pictures import pyplot, save
from scipy import stats
from sklearn.base import ClassifierMixin
from sklearn.ensemble import ExtraTreesClassifier

from hardcase_edge.errors import InputError
from hardcase_edge.meter import to_micro
from hardcase_edge.program import Feature, Sensor, Uplink
from hardcase_edge.wire import request_bytes
from hardcase_export.front import Front, Measured, Point, pick
from hardcase_train.backends import n_threads
from hardcase_train.dag_policy import dag_grid, dag_run
from hardcase_train.front import Point as Trained
from hardcase_train.front import with_test
from hardcase_train.hpc import fit_hpc, out_of_fold, probabilities
from hardcase_train.judge import Judge
from hardcase_train.learn import learn
from hardcase_train.problem import Problem, Rows
from hardcase_train.subsets import SubsetSearch

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks" / "learning.md"
BASELINES = ("static", "cascade")
MAX_LOSSES = tuple(k * 0.00125 for k in range(21))
WITHIN = 0.01
EQUAL_LOSSES = (0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02)
BUDGETS = (2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True)
class Case:
    """One data set and its protocol; every sensor costs 1, the radio nothing."""

    title: str
    rows: Callable[[], tuple[np.ndarray, np.ndarray]]
    sizes: tuple[int, int, int]  # train, valid, test
    sensors: tuple[tuple[int, ...], ...]
    methods: tuple[str, ...]
    cut: float  # to reach, within a point of f0
    f0: float  # that f0 must have
    n_trees: int = 300  # of f0
    max_features: str | float = "sqrt"  # what each of their splits chooses from
    ahead: float | None = None  # cut, to reach over the best baseline at equal accuracy
    graph_cut: float | None = None  # to reach by "dag", within a point of f0
    in_order: bool = False  # one split, in the file's order: the authors' own


def data(name: str) -> Any:
    """An array file of the data folder."""
    folder = os.environ.get("HARDCASE_DATA")
    if not folder:
        raise SystemExit("HARDCASE_DATA is not set; name the folder that holds letter.npz and covertype_sample.npz")
    return np.load(Path(folder) / name)


def letters() -> tuple[np.ndarray, np.ndarray]:
    """Letters N to Z against A to M."""
    d = data("letter.npz")
    return d["X"].astype(float), d["y_binary"].astype(np.int64)


def covertype() -> tuple[np.ndarray, np.ndarray]:
    """Seven types of forest cover."""
    d = data("covertype_sample.npz")
    return d["X"].astype(float), d["y"].astype(np.int64)


def covertype_2() -> tuple[np.ndarray, np.ndarray]:
    """Types 1 to 3 against 4 to 7."""
    X, y = covertype()
    return X, (y > 2).astype(np.int64)


TREES = ("static", "cascade", "adapt-gbrt", "greedy-miser")
LETTERS = Case(
    "Letters, N-Z against A-M, 16 features of cost 1",
    letters,
    (12_000, 4_000, 4_000),
    tuple((f,) for f in range(16)),
    (*TREES, "budget-prune", "l1", "adapt-lin", "adapt-lstsq", "dag"),
    0.62,
    0.97,
    ahead=0.02,
    graph_cut=0.64,
)
CASES = {
    "letters": LETTERS,
    "letters-authors": replace(LETTERS, title="Letters, the authors' split", in_order=True),
    "covertype-7": Case(
        "Covertype, 7 classes, 12 sensors of cost 1 (ten numbers, wilderness, soil)",
        covertype,
        (36_603, 15_688, 58_101),
        (*((f,) for f in range(10)), tuple(range(10, 14)), tuple(range(14, 54))),
        (*TREES[:3], "dag"),
        0.62,
        0.885,
        n_trees=100,
        max_features=0.35,
    ),
    "covertype-2": Case(
        "Covertype, classes 1-3 against 4-7, 54 features of cost 1",
        covertype_2,
        (36_603, 15_688, 58_101),
        tuple((f,) for f in range(54)),
        TREES[:3],
        0.93,
        0.967,
        n_trees=100,
        max_features=0.5,
    ),
}


def split_of(case: Case, n: int, seed: int) -> list[np.ndarray]:
    """Row numbers of train, valid and test."""
    order = np.arange(n) if case.in_order else np.random.default_rng(seed).permutation(n)
    ends = np.cumsum(case.sizes)
    return [np.sort(order[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def f0_of(case: Case) -> ClassifierMixin:
    """f0, not fitted."""
    return ExtraTreesClassifier(case.n_trees, max_features=case.max_features, n_jobs=-1, random_state=0)


def problem_of(case: Case, seed: int) -> Problem:
    """Rows drawn, f0 fitted."""
    X, y = case.rows()
    n_classes = int(y.max()) + 1
    train, valid, test = split_of(case, len(y), seed)
    model = f0_of(case)
    fitted = fit_hpc(model, X[train], y[train])
    rows = [Rows(X[train], y[train], out_of_fold(model, X[train], y[train], n_classes, seed), train)]
    rows += [Rows(X[part], y[part], probabilities(fitted, X[part], n_classes), part) for part in (valid, test)]
    features = tuple(Feature("i32") for _ in range(X.shape[1]))
    uplink = Uplink(request_bytes=request_bytes(["i32"] * len(features)), features=tuple(range(len(features))))
    sensors = tuple(Sensor(s, (to_micro(1.0),)) for s in case.sensors)
    return Problem(features, sensors, uplink, n_classes, rows[0], rows[1], rows[2], seed)


FIGURES = (("valid", ("accuracy", "cost", "forward_rate", "loss_se")), ("test", ("accuracy", "cost", "forward_rate")))


def run_seed(case: Case, seed: int, methods: Sequence[str]) -> dict[str, Any]:
    """The figures of each method's points, FIGURES end to end; "hpc" is f0's one point."""
    problem = problem_of(case, seed)
    points = learn(problem, tuple(m for m in methods if m != "dag"), quiet=True)
    if "dag" in methods:
        points += with_test(problem, graph_points(problem))
    out: dict[str, Any] = {name: [] for name in ("hpc", *methods)}
    for p in points:
        out[p.method].append([round(getattr(p, rows)[key], 6) for rows, keys in FIGURES for key in keys])
    return out


def graph_points(problem: Problem) -> list[Trained]:
    """``dag`` on the chains of nested sets, as ``hardcase train`` has it where sensors are many."""
    search = SubsetSearch(Judge(problem), n_threads(None))
    return dag_run(search, dag_grid(search)[0])


def picks_of(case: Case, run: dict[str, Any]) -> dict[str, Any]:
    """Test figures of the policy picked for each loss, by method; "hardcase" is picked among all."""
    (f0,) = _points(run, "hpc")
    names = [m for m in case.methods if m in run]
    out: dict[str, Any] = {"f0": f0.test.accuracy, "picks": {}}
    for name in (*names, "hardcase"):
        mine = [p for m in (names if name == "hardcase" else [name]) for p in _points(run, m)]
        front = Front("unit", (f0, *mine))
        out["picks"][name] = {str(loss): _picked(front, f0, loss, len(case.sensors)) for loss in MAX_LOSSES}
    return out


def _points(run: dict[str, Any], method: str) -> list[Point]:
    out = []
    for figures in run[method]:
        valid, test = Measured(*figures[:4]), Measured(*figures[4:])
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
        "loss": f0.test.accuracy - point.test.accuracy,
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


def within(runs: list[dict[str, Any]], method: str) -> dict[str, Any]:
    """The pick with the most cut whose mean test loss is within a point, and its 95 % half-widths over splits."""
    out: dict[str, Any] = {"max_loss": None, "cut": 0.0, "loss": 0.0, "cut_pm": 0.0, "loss_pm": 0.0}
    for m in MAX_LOSSES:
        loss = np.array([r["picks"][method][str(m)]["loss"] for r in runs])
        cut = np.array([r["picks"][method][str(m)]["cut"] for r in runs])
        if loss.mean() <= WITHIN and cut.mean() > out["cut"]:
            t = stats.t.ppf(0.975, len(runs) - 1) / np.sqrt(len(runs)) if len(runs) > 1 else np.nan
            pm = [float(t * v.std(ddof=1)) if len(runs) > 1 else None for v in (cut, loss)]
            out = {"max_loss": m, "cut": float(cut.mean()), "loss": float(loss.mean()), "cut_pm": pm[0],
                   "loss_pm": pm[1]}  # fmt: skip
    return out


def _ahead(curves: dict[str, np.ndarray], loss: float) -> float:
    """How much more ``adapt-gbrt`` cuts than the best baseline that has a policy at this loss."""
    return cut_at(curves["adapt-gbrt"], loss) - float(np.nanmax([cut_at(curves[m], loss) for m in BASELINES]))


def table(case: Case, runs: list[dict[str, Any]]) -> str:
    """A case as Markdown: each method within a point of f0, then cuts at equal losses."""
    f0 = np.mean([r["f0"] for r in runs])
    lines = [
        f"## {case.title}",
        "",
        f"{len(runs)} splits of {case.sizes[0]:,}/{case.sizes[1]:,}/{case.sizes[2]:,} rows; f0 "
        f"({case.n_trees} extremely randomised trees, max_features {case.max_features}) {f0:.4f} on test rows "
        f"(to be at least {case.f0}).",
        "",
        "| method | `--max-loss` | cut of f0's cost (95 %) | points below f0 (95 %) |",
        "|---|---|---|---|",
    ]
    for name in runs[0]["picks"]:
        w = within(runs, name)
        if w["max_loss"] is None:
            lines.append(f"| {name} | | 0.0 % | f0 itself |")
            continue
        pm = [f" ± {100 * w[k]:.{d}f}" if w[k] is not None else "" for k, d in (("cut_pm", 1), ("loss_pm", 2))]
        lines.append(f"| {name} | {w['max_loss']} | {100 * w['cut']:.1f} %{pm[0]} | {100 * w['loss']:.2f}{pm[1]} |")
    lines += ["", "Cut at equal loss on test rows, between the points of the mean curves:", ""]
    shown = [m for m in (*BASELINES, "adapt-gbrt", "dag") if m in runs[0]["picks"]]
    curves = {m: mean_curve(runs, m) for m in shown}
    lines += ["| points below f0 | " + " | ".join((*shown, "adapt-gbrt ahead of the best baseline")) + " |"]
    lines += ["|---" * (len(shown) + 2) + "|"]
    for loss in EQUAL_LOSSES:
        cuts = {m: 100 * cut_at(curves[m], loss) for m in shown}
        ahead = 100 * _ahead(curves, loss)
        cells = ["" if np.isnan(c) else f"{c:.1f} %" for c in cuts.values()]
        lines.append(f"| {100 * loss:.2f} | " + " | ".join([*cells, "" if np.isnan(ahead) else f"{ahead:+.1f}"]) + " |")
    reached = max(100 * within(runs, m)["cut"] for m in runs[0]["picks"] if m != "dag")
    lines += ["", f"To reach: a cut of {100 * case.cut:.0f} % within a point; reached: {reached:.1f} %."]
    if case.ahead is not None:
        enough = [x for x in np.arange(0.0025, 0.02, 0.0001) if _ahead(curves, x) >= case.ahead]
        said = (
            f"reached from {100 * enough[0]:.2f} to {100 * enough[-1]:.2f} points below f0" if enough else "not reached"
        )
        lines += [
            f"Ahead of the best baseline at equal accuracy, to reach: {100 * case.ahead:.0f} points of cut; "
            f"{said}; at a point: {100 * _ahead(curves, WITHIN):.1f}."
        ]
    if case.graph_cut is not None and "dag" in shown:
        cut = 100 * cut_at(curves["dag"], WITHIN)
        lines += [f"By `dag`, to reach: {100 * case.graph_cut:.0f} % within a point; at a point: {cut:.1f} %."]
    return "\n".join(lines)


def budget_table(runs: Sequence[dict[str, Any]]) -> str:
    """Mean test error of what each method picks for a budget; empty where a split has no policy so cheap."""
    names = (*BASELINES, "adapt-gbrt", "dag")
    lines = [f"Error on test rows of the pick for a budget (mean cost on judged rows), {len(runs)} splits:", ""]
    lines += ["| budget | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for budget in BUDGETS:
        errors = [np.mean([_error_at(run, name, budget) for run in runs]) for name in names]
        lines.append(f"| {budget} | " + " | ".join("" if np.isnan(e) else f"{e:.4f}" for e in errors) + " |")
    return "\n".join(lines)


def _error_at(run: dict[str, Any], method: str, budget: float) -> float:
    try:
        return 1 - pick(Front("unit", tuple(_points(run, method))), budget=budget).test.accuracy
    except InputError:
        return float("nan")


HEAD = """# Letters and Covertype

Written by `make bench-learning` (`benchmarks/learning.py`) from `benchmarks/results/learning.json`. Each split is drawn
by its seed (rows: `benchmarks/results/splits.npz`), f0 is fitted on its training rows, all choices are made on
its training and validation rows, and test rows are only reported. Costs are by the one meter; a forwarded case buys
every sensor. `dag` stands on the nested sets of two chains. A loss is f0's accuracy on the split's test rows less the
policy's. The rig's tables are [here](rig.md).
"""


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
        points = [np.array(run[method])[:, 4:6] for run in runs]
        points = [p[np.argsort(p[:, 1], kind="stable")] for p in points]
        errors = [np.interp(costs, p[:, 1], 1 - p[:, 0], left=np.nan, right=np.nan) for p in points]
        axes.plot(costs, np.mean(errors, axis=0), "--" if method in BASELINES else "-", label=method)
    axes.set_xlabel("mean cost (sensors of cost 1)")
    axes.set_ylabel("error on test rows")
    axes.set_title(CASES[name].title, fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)


def page(results: dict[str, Any]) -> str:
    """All cases that have runs, and their pictures."""
    texts = []
    for name, by_seed in results.items():
        runs = picked_runs(CASES[name], by_seed)
        draw(name, runs, PAGE.parent / f"learning-{name}.svg")
        pictures = f"![Cut over points lost](learning-{name}.svg)"
        with_dag = [run for run in by_seed.values() if "dag" in run]
        if with_dag:
            draw_errors(name, with_dag, PAGE.parent / f"dag-{name}.svg")
            pictures += f"\n\n{budget_table(with_dag)}\n\n![Error over cost](dag-{name}.svg)"
        texts.append(f"{table(CASES[name], runs)}\n\n{pictures}")
    return HEAD + "\n" + "\n\n".join(texts) + "\n"


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


def main() -> None:
    """Run what is not there yet, print each table, write JSON and Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--methods", nargs="+", help="only these, the rest another time")
    parser.add_argument("--out", type=Path, default=RESULTS / "learning.json")
    parser.add_argument("--fresh", action="store_true", help="run again what is there")
    parser.add_argument("--render", action="store_true", help="write the page from the JSON, train nothing")
    args = parser.parse_args()
    results: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() and not args.fresh else {}
    for name in () if args.render else args.cases:
        runs = results.setdefault(name, {})
        for seed in range(1 if CASES[name].in_order else args.seeds):
            run = runs.setdefault(str(seed), {})
            missing = [m for m in args.methods or CASES[name].methods if m in CASES[name].methods and m not in run]
            if missing:
                began = time.monotonic()
                run |= run_seed(CASES[name], seed, missing)
                args.out.write_text(json.dumps(results, sort_keys=True).replace("], [", "],\n[") + "\n")
                print(f"{name}, seed {seed}, {' '.join(missing)}: {time.monotonic() - began:.0f} s", flush=True)
        print(table(CASES[name], picked_runs(CASES[name], runs)), flush=True)
    if not args.render:
        save_splits([c for c in CASES if c in results], args.seeds, RESULTS / "splits.npz")
    if args.out == RESULTS / "learning.json":
        PAGE.write_text(page({c: results[c] for c in CASES if c in results}))
        print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
