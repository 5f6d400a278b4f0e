# SPDX-License-Identifier: Apache-2.0
"""Policies on a graph of sensor sets: the small data sets of Wang et al. (2015), the large ones, time and memory.

    HARDCASE_DATA=FOLDER python -m benchmarks run dag [--cases pima satimage letter] [--seeds 10]
    HARDCASE_DATA=FOLDER python -m benchmarks run dag --speed     # 256 states on Covertype, time and memory per part

Small sets: every sensor costs 1 and nothing is forwarded. Graphs and trees give one policy for each price of a list,
static subsets those that judged rows keep; figures are those of test rows. Between two policies a device may toss a
coin, so curves are linear between points, for all methods alike. A run that was stopped goes on where it was: finished
seeds are in benchmarks/results/dag.json.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.learning_cases import data
from benchmarks.pages import PAGES, ROOT, provenance, pyplot, rest, save
from hardcase_edge.more.batch.quality import figures_of
from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import Answer, Feature, Sensor, Slice, Uplink
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.methods.graph import lp_tree
from hardcase_train.methods.graph.dag import Dag
from hardcase_train.methods.graph.lp_surrogate import full_tree
from hardcase_train.methods.graph.program import dag_point
from hardcase_train.methods.graph.state_classifiers import Classifier
from hardcase_train.methods.graph.state_rows import DagRows
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.compile import buy, compile_program
from hardcase_train.policy.front import Point, best_points
from hardcase_train.policy.losses import class_outputs
from hardcase_train.policy.selection import Judge
from hardcase_train.successors.reduce import all_subsets, unions

RESULTS = ROOT / "benchmarks" / "results" / "dag.json"
PRICES = tuple(np.geomspace(0.002, 4.0, 11).tolist())  # error for all sensors
LP_PRICES = PRICES[::2]  # a linear program takes longest


@dataclass(frozen=True)
class Small:
    """A data set of a few sensors."""

    title: str
    file: str
    sizes: tuple[int, int, int]  # train, valid, test
    sensors: dict[str, tuple[int, ...]]
    degree: int
    has_trees: bool  # also with a bank of boosted trees
    grid: tuple[float, ...]  # average numbers of sensors at which methods are compared


def steps(low: float, high: float) -> tuple[float, ...]:
    """Quarters of a sensor."""
    return tuple(np.arange(low, high + 1e-9, 0.25).tolist())


SMALL = {
    "pima": Small(
        "Pima, 2 classes, 3 sensors",
        "pima.npz",
        (460, 77, 231),
        {"history and body": (0, 2, 3, 5, 6, 7), "glucose": (1,), "insulin": (4,)},
        3,
        True,
        steps(1.0, 2.5),
    ),
    "satimage": Small(
        "Satimage, 6 classes, 4 spectral bands",
        "satimage.npz",
        (3_600, 835, 2_000),
        {f"band {b + 1}": tuple(range(b, 36, 4)) for b in range(4)},
        2,
        True,
        steps(1.0, 3.5),
    ),
    "letter": Small(
        "Letter, 26 classes, 3 sensors",
        "letter.npz",
        (12_000, 4_000, 4_000),
        {"box and pixel count": tuple(range(5)), "moments": tuple(range(5, 12)), "edges": tuple(range(12, 16))},
        3,
        False,
        steps(1.0, 2.75),
    ),
}


def small_problem(case: Small, seed: int) -> Problem:
    """Rows drawn by the seed; no f0."""
    d = data(case.file)
    X, y = d["X"].astype(np.float32).astype(np.float64), d["y"].astype(np.int64)
    n_classes = int(y.max()) + 1
    order = np.random.default_rng(seed).permutation(len(y))
    ends = np.cumsum(case.sizes)
    parts = []
    for a, b in zip([0, *ends[:-1]], ends, strict=True):
        mine = np.sort(order[a:b])
        parts.append(Rows(X[mine], y[mine], np.full((len(mine), n_classes), 1 / n_classes), mine))
    sensors = tuple(Sensor(s, (to_micro(1.0),)) for s in case.sensors.values())
    features = tuple(Feature("f32") for _ in range(X.shape[1]))
    train, valid, test = parts
    return Problem(features, sensors, Uplink(), n_classes, train, valid, test, seed)


def static_points(rows: DagRows, bank: list[Classifier]) -> list[Point]:
    """The points of the bank's classifiers, each state bought for every row."""
    judge, problem = rows.judge, rows.problem
    out = []
    for state, one in zip(rows.graph.states, bank, strict=True):
        nodes = [*buy(state, 0), Answer(Slice(0, 0, class_outputs(problem.n_classes)))]
        program = compile_program(problem, [one.trained.part], nodes)
        out.append(Point("static", {}, judge.summary(judge.run(program, [one.trained])), None, program))
    return best_points(out)


