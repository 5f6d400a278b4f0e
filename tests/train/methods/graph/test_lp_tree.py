# SPDX-License-Identifier: Apache-2.0
"""The linear-programming tree: its bound, its optimum and its program against everything that can be counted."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Acquire, Answer, Branch
from hardcase_edge.verifier.verify import verify
from hardcase_export.integers.quantise import quantise
from hardcase_train.data.problem import Problem
from hardcase_train.methods.graph import lp_tree
from hardcase_train.methods.graph.lp_surrogate import FullTree, full_tree, solve
from hardcase_train.methods.graph.lp_tree import LpTree
from hardcase_train.methods.graph.state_rows import DagRows
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.config import PolicyLimits
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.successors.reduce import all_subsets
from tests.helpers.train.estimators import table
from tests.helpers.train.problems import BRIEF, make_problem

many = settings(max_examples=40)


def bound(tree: FullTree, losses: np.ndarray, lefts: np.ndarray, rights: np.ndarray) -> np.ndarray:
    """Docs (47) and (49), row by row, with any stand-ins for "goes left" and "goes right", (n, n_decisions)."""
    saved = losses.max(axis=1, keepdims=True) - losses

    def leaves(child: int) -> np.ndarray:
        if child < 0:
            return saved[:, -1 - child]
        return leaves(tree.decisions[child].left) + leaves(tree.decisions[child].right)

    def lost(child: int) -> np.ndarray:
        if child < 0:
            return np.zeros(len(losses))
        d = tree.decisions[child]
        left = lefts[:, child] * leaves(d.right) + lost(d.left)
        return np.maximum(left, rights[:, child] * leaves(d.left) + lost(d.right))

    return losses.max(axis=1) - leaves(tree.first[0]) + lost(tree.first[0])


def hinges(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.maximum(1 - scores, 0), np.maximum(1 + scores, 0)


def reached(tree: FullTree, losses: np.ndarray, scores: np.ndarray) -> np.ndarray:
    return losses[np.arange(len(losses)), tree.ends(scores)]


# ---------------------------------------------------------------- the tree


@pytest.mark.parametrize(("n", "n_decisions"), [(0, 0), (1, 1), (2, 4), (3, 12), (4, 32)])
def test_a_tree_has_every_set_and_every_order_of_buying_it(n: int, n_decisions: int) -> None:
    tree = full_tree(n)
    assert len(tree.states) == 2**n
    assert len(tree.decisions) == n_decisions
    assert all(child < 0 or child > k for k, d in enumerate(tree.decisions) for child in (d.left, d.right))
    orders: dict[int, int] = {}

    def walk(child: int) -> None:
        if child < 0:
            orders[-1 - child] = orders.get(-1 - child, 0) + 1
        else:
            walk(tree.decisions[child].left)
            walk(tree.decisions[child].right)

    walk(tree.first[0])
    for s, state in enumerate(tree.states):
        assert orders[s] == int(np.prod(range(1, len(state) + 1)))  # as many ways as there are orders


def test_more_than_four_sensors_are_refused_in_one_line() -> None:
    said = "lp-tree supports at most 4 sensors, not 5; group sensors, or use the method dag"
    with pytest.raises(InputError, match=said):
        full_tree(5)
    with pytest.raises(ValueError, match=said):
        LpTree().fit(*table())


# ---------------------------------------------------------------- the bound


@pytest.mark.parametrize("n_sensors", [1, 2])
def test_with_indicators_the_bound_is_the_loss_itself(n_sensors: int) -> None:
    """Every way that decisions can go: docs/math.md (47) is an identity."""
    tree = full_tree(n_sensors)
    losses = np.random.default_rng(0).random((1, len(tree.states)))
    for signs in product((-1.0, 1.0), repeat=len(tree.decisions)):
        scores = np.array([signs])
        found = bound(tree, losses, (scores <= 0) * 1.0, (scores > 0) * 1.0)
        assert found == pytest.approx(reached(tree, losses, scores))


@given(st.integers(2, 4), st.integers(0, 1000))
@many
def test_with_hinges_it_is_never_less(n_sensors: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = full_tree(n_sensors)
    losses, scores = rng.random((20, len(tree.states))), rng.normal(size=(20, len(tree.decisions))) * 2
    found = reached(tree, losses, scores)
    assert bound(tree, losses, (scores <= 0) * 1.0, (scores > 0) * 1.0) == pytest.approx(found)
    assert (bound(tree, losses, *hinges(scores)) >= found - 1e-12).all()


@given(st.integers(1, 3), st.integers(0, 1000))
@settings(max_examples=15)
def test_the_program_finds_the_least_bound_and_says_it(n_sensors: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = full_tree(n_sensors)
    n = 12
    terms = [rng.normal(size=(n, len(s))) for s in tree.states]
    losses, weight = rng.random((n, len(tree.states))), rng.random(n) + 0.1
    l1 = 0.01
    solved = solve(tree, terms, losses, weight, l1)
    scores = solved.scores(tree, terms)

    def value(scores: np.ndarray) -> float:
        return float(np.average(bound(tree, losses, *hinges(scores)), weights=weight))

    assert solved.bound == pytest.approx(value(scores), abs=1e-6)
    assert solved.bound >= np.average(reached(tree, losses, scores), weights=weight) - 1e-9
    best = solved.bound + l1 * sum(np.abs(w).sum() for w in solved.weights)
    for _ in range(20):
        shift = rng.normal() * 0.3
        weights = [w + shift * rng.normal(size=w.shape) for w in solved.weights]
        bias = solved.bias + shift * rng.normal(size=solved.bias.shape)
        moved = np.column_stack([terms[d.state] @ w for d, w in zip(tree.decisions, weights, strict=True)]) + bias
        assert best <= value(moved) + l1 * sum(np.abs(w).sum() for w in weights) + 1e-7


# ---------------------------------------------------------------- against every policy


def every_policy(tree: FullTree, cells: list[np.ndarray], losses: np.ndarray) -> float:
    """The least mean loss of all policies that know a state's cell, (n,), in each state."""
    keys = [(k, c) for k, d in enumerate(tree.decisions) for c in np.unique(cells[d.state])]
    best = np.inf
    for signs in product((-1.0, 1.0), repeat=len(keys)):
        sign = dict(zip(keys, signs, strict=True))
        scores = np.array([[sign[k, c] for c in cells[d.state]] for k, d in enumerate(tree.decisions)]).T
        best = min(best, float(reached(tree, losses, scores).mean()))
    return best


