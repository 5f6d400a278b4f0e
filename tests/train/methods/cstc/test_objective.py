# SPDX-License-Identifier: Apache-2.0
"""The objective of trees of classifiers: its gradient, its steps, its closed form, and what is the same as what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardcase_train.methods.cstc import descent
from hardcase_train.methods.cstc.cost_tree import sparse
from hardcase_train.methods.cstc.descent import (
    by_blocks,
    first_weights,
    follow_prices,
    leaf_solution,
    screen,
    solve_jointly,
)
from hardcase_train.methods.cstc.objective import Objective, Rule, Weights, payers_of
from hardcase_train.methods.cstc.shape import EXIT, Shape, chain, tree
from hardcase_train.policy.losses import ClassLoss, SquaredLoss

ONE_CHILD = Shape(((1, 2), (EXIT, EXIT), (3, EXIT), (EXIT, 4), (EXIT, EXIT)))
SHAPES = {"tree": tree(2), "chain": chain(3), "one child": ONE_CHILD}
COSTS = np.array([1.0, 2.0, 5.0])
NEEDS = ((0,), (0, 1), (1,), (2,), (0, 2))  # of five columns


def objective(shape: Shape, kind: str = "square", n: int = 40, **rule: Any) -> Objective:
    rng = np.random.default_rng(0)
    Z, weight = rng.normal(size=(n, 5)), rng.random(n) + 0.5
    if kind == "square":
        loss = SquaredLoss(Z @ [1.0, -1.0, 0.5, 0.0, 2.0] + 0.1 * rng.normal(size=n), weight)
    else:
        loss = ClassLoss(rng.integers(0, int(kind), n), int(kind), weight)
    return Objective(Z, loss, shape, payers_of(NEEDS, COSTS, tree_cost=0.1), Rule(**rule))


def somewhere(made: Objective, seed: int = 1) -> Weights:
    rng, zero = np.random.default_rng(seed), made.zero()
    return Weights(rng.normal(size=zero.coef.shape), rng.normal(size=zero.theta.shape))


SYSTEMS = [(False, False), (True, False), (True, True)]  # CSTC, CSCC and Cronus, as ``Rule`` has them


def by_formulas(made: Objective, at: Weights) -> tuple[float, float]:
    """The objective with relaxed costs and with exact ones, written out from docs/math.md (85) to (90)."""
    rule, children, Z = made.rule, made.shape.children, made.Z
    nodes, share = range(len(children)), made.loss.weight / made.loss.weight.sum()
    parent = {child: (k, side) for k, pair in enumerate(children) for side, child in enumerate(pair) if child != EXIT}
    scores = [Z @ at.coef[k, :-1] + at.coef[k, -1] for k in nodes]
    high = [1 / (1 + np.exp(-rule.slope * (scores[k][:, -1] - at.theta[k]))) for k in nodes]
    reach, exits = [np.ones(len(Z)) for _ in nodes], []
    for k in nodes:
        if k in parent:
            above, side = parent[k]
            reach[k] = reach[above] * (high[above] if side else 1 - high[above])
        ways = [reach[k] * way for way, child in zip((1 - high[k], high[k]), children[k], strict=True) if child == EXIT]
        exits += [(k, sum(ways))] if len(ways) == 2 else [(k, way) for way in ways]
    loss = 0.0
    for k in nodes:
        own = replace(made.loss, weight=np.ones(len(Z))).row_loss(scores[k][:, : made.loss.n_outputs])
        leaving = sum((way for node, way in exits if node == k), np.zeros(len(Z)))
        is_inner = children[k] != (EXIT, EXIT)
        counts = leaving if rule.by_exit else reach[k] * (rule.interior if is_inner else 1.0)
        loss += share @ (counts * own)
    uses, cost = made.payers.uses.toarray(), made.payers.cost
    squares = [uses @ np.square(at.coef[k, :-1]).sum(axis=1) for k in nodes]

    def norm(total: Any) -> float:
        return float(cost @ (np.sqrt(total + 1e-8) - 1e-4))

    relaxed = exact = 0.0
    for node, way in exits:
        path = [node]
        while path[-1] in parent:
            path.append(parent[path[-1]][0])
        total = sum(squares[k] for k in path)
        relaxed += share @ way * norm(total)
        exact += share @ way * float(cost @ (total > 0))
    if rule.one_bundle:
        relaxed = norm(sum((share @ reach[k]) ** 2 * squares[k] for k in nodes))
    weights = at.coef[:, :-1]
    shrink = rule.l1 * (np.sqrt(np.square(weights) + 1e-8) - 1e-4).sum() + rule.l2 / 2 * np.square(weights).sum()
    return loss + rule.price * relaxed + shrink, loss + rule.price * exact


@pytest.mark.parametrize("kind", ["square", "2", "3"])
@pytest.mark.parametrize(("by_exit", "one_bundle"), SYSTEMS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_objective_is_that_of_the_formulas(shape: Shape, by_exit: bool, one_bundle: bool, kind: str) -> None:
    made = objective(
        shape, kind, by_exit=by_exit, one_bundle=one_bundle, price=0.1, l1=0.05, l2=0.02, slope=1.7, interior=0.4
    )
    at = somewhere(made)
    at.coef[:, 1:3] = 0.0  # sensor 1 alone is bought nowhere
    assert (made(at)[0], made.exact(at)) == pytest.approx(by_formulas(made, at), abs=1e-12)


@pytest.mark.parametrize("kind", ["square", "2", "3"])
@pytest.mark.parametrize(("by_exit", "one_bundle"), SYSTEMS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_gradient_is_that_of_finite_differences(shape: Shape, by_exit: bool, one_bundle: bool, kind: str) -> None:
    made = objective(
        shape, kind, by_exit=by_exit, one_bundle=one_bundle, price=0.1, l1=0.05, l2=0.02, slope=1.7, interior=0.4
    )
    at = somewhere(made)
    flat, gradient = at.flat(), made(at)[1].flat()
    for k in range(len(flat)):
        step = np.zeros(len(flat))
        step[k] = 1e-5
        slope = (made(at.like(flat + step))[0] - made(at.like(flat - step))[0]) / 2e-5
        assert gradient[k] == pytest.approx(slope, abs=1e-6)


def test_every_row_leaves_once() -> None:
    for shape in SHAPES.values():
        made = objective(shape)
        at = somewhere(made)
        leaving = made.leaving(*made.routing(at.scores(made.Z), at.theta))
        assert leaving.sum(axis=1) == pytest.approx(np.ones(40))


@pytest.mark.parametrize("kind", ["square", "2"])
@pytest.mark.parametrize("minimise", [solve_jointly, by_blocks])
def test_no_step_raises_the_objective(minimise: Any, kind: str) -> None:
    for by_exit, shape in ((False, tree(2)), (True, chain(3))):
        made = objective(shape, kind, by_exit=by_exit, price=0.05)
        free = np.ones((len(shape), 5), dtype=bool)
        values, at = [made(somewhere(made))[0]], somewhere(made)
        for _ in range(2):
            at = minimise(made, at, free)
            values.append(made(at)[0])
        assert np.diff(values).max() <= 1e-12
        assert values[-1] < 0.9 * values[0]


@pytest.mark.parametrize("kind", ["square", "2"])
def test_nor_does_any_single_step_of_either_order(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, rises = objective(tree(2), kind, n=20, price=0.05, n_steps=1), list[float]()
    at, free = somewhere(made), np.ones((7, 5), dtype=bool)
    for _ in range(5):  # one step of L-BFGS each
        before, at = at, solve_jointly(made, at, free, rounds=1)
        rises.append(made(at)[0] - made(before)[0])

    def watched(step: Any) -> Any:
        def run(own: Objective, start: Weights, *rest: Any, **how: Any) -> Weights:
            new = step(own, start, *rest, **how)
            rises.append(own(new)[0] - own(start)[0])
            return new

        return run

    for name in ("solve_jointly", "leaf_solution"):
        monkeypatch.setattr(descent, name, watched(getattr(descent, name)))
    by_blocks(made, somewhere(made), free, sweeps=2)
    assert len(rises) >= 5 + 7
    assert max(rises) <= 1e-12


def test_a_closed_form_of_leaves_is_where_the_solver_ends() -> None:
    made = objective(tree(1), price=0.0, l2=0.01)
    free = np.ones((3, 5), dtype=bool)
    start = somewhere(made)
    exact = leaf_solution(made, start, free, 1)
    assert np.abs(made(exact)[1].coef[1]).max() < 1e-10
    solved = solve_jointly(made, start, free, [1], rounds=40)
    assert np.abs(solved.coef[1] - exact.coef[1]).max() < 1e-4
    assert made(solved)[0] - made(exact)[0] == pytest.approx(0.0, abs=1e-8)
    assert np.array_equal(exact.coef[[0, 2]], start.coef[[0, 2]])


def test_with_a_price_a_closed_form_of_leaves_lowers_the_objective() -> None:
    made = objective(tree(1), price=0.1)
    at, values = somewhere(made), list[float]()
    for _ in range(6):
        values.append(made(at)[0])
        at = leaf_solution(made, at, np.ones((3, 5), dtype=bool), 2)
    assert np.diff(values).max() <= 1e-12
    assert values[1] < values[0]


@pytest.mark.parametrize("kind", ["square", "2", "3"])
def test_one_node_is_the_single_classifier_in_all_three_systems(kind: str) -> None:
    """Equations (12), (19) and Cronus are (3) with one node."""
    at = somewhere(objective(tree(0), kind))
    systems = [(tree(0), False, False), (chain(1), True, False), (chain(1), True, True)]
    values = [objective(s, kind, by_exit=e, one_bundle=b, price=0.1)(at)[0] for s, e, b in systems]
    assert values == pytest.approx([values[0]] * 3)
    made = objective(tree(0), kind, price=0.1)
    scores, weights = at.scores(made.Z)[:, 0], at.coef[0, :-1]
    loss = made.loss.value_and_slope(np.ascontiguousarray(scores[:, : made.loss.n_outputs]))[0]
    squares = np.square(weights).sum(axis=1)
    norms = [np.sqrt(sum(q for q, needs in zip(squares, NEEDS, strict=True) if s in needs)) for s in range(3)]
    price = 0.1 * (COSTS @ norms + 0.1 * np.sqrt(squares).sum())
    assert values[0] == pytest.approx(loss / made.loss.weight.sum() + price + 5e-5 * squares.sum(), abs=1e-4)


def test_nodes_on_a_path_share_what_it_bought() -> None:
    """Section 3.3: two nodes of one path pay sqrt(2) times one weight where they share a sensor, else twice."""
    made = replace(objective(tree(1)), payers=payers_of([(0,)] * 5, np.array([1.0])), rule=Rule(price=1.0, l2=0.0))
    zero = made.zero()

    def price(*places: tuple[int, int]) -> float:
        coef = zero.coef.copy()
        for node, column in places:
            coef[node, column] = 1.0
        at = Weights(coef, zero.theta + 1e3)  # all rows go low
        return made(at)[0] - replace(made, rule=replace(made.rule, price=0.0))(at)[0]

    assert price((0, 0)) == pytest.approx(1.0, abs=1e-3)
    assert price((0, 0), (1, 1)) == pytest.approx(np.sqrt(2), abs=1e-3)
    assert price((2, 0)) == pytest.approx(0.0, abs=1e-3)


def test_zeros_never_raise_the_exact_objective_and_drop_what_is_not_worth_it() -> None:
    made = objective(tree(1), price=0.02)
    free = np.ones((3, 5), dtype=bool)
    relaxed = solve_jointly(made, first_weights(made, free), free)
    few = sparse(made, relaxed)
    assert made.exact(few) < made.exact(relaxed)
    assert (few.coef[:, :-1] != 0).sum() < (relaxed.coef[:, :-1] != 0).sum()
    dear = replace(made, rule=replace(made.rule, price=1e3))
    assert not sparse(dear, relaxed).coef[:, :-1].any()


def test_the_exact_cost_of_a_path_counts_each_sensor_once() -> None:
    made = replace(objective(tree(1), price=1.0), payers=payers_of([(0,), (0,), (1,), (1,), (2,)], COSTS))
    coef = made.zero().coef.copy()
    coef[0, 0] = coef[1, 1] = 1e-9  # sensor 0 twice on the low path
    coef[2, 4] = 1e-9  # sensor 2 on the high one
    low, high = (Weights(coef, np.array([theta, 0.0, 0.0])) for theta in (1e3, -1e3))
    no_price = replace(made, rule=replace(made.rule, price=0.0))
    assert made.exact(low) - no_price.exact(low) == pytest.approx(1.0)
    assert made.exact(high) - no_price.exact(high) == pytest.approx(6.0)


def test_a_screened_descent_ends_where_the_whole_one_does() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(600, 12))
    loss = SquaredLoss(2 * Z[:, 0] - Z[:, 3] + 0.1 * rng.normal(size=600), np.ones(600))
    made = Objective(Z, loss, tree(0), payers_of([(s,) for s in range(12)], np.ones(12)), Rule(price=0.6))
    free = np.ones((1, 12), dtype=bool)
    found = screen(made, made.zero(), free)
    assert set(np.flatnonzero(found.coef[0, :-1, 0])) == {0, 3}  # the others were never looked at
    assert made(found)[0] == pytest.approx(made(solve_jointly(made, first_weights(made, free), free))[0], abs=1e-3)
    assert not screen(replace(made, rule=Rule(price=99.0)), made.zero(), free).coef[:, :-1].any()


def test_many_columns_are_screened_while_prices_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    made = objective(tree(1), n=60, l2=0.01)
    free = np.ones((3, 5), dtype=bool)
    assert [m.rule.price for m, _ in follow_prices(made, free, [0.1, 0.4])] == [0.1, 0.4]
    monkeypatch.setattr(descent, "WIDE", 4)
    path = list(follow_prices(made, free, [0.1, 0.4]))
    assert [m.rule.price for m, _ in path] == [0.4, 0.1]
    assert (path[0][1].coef[:, :-1] != 0).sum() <= (path[1][1].coef[:, :-1] != 0).sum()
