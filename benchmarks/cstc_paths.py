# SPDX-License-Identifier: Apache-2.0
"""How far the paths of trees of classifiers differ in cost, with interior weight and slope varied.

    python -m benchmarks run cstc_paths --data mq2008 --split 0       then: python -m benchmarks render cstc

For each method and budget it takes the policy that is best on validation rows, and counts the test rows that end on
each of its paths. What a path costs is its sensors and, where a tree costs, the trees that it evaluates.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks import cstc, relevance
from benchmarks.cstc_methods import METHODS
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.subset_search import SubsetSearch

BUDGETS = {"digits": (16, 60), "mq2008": (151, 377), "skewed": (130, 400)}
NAMES = (
    "cstc-1", "cstc-2", "cstc-2, interior 0.1", "cstc-2, slope 3", "cstc-3, pruned", "cstc-3, grown",
    "cstc-2, on trees", "cscc-4", "cronus-4", "astc-2",
)  # fmt: skip
__all__ = ["paths_of"]


def paths_of(data: str, split: int, name: str) -> list[list[Any]]:
    """For each budget: budget, cost and quality on test rows, and cost and share of test rows of each path.

    Of the skewed data the quality is Precision@5, and AP@5 stands last.
    """
    problem = cstc.PROBLEMS[data](split, cstc.EFFORT)
    points = METHODS[name](problem, SubsetSearch(Judge(problem, is_alone=True), 1))
    rated = [(cstc.figures(data, problem, [point])[0], point) for point in points]
    made = []
    for budget in BUDGETS[data]:
        within = [(row, point) for row, point in rated if row[0] <= budget]
        if not within:
            continue
        row, point = max(within, key=lambda pair: (pair[0][1], -pair[0][0]))
        assert point.program is not None
        program = point.program
        outcome = Batch(program, problem.test.X).run(problem.test.hpc_label)
        trees = cstc.trees_on_the_way(program.nodes, program.scorers)
        ends = np.unique(outcome.node)
        ways = [
            [float(np.mean(outcome.cost[outcome.node == k]) + cstc.TREE_COST[data] * trees[k]),
             float(np.mean(outcome.node == k))]
            for k in ends
        ]  # fmt: skip
        made.append([budget, row[2], row[3], sorted(ways)])
        if data == "skewed":
            test = problem.test
            assert test.group is not None
            made[-1].append(relevance.average_precision(test.y, outcome.label, test.group, test.weight))
    return made


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--data", choices=BUDGETS, default="mq2008")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--method", nargs="+", choices=METHODS, default=NAMES)


def run(args: Any) -> dict[str, Any]:
    """Run; ``python -m benchmarks render cstc`` shows it."""
    results = args.known()
    for name in args.method:
        key = f"{args.data}/{args.split}/{name}"
        results[key] = paths_of(args.data, args.split, name)
        args.save(results)
        print(name, results[key], flush=True)
    return results