def small_seed(case: Small, seed: int) -> dict[str, Any]:
    """Each method's points: [cost, error] on test rows."""
    began = time.monotonic()
    judge = Judge(small_problem(case, seed))
    rows = DagRows(judge, all_subsets(len(case.sensors)), case.degree)
    dag = Dag(rows, forwards=False)
    unit = dag.spent.max()  # the cost of all sensors
    out = {"static": static_points(rows, dag.classifiers), "dag": [dag.point(p / unit, {}) for p in PRICES]}
    plain = Dag(rows, is_plain=True, n_passes=1, forwards=False, known=dag.classifiers)
    out["dag, as in the paper"] = [plain.point(p / unit, {}) for p in PRICES]
    tree = lp_tree._Tree(full_tree(len(case.sensors)), rows, "polynomial")
    tree.mine = [mine[(rows.terms.factors[mine] < rows.terms.n_features).sum(axis=1) < 2] for mine in tree.mine]
    out["lp-tree"] = [tree.point(p / unit, {}) for p in LP_PRICES]
    if case.has_trees:
        trees = Dag(rows, "trees", forwards=False)
        out["static, trees"] = static_points(rows, trees.classifiers)
        out["dag, trees"] = [trees.point(p / unit, {}) for p in PRICES]
    points = {name: tested(judge.problem, found) for name, found in out.items()}
    return {"points": points, "seconds": round(time.monotonic() - began, 1), "with": provenance()}


def tested(problem: Problem, points: list[Point]) -> list[list[float]]:
    """Cost and error on test rows, by rising cost."""
    found = []
    for point in points:
        outcome = Batch(point.program, problem.test.X).run(problem.test.hpc_label)
        s = figures_of(outcome, problem.test.y)
        found.append([round(s.cost, 5), round(1 - s.quality, 5)])
    return sorted(found)


def error_at(points: list[list[float]], cost: float) -> float:
    """Between the points; the last one's beyond it, nan before the first."""
    p = np.array(points)
    return float(np.interp(cost, p[:, 0], p[:, 1], left=np.nan))


# ---------------------------------------------------------------- time and memory

NUMBERS = tuple((f,) for f in range(10))
COVER = ((0, 5), (1, 2), (3, 4), (6, 7), (8,), (9,), (10,), (11,))  # of 12 sensors: ten numbers, wilderness, soil


def speed(n_jobs: int) -> dict[str, Any]:
    """Seconds of each part of a graph of 256 states, and the most memory that the process has held."""
    d = data("covertype_sample.npz")
    part = d["split_sizes_of_adapt"]
    sensors = tuple(Sensor(s, (to_micro(1.0),)) for s in (*NUMBERS, tuple(range(10, 14)), tuple(range(14, 54))))
    parts = []
    for k in range(3):
        mine = np.flatnonzero(part == k)
        y = d["y"][mine].astype(np.int64)
        parts.append(Rows(d["X"][mine].astype(np.float64), y, np.full((len(y), 7), 1 / 7), mine))
    problem = Problem(tuple(Feature("i32") for _ in range(54)), sensors, Uplink(), 7, *parts)
    graph = unions(COVER)
    times: dict[str, Any] = {"states": len(graph.states), "rows": len(problem.train.y), "threads": n_jobs}
    times |= {"wall": {}, "cpu": {}}

    def timed(name: str, do: Callable[[], Any]) -> Any:
        began, used = time.monotonic(), time.process_time()
        made = do()
        times["wall"][name] = round(time.monotonic() - began, 1)
        times["cpu"][name] = round(time.process_time() - used, 1)
        print(f"{name}: {times['wall'][name]} s, {times['cpu'][name]} s of processor, {memory_mb()} MB", flush=True)
        return made

    rows = DagRows(Judge(problem), graph, 2)
    with threadpool_limits(1):
        timed("terms", lambda: rows.prepare(True, False))
        times["terms of all sensors"] = len(rows.terms.factors)
        dag = timed("bank", lambda: Dag(rows, n_passes=1, forwards=False, n_jobs=n_jobs))
        policies = timed("policies", lambda: dag.learn(0.2 / problem.cost_unit))
        point = timed("program", lambda: dag_point(rows, dag.classifiers, policies, {}))
    times["megabytes"] = memory_mb()
    times["judged"] = point.valid.to_json()
    times["kept states"] = point.params["states"]
    return times


