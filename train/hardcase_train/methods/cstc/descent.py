# SPDX-License-Identifier: Apache-2.0
"""Minimises the objective: node by node as algorithm 1 does, or all nodes together; never a step up.

Xu et al. (2014), 3.4. L-BFGS runs in coordinates that are scaled by the quadratic of Lemma 1, so that weights near
zero, whose penalty is steep, and large ones take steps of their own size. A leaf with squared loss is solved in closed
form (16). Nodes start from the top, each as if it were a leaf (3.4.2). docs/math.md (91) and (92).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.linalg import solve
from scipy.optimize import minimize

from ...policy.losses import SquaredLoss
from .objective import SMOOTH, Objective, Weights

ROUNDS = 6  # of rescaling
MEMORY = 20  # steps that L-BFGS remembers
SETTLED = 1e-4  # relative gain of a round at which the descent ends
BEND = {True: 2.0, False: 0.25}  # curvature of a row's loss by a score: squared, or logistic at most
LEAST = 1e-3  # share of the rows that a node's scale takes for granted
ALTERNATIONS = 5  # between auxiliaries and weights, of a leaf in closed form
CERTAIN = 1e9  # slope of a sigmoid that is a step
LEAST_PRICE = 1e-3  # of the largest at which a sensor is worth buying
WIDE = 1500  # columns, above which a descent looks only at those that may be worth their price
SCREENS = 3  # times that it looks for more of them
MOST_NEW = 200  # of them, at each look
CELLS = 1 << 24  # of columns that are squared at once

Descent = Callable[[Objective, Weights, np.ndarray], Weights]


def solve_jointly(
    objective: Objective, start: Weights, free: np.ndarray, nodes: Sequence[int] | None = None, rounds: int = ROUNDS
) -> Weights:
    """L-BFGS over the free weights, biases and thresholds of these nodes (None: all).

    Parameters
    ----------
    free : (n_nodes, n_columns) bool, the weights that may differ from zero
    """
    index = _variables(objective, free, range(len(objective.shape)) if nodes is None else nodes)
    flat = start.flat()
    value, _ = objective(start)
    for _ in range(rounds):
        scale = _scale(objective, start.like(flat))[index]

        def at(u: np.ndarray, base: np.ndarray = flat, scale: np.ndarray = scale) -> tuple[float, np.ndarray]:
            point = base.copy()
            point[index] = u * scale
            value, gradient = objective(start.like(point))
            return value, gradient.flat()[index] * scale

        options = {"maxiter": objective.rule.n_steps, "maxcor": MEMORY}
        solution = minimize(at, flat[index] / scale, jac=True, method="L-BFGS-B", options=options)
        if not solution.fun < value:
            break
        flat = flat.copy()
        flat[index] = solution.x * scale
        gain, value = value - solution.fun, solution.fun
        if gain <= SETTLED * abs(value):
            break
    return start.like(flat)


def by_blocks(objective: Objective, start: Weights, free: np.ndarray, sweeps: int = 3) -> Weights:
    """Algorithm 1: one node at a time, in level order, all others fixed; leaves of squared loss by (16)."""
    weights, is_square = start, isinstance(objective.loss, SquaredLoss)
    value, _ = objective(weights)
    for _ in range(sweeps):
        before = value
        for k in range(len(objective.shape)):
            if is_square and objective.shape.is_leaf(k):
                for _ in range(ALTERNATIONS):
                    weights = leaf_solution(objective, weights, free, k)
            else:
                weights = solve_jointly(objective, weights, free, [k], rounds=1)
        value, _ = objective(weights)
        if before - value <= SETTLED * abs(value):
            break
    return weights


def leaf_solution(objective: Objective, weights: Weights, free: np.ndarray, k: int) -> Weights:
    """Equation (16): the leaf's weights for fixed auxiliaries, which are those of its weights as they are."""
    assert isinstance(objective.loss, SquaredLoss)
    high, reach = objective.routing(weights.scores(objective.Z), weights.theta)
    quadratic = objective.curvature(weights.coef[:, :-1], high, reach)[k, free[k], 0]
    rows = np.column_stack([objective.Z[:, free[k]], np.ones(len(objective.Z))]).astype(np.float64)
    counts = objective.share * reach[:, k]
    left = 2 * rows.T @ (counts[:, None] * rows) + np.diag(np.append(quadratic, 0.0))
    coef = weights.coef.copy()
    solution = solve(left, 2 * rows.T @ (counts * objective.loss.y), assume_a="sym")
    coef[k, np.append(free[k], True), 0] = solution
    return Weights(coef, weights.theta)


