# SPDX-License-Identifier: Apache-2.0
"""What nodes of trees of classifiers read, for figures 8 to 10, 13 and 14 of Xu et al. (2014).

    python -m benchmarks run cstc_trees [--data mq2008 skewed digits labels]   then: python -m benchmarks render cstc

Of each policy it keeps the sensors that a row has bought at each node, the share of test rows that get there and their
mean label. The policy is the best on validation rows within a budget; of the digits, each of the path of prices.
``labels`` are the overlaps of 6.8. What the JSON has is not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import cstc, relevance
from benchmarks.cstc_methods import METHODS
from benchmarks.digits38 import data as folder
from benchmarks.pages import provenance
from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.program.definition import THRESHOLD, Acquire, Branch, Forward, Program
from hardcase_train.data.from_arrays import make_problem
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.linear.label_overlap import label_overlap
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.front import Point
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.subset_search import SubsetSearch

BUDGET = {"mq2008": 377, "skewed": 400}
RUNS = {
    "mq2008": ("cstc-2", "cstc-2, interior 0.1", "cstc-2, slope 3", "cstc-2, on trees", "astc-2", "cronus-4"),
    "skewed": ("cscc-4", "and-or", "cronus-4"),
    "digits": ("cstc-2",),
}
SPLITS = {"mq2008": range(5), "skewed": range(5), "digits": range(1)}
SHOWN = (3, 8)  # digits, of each of which one test row is shown on its way
LEVELS = {"accumulator": 3, "valve": 1}  # columns of the rig's labels that are levels of one thing


def classes_of(problem: Problem) -> Problem:
    """The skewed data with two classes in place of values of two sizes."""
    parts = [problem.train, problem.valid, problem.test]
    labels = [(rows.y > rows.y.min()).astype(np.int64) for rows in parts]
    costs = [float(c) for c in problem.sensor_costs()]
    made = make_problem(problem.train.X, labels[0], problem.train.weight, 2, None, costs, relevance.FORWARD_COST,
                        problem.seed, "small", problem.effort, problem.train.group)  # fmt: skip
    own = [replace(rows, y=y, hpc=np.full((len(y), 2), 0.5)) for rows, y in zip(parts, labels, strict=True)]
    return replace(made, train=own[0], valid=own[1], test=own[2])


def balanced(problem: Problem) -> Problem:
    """The rows with weights at which both classes weigh alike: copies of one class would win by saying it."""

    def alike(rows: Rows) -> Rows:
        return replace(rows, weight=len(rows.y) / 2 / np.bincount(rows.y)[rows.y])

    return replace(problem, train=alike(problem.train), valid=alike(problem.valid))


def signed(outcome: Outcome) -> np.ndarray:
    """(n,) what ranks rows of two classes: the margin, negative where the answer is class 0."""
    return np.where(outcome.label == 1, outcome.margin, -outcome.margin)


def nodes_of(policy: Program, test: Rows, y: np.ndarray, is_chain: bool, onward: int = 1) -> list[dict[str, Any]]:
    """Each node that classifies: parent, sensors that a row has there, share of test rows, their mean label.

    y : (n_test,) labels in their own unit
    is_chain : the side that is not ``onward`` leaves the cascade, and is no node
    """
    outcome = Batch(policy, test.X).run(test.hpc_label)
    made: list[dict[str, Any]] = []

    def visit(at: int, parent: int, has: frozenset[int]) -> set[int]:
        """Adds the node that begins here; the program's nodes at which its rows may end."""
        while isinstance(node := policy.nodes[at], Acquire):
            has, at = has | set(node.sensors), node.then
        me = {"parent": parent, "sensors": sorted(has)}
        made.append(me)
        number, ends = len(made) - 1, {at}
        if isinstance(node, Branch) and node.rule == THRESHOLD:
            for side, target in enumerate(node.targets):
                leaves = is_chain and side != onward
                ends |= _ends(policy, target) if leaves else visit(target, number, has)
        else:
            ends |= _ends(policy, at)
        here = np.isin(outcome.node, list(ends))
        weight = test.weight[here]
        me["share"] = round(float(weight.sum() / test.weight.sum()), 4)
        me["label"] = round(float(np.average(y[here], weights=weight)), 4) if here.any() else None
        me["ends"] = sorted(ends)
        return ends

    visit(0, -1, frozenset())
    return made


def _ends(policy: Program, at: int) -> set[int]:
    """All nodes ahead of this one, itself included."""
    node = policy.nodes[at]
    ahead: tuple[int, ...] = ()
    if isinstance(node, Branch):
        ahead = node.targets
    elif isinstance(node, Acquire | Forward):
        ahead = (node.then,) if isinstance(node, Acquire) else (node.fallback,)
    return {at}.union(*(_ends(policy, k) for k in ahead))


