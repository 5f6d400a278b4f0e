# SPDX-License-Identifier: Apache-2.0
"""Figures 2 and 3 of Nan and Saligrama (2017), drawn anew.

    python -m benchmarks run synthetic

synthetic-1.svg: what gate and low-cost model make of a plane, before and after they were fitted to one another, linear
and boosted. synthetic-2.svg: accuracy over cost where sensors must be chosen for gate and low-cost model together;
its points go to benchmarks/results/synthetic.json, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from benchmarks.adapt_figures import COLOURS, TEST, draw_synthetic
from benchmarks.pages import PAGES, provenance, pyplot, save
from benchmarks.synthetic_data import synthetic_1, synthetic_2, toy_problem
from hardcase_train.data.problem import Problem
from hardcase_train.methods.adapt.gate_thresholds import adapt_nodes
from hardcase_train.methods.adapt.gbrt import AdaptGBRT
from hardcase_train.methods.adapt.linear import AdaptLin
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.compile import compile_program
from hardcase_train.policy.confidences import NEVER
from hardcase_train.policy.selection import Judge
from hardcase_train.sweep.train import hpc_point, points_of
from hardcase_train.trees.boosting import TreeSettings

P_LINEAR, P_BOOSTED = 0.6, 0.3  # a line must give up a side and the middle, trees the middle alone
RED, BLUE, BEIGE = "#f2b8b5", "#b5cdf2", "#efe3c2"
SMALL = TreeSettings(learning_rate=0.3, max_leaves=8, max_depth=4, min_rows=10, l2=0.1)


def plane(problem: Problem, model: Any, X: np.ndarray) -> np.ndarray:
    """0 or 1 where f1 answers so, 2 where the gate forwards."""
    nodes = adapt_nodes(problem, model.sensors_, 0.0, NEVER)  # the gate decides alone
    outcome = Batch(compile_program(problem, [model.trained_.part], nodes), X).run(np.full(len(X), 2))
    return outcome.label


def figure_2(out: Path) -> dict[str, float]:
    """Draw synthetic-1.svg; accuracies and forward rates on test rows."""
    problem = toy_problem([synthetic_1(n, s) for s, n in enumerate((1200, 400, 1200))], "KNeighborsClassifier", (0, 0))
    judge = Judge(problem)
    lin = [AdaptLin(p_full=P_LINEAR, n_rounds=n, is_refitted=False).learn(judge) for n in (1, 10)]
    trees = [AdaptGBRT(p_full=P_BOOSTED, n_rounds=n, settings=SMALL).learn(judge) for n in (0, 10)]
    titles = ("linear, after 1 round", "linear, after 10 rounds", "boosted, at first", "boosted, after 10 rounds")
    test = problem.test
    x, y = np.meshgrid(np.linspace(-3, 3, 241), np.linspace(-1.5, 1.5, 121))
    grid = np.stack([x.ravel(), y.ravel()], axis=1)
    figure, axes = pyplot().subplots(2, 3, figsize=(9.6, 4.4), layout="constrained", sharex=True, sharey=True)
    axes[0, 0].scatter(*test.X.T, c=np.where(test.y == 1, "#c0392b", "#2471a3"), s=2, rasterized=True)
    axes[0, 0].set_title("test rows")
    said = {"f0": float(np.mean(test.hpc_label == test.y))}
    axes[1, 0].scatter(*test.X.T, c=np.where(test.hpc_label == 1, "#c0392b", "#2471a3"), s=2, rasterized=True)
    axes[1, 0].set_title(f"f0: {said['f0']:.3f} right")
    for panel, title, model in zip([*axes[0, 1:], *axes[1, 1:]], titles, [*lin, *trees], strict=True):
        colours = matplotlib.colors.ListedColormap([BLUE, RED, BEIGE])
        panel.pcolormesh(x, y, plane(problem, model, grid).reshape(x.shape), cmap=colours, vmin=0, vmax=2,
                         rasterized=True)  # fmt: skip
        found = plane(problem, model, test.X)
        label = np.where(found == 2, test.hpc_label, found)
        said[title], said[f"{title}, forwarded"] = float(np.mean(label == test.y)), float(np.mean(found == 2))
        panel.set_title(f"{title}: {said[title]:.3f} right,\n{100 * np.mean(found == 2):.0f} % forwarded", fontsize=9)
    save(figure, out / "synthetic-1.svg")
    return said


def figure_3() -> dict[str, Any]:
    """Points of each method and f0's, (cost, accuracy) on test rows; the cost of the cheapest without an error."""
    parts = [synthetic_2((110, 110, 90, 90), s) for s in (0, 1)] + [synthetic_2(*TEST)]
    judge = Judge(toy_problem(parts, "KNeighborsClassifier", (1, 1)))
    points, exact = {}, {}
    for method in COLOURS:
        found = points_of(method, judge)
        points[method] = [[round(p.test.cost, 5), round(p.test.quality, 5)] for p in found]
        exact[method] = min(p.test.cost for p in found if p.test.quality == p.valid.quality == 1.0)
    f0 = hpc_point(judge).test
    return {"points": points, "exact": exact, "f0": [f0["cost"], f0["quality"]], "with": provenance()}


def run(args: Any) -> dict[str, Any]:
    """Draw both, and print their figures."""
    record = figure_3()
    draw_synthetic(record, PAGES)
    for name, value in {**figure_2(PAGES), **record["exact"]}.items():
        print(f"{name}: {value:.3f}")
    return record
