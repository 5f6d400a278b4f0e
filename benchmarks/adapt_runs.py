# SPDX-License-Identifier: Apache-2.0
"""Figure 4 of Nan and Saligrama (2017), as far as its data are had: ADAPT-GBRT, GreedyMiser and BudgetPrune.

    HARDCASE_DATA=FOLDER python -m benchmarks run adapt_runs [--data forest ranks] [--seeds 1]     runs nothing twice

``forest``: Covertype, type 2 against all others, 54 features at 1 each, as many rows as the paper has; a sweep as
``hardcase train --effort quick`` runs it. ``ranks``: a fold of MQ2008 for each seed, relevant or not, with
the costs of ``mq2008_costs.toml``; Yahoo's rankings are not had. f0 is a random forest, and a forwarded row buys what
f0 reads: all features.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from benchmarks import relevance
from benchmarks.learning_cases import covertype
from benchmarks.pages import provenance
from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import Feature, Sensor, Uplink
from hardcase_edge.program.readings import request_bytes
from hardcase_train.data.problem import Problem, Rows, value_unit
from hardcase_train.hpc.fit import fit_hpc, out_of_fold, probabilities
from hardcase_train.methods import METHODS
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.effort import NORMAL, QUICK
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.sweep.train import learn

SIZES = (36_603, 15_688, 58_101)  # rows of Covertype, as in the paper
N_TREES = 100  # of f0
NAMES = {"forest": ("adapt-gbrt", "greedy-miser", "budget-prune"), "ranks": ("adapt-gbrt", "greedy-miser")}


def forest(seed: int) -> Problem:
    """Covertype, type 2 or not, rows drawn by the seed."""
    X, types = covertype()
    y = (types == 1).astype(np.int64)
    ends = np.cumsum(SIZES)
    order = np.random.default_rng(seed).permutation(len(y))
    train, valid, test = (np.sort(order[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True))
    model = RandomForestClassifier(N_TREES, n_jobs=-1, random_state=0)
    fitted = fit_hpc(model, X[train], y[train])
    rows = [Rows(X[train], y[train], out_of_fold(model, X[train], y[train], 2, seed), train)]
    rows += [Rows(X[part], y[part], probabilities(fitted, X[part], 2), part) for part in (valid, test)]
    n = X.shape[1]
    uplink = Uplink(request_bytes=request_bytes(["i32"] * n), features=tuple(range(n)))
    sensors = tuple(Sensor((f,), (to_micro(1.0),)) for f in range(n))
    return Problem((Feature("i32"),) * n, sensors, uplink, 2, rows[0], rows[1], rows[2], seed, effort=QUICK)


def ranks(fold: int) -> Problem:
    """A fold of MQ2008, relevant or not as 1 or 0 in standard units, f0 a forest."""
    made = relevance.problem_of(fold, NORMAL)
    parts = [made.train, made.valid, made.test]
    labels = [(rows.y > 0).astype(np.float64) for rows in parts]
    at, unit = value_unit(labels[0], made.train.weight)
    labels = [(y - at) / unit for y in labels]
    train = parts[0]
    assert train.group is not None
    own = RandomForestRegressor(N_TREES, min_samples_leaf=5, random_state=0).fit(train.X, labels[0])
    unseen = np.empty(len(labels[0]))
    part = np.unique(train.group, return_inverse=True)[1].ravel() % 4
    for k in range(4):
        copy = RandomForestRegressor(N_TREES, min_samples_leaf=5, random_state=0)
        unseen[part == k] = copy.fit(train.X[part != k], labels[0][part != k]).predict(train.X[part == k])
    answers = [unseen, own.predict(parts[1].X), own.predict(parts[2].X)]
    rows = [replace(p, y=y, hpc=a[:, None]) for p, y, a in zip(parts, labels, answers, strict=True)]
    costs = replace(made.costs, per_request=0)
    return replace(made, train=rows[0], valid=rows[1], test=rows[2], costs=costs, value_unit=(at, unit))


PROBLEMS: dict[str, Callable[[int], Problem]] = {"forest": forest, "ranks": ranks}


def quality(data: str, rows: Rows, labels: np.ndarray) -> float:
    """Accuracy, or average precision of the first five places."""
    if data == "forest":
        return float(np.mean(labels == rows.y))
    assert rows.group is not None
    return relevance.average_precision((rows.y > rows.y.min()).astype(np.float64), labels, rows.group)


def points_of(data: str, problem: Problem, name: str) -> list[list[float]]:
    """Cost and quality on validation rows, then on test rows, of a method's policies."""
    if data == "forest":
        found = [p for p in learn(problem, (name,), quiet=True) if p.method == name]
        figures = [[x for rows in (p.valid, p.test) for x in (rows.cost, rows.quality)] for p in found]
        return sorted([round(x, 5) for x in row] for row in figures)
    search = SubsetSearch(Judge(problem), 1)
    made = []
    for params in METHODS[name].grid(search):
        for point in METHODS[name].run(search, params):
            assert point.program is not None
            row = list[float]()
            for rows in (problem.valid, problem.test):
                outcome = Batch(point.program, rows.X).run(rows.hpc_label)
                row += [float(outcome.cost.mean()), quality(data, rows, outcome.label)]
            made.append([round(x, 5) for x in row])
    return sorted(made)


SEEDS = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--data", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))


def run(args: Any) -> dict[str, Any]:
    """Run what is not there: of each data set and seed f0's cost and quality on both parts, and the points of each."""
    known = args.known()
    for data, seed in ((d, s) for d in args.data for s in range(args.seeds)):
        key = f"{data}/{seed}"
        missing = [name for name in NAMES[data] if name not in known.get(key, {})]
        problem = PROBLEMS[data](seed) if missing else None
        for name in missing:
            assert problem is not None
            began, parts = time.process_time(), (problem.valid, problem.test)
            f0 = [float(problem.sensor_costs().sum()), *(quality(data, rows, rows.hpc_label) for rows in parts)]
            points = points_of(data, problem, name)
            seconds = round(time.process_time() - began, 1)
            known.setdefault(key, {})["f0"] = f0
            known[key][name] = {"points": points, "seconds": seconds, "with": provenance()}
            args.save(known)
            print(key, name, f"{seconds} s, {len(points)} points", flush=True)
    return known