def one_hot(cells: np.ndarray) -> np.ndarray:
    return (cells[:, None] == np.unique(cells)).astype(float)


@given(st.integers(0, 10_000))
@many
def test_with_one_sensor_it_is_the_best_of_all_policies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = full_tree(1)
    cells = [np.zeros(16, dtype=int), rng.integers(0, 3, 16)]
    losses = rng.random((16, 2))
    solved = solve(tree, [one_hot(c) for c in cells], losses, np.ones(16), 0.0)
    scores = solved.scores(tree, [one_hot(c) for c in cells])
    assert reached(tree, losses, scores).mean() == pytest.approx(every_policy(tree, cells, losses))


def test_with_two_it_finds_the_policy_that_asks_the_second_where_the_first_says_so() -> None:
    first = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    second = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    losses = np.column_stack([np.full(8, 0.5), 0.1 + 0.8 * (first == 0), np.full(8, 0.6), np.full(8, 0.3)])
    tree = full_tree(2)
    cells = [np.zeros(8, dtype=int), first, second, 2 * first + second]
    terms = [one_hot(c) for c in cells]
    solved = solve(tree, terms, losses, np.ones(8), 1e-6)
    ends = tree.ends(solved.scores(tree, terms))
    assert [tree.states[s] for s in ends] == [(0, 1)] * 3 + [(0,)] * 5
    assert losses[np.arange(8), ends].mean() == pytest.approx(every_policy(tree, cells, losses))