def settle(objective: Objective, weights: Weights, free: np.ndarray) -> Weights:
    """Leaves of squared loss, solved for the rows that reach them when each row takes one side for certain."""
    hard = replace(objective, rule=replace(objective.rule, slope=CERTAIN))
    reach = hard.routing(weights.scores(hard.Z), weights.theta)[1]
    for k in range(len(hard.shape)):
        if isinstance(hard.loss, SquaredLoss) and hard.shape.is_leaf(k) and (hard.share @ reach)[k] > 0:
            weights = leaf_solution(hard, weights, free, k)
    return weights


def first_weights(objective: Objective, free: np.ndarray) -> Weights:
    """From the root down, each node as if it were a leaf (3.4.2); half of its rows take each side."""
    weights = objective.zero()
    for k in range(len(objective.shape)):
        weights = start_node(objective, weights, free, k, objective.shape.is_leaf(k))
    return weights


def start_node(objective: Objective, weights: Weights, free: np.ndarray, k: int, is_leaf: bool) -> Weights:
    """The weights with those of node k, fitted as if it were a leaf; unless it is one, half of its rows take each side.

    The nodes on its way are as they are.
    """
    nodes, way = objective.shape.way(k)
    coef, theta, last = weights.coef.copy(), weights.theta.copy(), len(nodes) - 1
    own = replace(objective, shape=way)
    fitted = solve_jointly(own, Weights(coef[nodes], theta[nodes]), free[nodes], [last], rounds=1)
    coef[k] = fitted.coef[last]
    if not is_leaf:
        reach = own.routing(fitted.scores(objective.Z), fitted.theta)[1][:, last]
        coef[k], theta[k] = halve_rows(objective, coef[k], objective.share * reach)
    return Weights(coef, theta)


DESCENTS: dict[str, Descent] = {"together": solve_jointly, "nodes": by_blocks}


def follow_prices(
    objective: Objective, free: np.ndarray, prices: Sequence[float], descend: Descent = solve_jointly
) -> Iterator[tuple[Objective, Weights]]:
    """The objective at each price and its weights, each started from those before.

    Prices rise, and weights that are next to 0 stay there; with more columns than ``WIDE`` they fall, and ``screen``
    adds columns.
    """
    is_wide = objective.Z.shape[1] > WIDE
    weights = objective.zero() if is_wide else first_weights(objective, free)
    for price in sorted(prices, reverse=is_wide):
        priced = replace(objective, rule=replace(objective.rule, price=price))
        weights = screen(priced, weights, free, descend) if is_wide else descend(priced, weights, free)
        yield priced, weights


def screen(objective: Objective, start: Weights, free: np.ndarray, descend: Descent = solve_jointly) -> Weights:
    """``descend`` on the columns in use and those that would not stay 0; without any in use, from ``first_weights``."""
    weights, live = start, np.asarray(start.coef[:, :-1].any(axis=(0, 2)))
    for _ in range(SCREENS):
        more = _tempted(objective, weights, free, live)
        if not len(more):
            break
        was_empty = not live.any()
        live[more] = True
        small = replace(objective, Z=objective.Z[:, live], payers=objective.payers.only(live))
        own = np.append(live, True)
        at = first_weights(small, free[:, live]) if was_empty else Weights(weights.coef[:, own], weights.theta)
        small_weights = descend(small, at, free[:, live])
        coef = objective.zero().coef
        coef[:, own] = small_weights.coef
        weights = Weights(coef, small_weights.theta)
    return weights