def memory_mb() -> int:
    """Most memory held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


CASES: dict[str, Callable[[int], dict[str, Any]]] = {
    name: (lambda seed, case=case: small_seed(case, seed)) for name, case in SMALL.items()
}


# ---------------------------------------------------------------- the page


def curves(case: Small, runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Mean error of each method at each average number of sensors; nan where a seed has no policy so cheap."""
    methods = runs[0]["points"]
    return {m: [float(np.mean([error_at(r["points"][m], g) for r in runs])) for g in case.grid] for m in methods}


def table(case: Small, runs: list[dict[str, Any]]) -> str:
    """A case as Markdown."""
    parts = ", ".join(f"{name} ({len(s)})" for name, s in case.sensors.items())
    n, degree = len(runs), case.degree
    lines = [
        f"## {case.title}",
        "",
        f"{n} splits of {case.sizes[0]:,}/{case.sizes[1]:,}/{case.sizes[2]:,} rows, degree {degree}; "
        f"sensors (columns): {parts}.",
        "",
        "| sensors on average | " + " | ".join(f"{g:.2f}" for g in case.grid[::2]) + " |",
        "|---" * (1 + len(case.grid[::2])) + "|",
    ]
    for name, errors in curves(case, runs).items():
        lines.append(f"| {name} | " + " | ".join("" if np.isnan(e) else f"{e:.4f}" for e in errors[::2]) + " |")
    return "\n".join(lines)


def draw_case(name: str, runs: list[dict[str, Any]]) -> None:
    """Figure 3 of the paper from our runs: error over the average number of sensors."""
    case = SMALL[name]
    figure, axes = pyplot().subplots(figsize=(6.0, 3.8), layout="constrained")
    for method, errors in curves(case, runs).items():
        axes.plot(case.grid, errors, "--" if "static" in method else "-", marker="o", markersize=3, label=method)
    axes.set_xlabel("sensors on average")
    axes.set_ylabel("error on test rows")
    axes.set_title(case.title, fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, PAGES / f"dag-{name}.svg")


def speed_table(s: dict[str, Any]) -> str:
    """Time and memory as Markdown."""
    lines = [
        "## Time and memory",
        "",
        f"A graph of {s['states']} states on {s['rows']:,} rows of Covertype: 12 sensors of 54 features, 8 subsets, "
        f"7 classes, degree 2 ({s['terms of all sensors']} terms), {s['threads']} thread(s), one price.",
        "",
        "| part | seconds | processor seconds |",
        "|---|---|---|",
        *(f"| {name} | {s['wall'][name]} | {s['cpu'][name]} |" for name in s["wall"]),
        "",
        f"Most memory: {s['megabytes']:,} MB.",
    ]
    return "\n".join(lines)


def page(results: dict[str, Any]) -> str:
    """All that has been run."""
    texts = []
    for name in SMALL:
        if name in results:
            runs = [results[name][s] for s in sorted(results[name], key=int)]
            texts.append(f"{table(SMALL[name], runs)}\n\n![Error over sensors](dag-{name}.svg)")
    if "speed" in results:
        texts.append(rest("time and memory of 256 states", speed_table(results["speed"])))
    return "\n" + "\n\n".join(texts) + "\n"


SEEDS = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--speed", action="store_true", help="only time and memory of 256 states")
    parser.add_argument("--jobs", type=int, default=2)


def run(args: Any) -> dict[str, Any]:
    """Run what is not there yet."""
    results: dict[str, Any] = args.known()
    if args.speed:
        return results | {"speed": speed(args.jobs)}
    for name in args.cases:
        runs = results.setdefault(name, {})
        for seed in range(args.seeds):
            if str(seed) not in runs:
                runs[str(seed)] = CASES[name](seed)
                args.save(results)
                print(f"{name}, seed {seed}: {runs[str(seed)]['seconds']:.0f} s", flush=True)
    return results


def draw(results: dict[str, Any]) -> None:
    """The pictures of the page."""
    for name in SMALL:
        if name in results:
            draw_case(name, list(results[name].values()))