# ---------------------------------------------------------------- the method


@pytest.fixture
def small() -> Problem:
    return make_problem(3, n=120, effort=replace(BRIEF, n_lp_prices=2, lp_rows=60))


def test_the_program_buys_and_answers_as_the_solved_decisions_say(
    small: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []

    def spy(*args):
        kept.append(solve(*args))
        return kept[-1]

    monkeypatch.setattr(lp_tree, "solve", spy)
    monkeypatch.setattr(lp_tree, "LEAST_PRICE", 0.1)
    judge = Judge(replace(small, effort=replace(small.effort, n_lp_prices=1)))
    (point,) = LpTree.run(SubsetSearch(judge, 1), {"classifier": "polynomial", "degree": 2})
    tree, rows = full_tree(3), small.valid
    made = lp_tree._Tree(tree, lp_tree.DagRows(judge, lp_tree.all_subsets(3), 2), "polynomial")
    whole = ~np.isnan(rows.X[:, [f for f, one in enumerate(small.features) if not one.nullable]]).any(axis=1)
    terms = [made.rows.valid_values[mine[1:]].T for mine in made.mine]
    ends = tree.ends(kept[0].scores(tree, terms))
    assert point.program is not None
    outcome, bought = Batch(point.program, rows.X).walk(rows.hpc_label)
    assert len(set(ends[whole])) > 1
    for i in np.flatnonzero(whole):
        assert tuple(np.flatnonzero(bought[:, i])) == tree.states[ends[i]]
        scores = made.bank[ends[i]].scores[len(small.train.y) + i]
        assert outcome.label[i] == scores.argmax()


def test_points_never_forward_and_pass_the_verifier(small: Problem) -> None:
    for kind in ("polynomial", "trees"):
        for point in LpTree.run(SubsetSearch(Judge(small), 1), {"classifier": kind, "degree": 1}):
            assert point.valid.forward_rate == 0
            assert {type(n) for n in point.program.nodes} <= {Acquire, Branch, Answer}
            verify(quantise(point.program).program)


def test_at_a_high_price_nothing_is_bought_and_without_one_nearly_all_is(
    small: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lp_tree, "LEAST_PRICE", 2e-4)
    monkeypatch.setattr(lp_tree, "MOST_PRICE", 45.0)
    low, high = LpTree.run(SubsetSearch(Judge(small), 1), {"classifier": "polynomial", "degree": 1})
    assert low.valid.cost == 0
    assert [type(n) for n in low.program.nodes] == [Answer]
    assert high.valid.quality > low.valid.quality + 0.2


def test_the_grid_refuses_what_it_cannot_order(small: Problem) -> None:
    assert LpTree.grid(SubsetSearch(Judge(small), 1)) == [{"classifier": "polynomial", "degree": 1}]
    with pytest.raises(ValueError, match="classifier of LpTree is 'wood'"):
        LpTree(classifier="wood").fit(table()[0][:, :3], table()[1])


def test_to_stop_where_the_budget_does_not_allow_it_loses_ten_times_the_largest_loss() -> None:
    problem = make_problem(2, n=60, effort=BRIEF)
    limited = replace(problem, limits=PolicyLimits(budget=21))
    tree = full_tree(3)
    free, held = (
        lp_tree._Tree(tree, DagRows(Judge(p, is_alone=True), all_subsets(3), 1), "polynomial").errors
        for p in (problem, limited)
    )
    more = np.array([0.0 if limited.is_affordable(state) else 10 * free.max() for state in tree.states])
    assert set(more) == {0.0, 10 * free.max()}
    assert held - free == pytest.approx(np.broadcast_to(more, free.shape))