def _tempted(objective: Objective, weights: Weights, free: np.ndarray, live: np.ndarray) -> np.ndarray:
    """Numbers of columns that are 0 and lower the objective if they are not, at some node; the most tempted ones."""
    high, reach = objective.routing(weights.scores(objective.Z), weights.theta)
    slope = np.sqrt(np.square(objective(weights)[1].coef[:, :-1]).sum(axis=2))
    bound = objective.curvature(weights.coef[:, :-1], high, reach)[:, :, 0] * np.sqrt(SMOOTH)
    ratio = np.where(free & ~live, slope / np.maximum(bound, 1e-300), 0.0).max(axis=0)
    order = np.argsort(-ratio, kind="stable")[:MOST_NEW]
    return np.asarray(order[ratio[order] > 1.0])


def prices_of(objective: Objective, n: int) -> list[float]:
    """Rising prices, up to just below the one at which the root buys nothing."""
    _, gradient = replace(objective, rule=replace(objective.rule, price=0.0))(objective.zero())
    paid = objective.payers.cost > 0
    norms = np.sqrt(objective.squares(gradient.coef[:, :-1])[0, paid])
    top = float((norms / objective.payers.cost[paid]).max(initial=0.0))
    return (top * np.geomspace(LEAST_PRICE, 0.7, n)).tolist() if top > 0 else [0.0]


def halve_rows(objective: Objective, coef: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, float]:
    """A node's weights and threshold so that half of the rows take each side.

    A gate starts as the direction in which the scores that answer differ most.
    """
    coef, own = coef.copy(), objective.loss.n_outputs
    answers = objective.Z @ coef[:-1, :own] + coef[-1, :own]
    if objective.n_outputs == own:
        return coef, weighted_median(answers[:, -1], counts)
    away = answers - np.average(answers, axis=0, weights=np.maximum(counts, 1e-12))
    _, directions = np.linalg.eigh((away * counts[:, None]).T @ away)
    turn = directions[:, -1] * np.sign(directions[np.abs(directions[:, -1]).argmax(), -1])
    coef[:, -1] = coef[:, :own] @ turn
    coef[-1, -1] -= weighted_median(answers @ turn, counts)
    return coef, 0.0


def weighted_median(values: np.ndarray, counts: np.ndarray) -> float:
    """The value (n,) below which half of the counts (n,) lie."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(counts[order])
    return float(values[order[np.searchsorted(sums, sums[-1] / 2)]])


def _variables(objective: Objective, free: np.ndarray, nodes: Sequence[int]) -> np.ndarray:
    """Numbers of the variables within ``Weights.flat``; a gate has a bias, and needs no threshold."""
    n_nodes, n_outputs = len(objective.shape), objective.n_outputs
    is_on = np.zeros(n_nodes, dtype=bool)
    is_on[list(nodes)] = True
    coef = np.repeat((np.column_stack([free, np.ones(n_nodes, bool)]) & is_on[:, None])[:, :, None], n_outputs, axis=2)
    routes = [n_outputs == 1 and not objective.shape.is_leaf(k) for k in range(n_nodes)]
    return np.flatnonzero(np.concatenate([coef.ravel(), is_on & routes]))


def _mean_squares(objective: Objective) -> np.ndarray:
    """(n_columns,) weighted means of the squares of columns."""
    n_rows = max(1, CELLS // max(objective.Z.shape[1], 1))
    sums, share = np.zeros(objective.Z.shape[1]), objective.share
    for first in range(0, len(objective.Z), n_rows):
        rows = slice(first, first + n_rows)
        sums += share[rows] @ np.square(objective.Z[rows], dtype=np.float64)
    return sums


def _scale(objective: Objective, weights: Weights) -> np.ndarray:
    """A step's natural size for each variable: one over the root of its curvature, the rows' and the penalty's."""
    high, reach = objective.routing(weights.scores(objective.Z), weights.theta)
    count = np.maximum(objective.share @ reach, LEAST) * BEND[isinstance(objective.loss, SquaredLoss)]
    spread = np.append(_mean_squares(objective), 1.0)
    bend = count[:, None, None] * spread[None, :, None] + np.zeros(weights.coef.shape)
    bend[:, :-1] += objective.curvature(weights.coef[:, :-1], high, reach)
    return np.asarray(1 / np.sqrt(np.concatenate([bend.ravel(), count]) + 1e-12))
