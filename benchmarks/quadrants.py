# SPDX-License-Identifier: Apache-2.0
"""The synthetic data of Xu et al. (2014), 6.1, on which a tree of classifiers is exact at a cost of 12.

    python -m benchmarks run quadrants [--seeds 10] [--slope 3]

Labels lie around -15, -5, 5 and 15, one mean for each quadrant of a plane. Two cheap features are the signs, which name
the quadrant; four dear ones are the label itself in their own quadrant, and another row's label elsewhere. It prints,
for each seed, the cost of the cheapest policy with a squared error below 1e-12 on test rows, and adds them to the JSON
from which ``benchmarks/cstc.py`` writes its page.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.pages import read
from hardcase_train.methods.cstc.cost_tree import sparse
from hardcase_train.methods.cstc.descent import first_weights, prices_of, settle, solve_jointly
from hardcase_train.methods.cstc.fit import has_by_then
from hardcase_train.methods.cstc.objective import Objective, Rule, Weights, payers_of
from hardcase_train.methods.cstc.shape import tree
from hardcase_train.policy.losses import SquaredLoss

COSTS = (1.0, 1.0, 10.0, 10.0, 10.0, 10.0)
QUADRANTS = (-15.0, -5.0, 5.0, 15.0)  # mean label of each
N_ROWS = 400
EXACT = 1e-12  # squared error of labels with a deviation of 11
RIDGE = 1e-9


def quadrants(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 6) and labels (n,)."""
    number = rng.integers(0, 4, n)
    y = np.array(QUADRANTS)[number] + rng.normal(size=n)
    experts = [np.where(number == k, y, rng.permutation(y)) for k in range(4)]
    return np.column_stack([np.where(number >= 2, 1.0, -1.0), np.where(number % 2, 1.0, -1.0), *experts]), y


def fitted_path(seed: int, n_prices: int, slope: float) -> Iterator[tuple[Weights, np.ndarray, Objective]]:
    """Trees with four leaves over rising prices: weights, sensors by node, and the objective of the training rows."""
    X, y = quadrants(np.random.default_rng(seed), N_ROWS)
    payers = payers_of([(s,) for s in range(6)], np.array(COSTS))
    made = Objective(X, SquaredLoss(y, np.ones(N_ROWS)), tree(2), payers, Rule(slope=slope, l2=RIDGE))
    free = np.ones((len(made.shape), 6), dtype=bool)
    weights = first_weights(made, free)
    for price in prices_of(made, 2 * n_prices)[:n_prices]:  # the larger half buys next to nothing
        priced = replace(made, rule=replace(made.rule, price=price))
        weights = solve_jointly(priced, weights, free)
        few = sparse(priced, weights)
        has = has_by_then(priced, few, 6)
        yield settle(made, solve_jointly(made, few, few.coef[:, :-1, 0] != 0), has), has, made


def exits_of(made: Objective, weights: Weights, has: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Mean squared error and mean cost of the rows ``made.Z``, each of which takes one way for certain."""
    scores = weights.scores(made.Z)[:, :, 0]
    at = np.zeros(len(y), dtype=np.int64)
    for k, (low, high) in enumerate(made.shape.children):
        here = (at == k) & (low > 0)
        at[here] = np.where(scores[here, k] > weights.theta[k], high, low)
    error = np.square(scores[np.arange(len(y)), at] - y).mean()
    return float(error), float((has @ np.array(COSTS))[at].mean())


def cascade_cost() -> float:
    """The least mean cost of an exact cascade: both signs, then expert after expert, and a row ends at its own."""
    signs, experts = sum(COSTS[:2]), COSTS[2:]
    return signs + sum(sum(experts[: k + 1]) for k in range(len(experts))) / len(experts)


def exact_cost(seed: int, slope: float) -> float:
    """The mean cost of the cheapest policy without an error on test rows; infinite if no price gives one."""
    X, y = quadrants(np.random.default_rng(seed + 100), N_ROWS)
    figures = [exits_of(replace(made, Z=X), w, has, y) for w, has, made in fitted_path(seed, 8, slope)]
    return min((cost for error, cost in figures if error < EXACT), default=math.inf)


def lines() -> list[str]:
    """What the page says of the runs so far."""
    known = read("quadrants")
    if not known:
        return []
    made = [
        "## Four quadrants, the synthetic data of the paper", "",
        f"Two signs at 1 each name the quadrant, and in each of four quadrants another sensor at 10 knows the label; "
        f"{N_ROWS} training and {N_ROWS} test rows.",
        f"A fixed set without an error needs all six sensors, {sum(COSTS):g}; a cascade of nested sets needs "
        f"{cascade_cost():g} at best.", "",
        "| slope of the sigmoid | seeds | without an error on test rows | their mean cost |", "|---|---|---|---|",
    ]  # fmt: skip
    for slope, costs in known.items():
        exact = [cost for cost in costs if cost is not None]
        shown = "-" if not exact else " to ".join(f"{cost:g}" for cost in sorted({min(exact), max(exact)}))
        made.append(f"| {slope} | {len(costs)} | {len(exact)} | {shown} |")
    return [*made, ""]


SEEDS = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--slope", type=float, default=3.0, help="of the sigmoid; 1 is the paper's")


def run(args: Any) -> dict[str, Any]:
    """Run; ``python -m benchmarks render cstc`` shows it."""
    costs = [exact_cost(seed, args.slope) for seed in range(args.seeds)]
    for seed, cost in enumerate(costs):
        print(f"seed {seed}: exact at {cost:g}; the fixed set needs {sum(COSTS):g}, a cascade {cascade_cost():g}")
    known = args.known() | {f"{args.slope:g}": [cost if math.isfinite(cost) else None for cost in costs]}
    return dict(sorted(known.items()))
