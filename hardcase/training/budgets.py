# SPDX-License-Identifier: Apache-2.0
"""Accuracy of every method against the budget, for items of each size: ``budgets.json`` of a build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hardcase_edge.program.cost import Meter, to_unit
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.front import Point, programs

INDEXED = ("poly-dom", "poly-dom-anytime", "greedy", "greedy-acc", "greedy-cost")
N_BUDGETS = 10  # each half of the one before, from the cost of all sensors for the largest item
MAX_GROUPS = 4  # of sizes


def is_indexed(points: Sequence[Point]) -> bool:
    """Whether a method among these chooses by item size and budget."""
    return any(point.method in INDEXED for point in points)


def budget_figures(problem: Problem, points: Sequence[Point], unit: str) -> dict[str, Any]:
    """The share of right answers on test rows of each method, for groups of sizes and budgets.

    At each budget a method is represented by the point that is best on validation rows of that group, of those that
    remember nothing: what the others have decided before depends on the budget, too.

    Returns
    -------
    dict with ``unit``, ``budgets`` (falling), ``sizes`` (first and last of each group), ``rows`` (test rows of each)
    and ``accuracy``: method to (groups, budgets)
    """
    meter = Meter(problem, problem.max_item_size)
    budgets = [meter.start() + (meter.buy(range(len(problem.sensors))) >> k) for k in range(N_BUDGETS)]
    edges = _edges(problem)
    members = {name: _groups(getattr(problem, name), edges) for name in ("valid", "test")}
    best: dict[str, np.ndarray] = {}
    shown: dict[str, np.ndarray] = {}
    for k, program, _ in programs(points):
        if len(program.sensors) > len(problem.sensors):
            continue
        valid, test = (_rights(getattr(problem, name), program, budgets) for name in ("valid", "test"))
        method = points[k].method
        on_valid, on_test = (
            np.array([[_share(r[at], rows.weight[at]) for r in right] for at in members[name]])
            for name, rows, right in (("valid", problem.valid, valid), ("test", problem.test, test))
        )
        if method not in best:
            best[method], shown[method] = on_valid, on_test
            continue
        is_better = on_valid > best[method]
        best[method] = np.where(is_better, on_valid, best[method])
        shown[method] = np.where(is_better, on_test, shown[method])
    return {
        "unit": unit,
        "budgets": [to_unit(b) for b in budgets],
        "sizes": [list(pair) for pair in edges],
        "rows": [int(rows.sum()) for rows in members["test"]],
        "accuracy": {method: values.tolist() for method, values in shown.items()},
    }


def _edges(problem: Problem) -> list[tuple[int, int]]:
    """First and last size of each group, of about as many training rows each."""
    if problem.train.sizes is None:
        return [(1, 1)]
    quantiles = np.quantile(problem.train.sizes, np.arange(1, MAX_GROUPS) / MAX_GROUPS, method="lower").astype(int)
    lasts = sorted({*quantiles.tolist(), problem.max_item_size})
    return list(zip([1, *(last + 1 for last in lasts[:-1])], lasts, strict=True))


def _groups(rows: Rows, edges: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """Which rows are in each group of sizes."""
    sizes = np.ones(len(rows.y), dtype=np.int64) if rows.sizes is None else rows.sizes
    return [(low <= sizes) & (sizes <= high) for low, high in edges]


def _share(right: np.ndarray, weight: np.ndarray) -> float:
    """The share of right answers, by weight; 0 where there are no rows."""
    return float(np.average(right, weights=weight)) if weight.any() else 0.0


def _rights(rows: Rows, program: Any, budgets: Sequence[int]) -> list[np.ndarray]:
    """Whether each row is answered rightly, for each budget."""
    batch = Batch(program, rows.X, sizes=rows.sizes)
    return [batch.run(rows.hpc_label, budget=budget).label == rows.y for budget in budgets]