def ways(policy: Program, nodes: list[dict[str, Any]], test: Rows) -> dict[str, list[int]]:
    """The numbers of the nodes on the way of the first test row of each shown digit."""
    outcome = Batch(policy, test.X).run(test.hpc_label)
    made = {}
    for label, digit in enumerate(SHOWN):
        end = int(outcome.node[np.flatnonzero(test.y == label)[0]])
        made[str(digit)] = [k for k, node in enumerate(nodes) if end in node["ends"]]
    return made


def tree_of(data: str, problem: Problem, point: Point, name: str, onward: int, figures: list[float]) -> dict[str, Any]:
    """What is kept of one policy; ``onward``: as of ``nodes_of``."""
    assert point.program is not None
    test, unit = problem.test, problem.value_unit[1] if not problem.n_classes else 1.0
    is_chain = name in ("cscc-4", "cronus-4", "and-or")
    nodes = nodes_of(point.program, test, test.y * unit, is_chain, onward)
    made: dict[str, Any] = {"price": point.params.get("price"), "cost": figures[2], "quality": figures[3]}
    if data == "digits":
        made["ways"] = ways(point.program, nodes, test)
    made["nodes"] = [{k: v for k, v in node.items() if k != "ends"} for node in nodes]
    return made


def rated(data: str, problem: Problem, name: str, points: list[Point]) -> Iterator[tuple[list[float], Point]]:
    """Each point with cost and quality on validation rows, then on test rows."""
    for point in points:
        if not problem.kind.has_classes or data == "digits":
            yield cstc.figures(data, problem, [point])[0], point
            continue
        assert point.program is not None
        row = list[float]()
        for rows in (problem.valid, problem.test):
            outcome = Batch(point.program, rows.X).run(rows.hpc_label)
            assert rows.group is not None
            row += [float(np.average(outcome.cost, weights=rows.weight)),
                    relevance.precision(rows.y, signed(outcome), rows.group, rows.weight)]  # fmt: skip
        yield row, point


def read_by(data: str, split: int, name: str) -> list[dict[str, Any]]:
    """The tree within the budget; of the digits, all that forward nothing, by rising cost."""
    problem = cstc.PROBLEMS[data](split, cstc.EFFORT)
    if name == "and-or":
        problem = classes_of(problem)
    own = balanced(problem) if name == "and-or" else problem
    points = METHODS[name](own, SubsetSearch(Judge(own, is_alone=True), 1))
    points = [p for p in points if "forward_price" not in p.params]
    pairs = sorted(rated(data, problem, name, points), key=lambda pair: pair[0][0])
    if data != "digits":
        pairs = [max((p for p in pairs if p[0][0] <= BUDGET[data]), key=lambda p: (p[0][1], -p[0][0]))]
    onward = 0 if name == "and-or" and own.majority == 1 else 1  # rows of the most frequent class leave
    return [tree_of(data, problem, point, name, onward, row) for row, point in pairs]


def overlaps() -> Iterator[tuple[str, list[list[float]]]]:
    """The overlap of the classifiers of neighbouring labels, of each set whose labels have an order."""
    yield "MQ2008, relevance 0 to 2", _overlap(relevance.problem_of(0, cstc.EFFORT))
    with np.load(folder() / "room_occupancy.npz") as arrays:
        yield "room, 0 to 3 people", _overlap(_plain(arrays["X"], arrays["y"]))
    with np.load(folder() / "hydraulic_1hz.npz") as arrays:
        X, Y = arrays["X"], arrays["Y"]
    for name, column in LEVELS.items():
        yield f"rig, {name}, 4 levels", _overlap(_plain(X.reshape(len(X), 17, -1).mean(axis=2), Y[:, column]))


def _plain(X: np.ndarray, y: np.ndarray) -> Problem:
    return make_problem(X.astype(np.float64), y.astype(np.float64), np.ones(len(y)), 0, None, None, 1.0, 0, "small")


def _overlap(problem: Problem) -> list[list[float]]:
    return [[round(float(x), 4) for x in row] for row in label_overlap(problem, problem.train.y)]


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--data", nargs="+", choices=[*RUNS, "labels"], default=[*RUNS, "labels"])


def run(args: Any) -> dict[str, Any]:
    """Run what is not there; ``python -m benchmarks render cstc`` shows it."""
    jobs: list[tuple[str, Callable[[], Any]]] = [
        (f"{data}/{split}/{name}", lambda data=data, split=split, name=name: read_by(data, split, name))  # type: ignore[misc]
        for data in args.data if data in RUNS for split in SPLITS[data] for name in RUNS[data]
    ]  # fmt: skip
    jobs.append(("costs", lambda: [float(c) for c in relevance.problem_of(0, cstc.EFFORT).sensor_costs()]))
    if "labels" in args.data:
        jobs.append(("labels", lambda: dict(overlaps())))
    known = args.known()
    for key, measure in jobs:
        if key not in known:
            known[key] = {"found": measure(), "with": provenance()}
            args.save(known)
            print(key, flush=True)
    return known
