# SPDX-License-Identifier: Apache-2.0
"""Trees and cascades of classifiers (Xu et al. 2014) beside their peers, static sets, cascades and GreedyMiser.

    python -m benchmarks run cstc --data digits --split 0 --method cstc-2 cascade    adds results to the JSON
    python -m benchmarks run cstc --data forest --method astc-2 cstc-2 staged          figure 4 of Wang et al. (2015)
    python -m benchmarks run cstc --data mq2008 --crossed --split 0 1                 judges training queries, too

A run that was stopped goes on where it was: what is in the JSON is not run again. Methods are the keys of
``cstc_methods.METHODS``; ``early exit`` is that of ``early_exit.py``. A point has its mean cost and quality on
validation rows and on test rows, and, by name, the cost of each of its ways to an answer. Where each evaluation of a
tree costs (``TREE_COST``), a way costs 1 more for each tree on it. ``HARDCASE_DATA`` names the folder of the data sets.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import digits38, early_exit, relevance
from benchmarks.cstc_methods import FEW_LEAVES, METHODS
from benchmarks.cstc_page import CROSSED, pictures, write_page
from benchmarks.learning_cases import covertype
from benchmarks.pages import provenance
from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.program.definition import Acquire, Answer, Branch, Node, Scorer, Trees
from hardcase_train.data.from_arrays import make_problem
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.front import Point
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.effort import NORMAL
from hardcase_train.stages.subset_search import SubsetSearch

EFFORT = replace(NORMAL, n_tree_prices=6, n_graph_prices=6)
FOREST = (2_000, 1_000, 20_000)  # rows of training, validation and test


def forest_of(split: int, effort: Any) -> Problem:
    """Covertype, type 2 against all others, rows drawn by the split; f0 knows nothing."""
    X, types = covertype()
    y = (types == 1).astype(np.int64)
    ends = np.cumsum(FOREST)
    drawn = np.split(np.random.default_rng(split).permutation(len(y))[: ends[-1]], ends[:-1])
    n = X.shape[1]
    made = make_problem(X[drawn[0]], y[drawn[0]], np.ones(FOREST[0]), 2, None, None, float(n), split, "auto", effort)
    train, valid, test = (Rows(X[rows], y[rows], np.full((len(rows), 2), 0.5), rows) for rows in drawn)
    return replace(made, train=train, valid=valid, test=test)


PROBLEMS: dict[str, Callable[[int, Any], Problem]] = {
    "digits": digits38.problem_of,
    "forest": forest_of,
    "mq2008": relevance.problem_of,
    "skewed": relevance.skewed_of,
}
TREE_COST = {"digits": 0.0, "forest": 0.0, "mq2008": 1.0, "skewed": 1.0}
ONLY_CLASSES = {"and-or", "adaboost-rs"}
EARLY_EXIT = "early exit"
OF_RANKINGS = {EARLY_EXIT, FEW_LEAVES}


def trees_on_the_way(nodes: Sequence[Node], scorers: Sequence[Scorer]) -> np.ndarray:
    """(n_nodes,) the trees that were evaluated before a row ends at each node, at most; each ensemble once."""
    seen: list[frozenset[int]] = [frozenset()] * len(nodes)
    for k, node in enumerate(nodes):
        if isinstance(node, Branch | Answer):
            seen[k] |= {node.scores.scorer}
        ahead = node.targets if isinstance(node, Branch) else (node.then,) if isinstance(node, Acquire) else ()
        for target in ahead:
            seen[target] |= seen[k]
    count = [len(s.trees) if isinstance(s, Trees) else 0 for s in scorers]
    return np.array([sum(count[s] for s in way) for way in seen], dtype=np.float64)


def quality_of(data: str, problem: Problem, rows: Rows, outcome: Outcome) -> float:
    """Accuracy, NDCG@5 or, of the skewed data, Precision@5."""
    if data == "skewed":
        assert rows.group is not None
        return relevance.precision(rows.y, outcome.label, rows.group, rows.weight)
    return problem.quality(rows.y, outcome.label, rows.weight, rows.group)


def figures(data: str, problem: Problem, points: Sequence[Point], is_crossed: bool = False) -> list[list[float]]:
    """Cost and quality on validation rows, then on test rows, of those that no cheaper point beats on the former.

    is_crossed : the first quality is that on all judged rows, out-of-fold ones among them; the costs stay
    """
    made = []
    for point in points:
        assert point.program is not None
        program, row = replace(point.program, sensors=problem.sensors), list[float]()  # their costs are the true ones
        for rows in (problem.valid, problem.test):
            outcome = Batch(program, rows.X).run(rows.hpc_label)
            trees = trees_on_the_way(program.nodes, program.scorers)[outcome.node]
            cost = outcome.cost + TREE_COST[data] * trees
            row += [float(np.average(cost, weights=rows.weight)), quality_of(data, problem, rows, outcome)]
        if is_crossed:
            row[1] = point.valid.quality
        made.append(row)
    made.sort(key=lambda row: (row[0], -row[1]))
    best = np.maximum.accumulate([-np.inf, *(row[1] for row in made)])
    return [row for row, before in zip(made, best, strict=False) if row[1] > before]


def points_of(data: str, split: int, names: list[str], args: Any) -> None:
    """Add the figures of these methods to the results."""
    problem, is_crossed = PROBLEMS[data](split, EFFORT), args.crossed
    search = SubsetSearch(Judge(problem, is_alone=not is_crossed), 1)
    for name in names:
        key = f"{data}{CROSSED if is_crossed else ''}/{split}/{name}"
        unfit = (problem.kind.has_classes and name in OF_RANKINGS) or (
            name in ONLY_CLASSES and not problem.kind.has_classes
        )
        unfit = unfit or (is_crossed and name == EARLY_EXIT)
        if unfit or key in args.known():
            continue
        began = time.process_time()
        if name == EARLY_EXIT:
            rows = early_exit.figures(problem, data == "skewed")
        else:
            rows = figures(data, problem, METHODS[name](problem, search), is_crossed)
        seconds = time.process_time() - began
        made: dict[str, Any] = {"seconds": round(seconds, 1), "points": [[round(x, 5) for x in row] for row in rows]}
        made["with"] = provenance()
        args.save({**args.known(), key: made})
        print(key, f"{seconds:.0f} s,", len(rows), "points", flush=True)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--data", choices=PROBLEMS, default="digits")
    parser.add_argument("--split", type=int, nargs="+", default=[0])
    parser.add_argument("--method", nargs="+", choices=[*METHODS, EARLY_EXIT], default=[*METHODS, EARLY_EXIT])
    parser.add_argument("--crossed", action="store_true", help="of mq2008: judge training queries by copies, too")


def run(args: Any) -> dict[str, Any]:
    """Run what is not there."""
    if args.crossed and args.data != "mq2008":
        raise SystemExit("--crossed takes quality as the judge has it, which is that of mq2008 alone")
    for split in args.split:
        points_of(args.data, split, args.method, args)
    return dict(args.known())


def page(results: dict[str, Any]) -> str:
    """The page."""
    return write_page(results)


def whole(results: dict[str, Any]) -> str:
    """The page with all that was measured."""
    return write_page(results, is_whole=True)


def draw(results: dict[str, Any]) -> None:
    """The pictures of the page."""
    pictures(results)
