# SPDX-License-Identifier: Apache-2.0
"""BudgetPrune: its solver and its integer program against others, and by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from hardcase_train.methods.prune import budget_prune
from hardcase_train.methods.prune.budget_prune import UNIT, BudgetPrune, splits_on_paths
from hardcase_train.methods.prune.max_closure import Closure, Needs
from hardcase_train.trees.binning import MISSING_BIN
from hardcase_train.trees.forest import ForestTree
from tests.helpers.train.forests import COSTS, PRICES, bought, fitted, path_of, pruner

# ---------------------------------------------------------------- the closure


@st.composite
def small_needs(draw):
    n, n_readings = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    parent = [draw(st.integers(-1, h - 1)) for h in range(n)]
    wanted = [sorted(draw(st.sets(st.integers(0, n_readings - 1)))) for _ in range(n)]
    start = np.concatenate([[0], np.cumsum([len(w) for w in wanted])])
    reading = np.array([r for w in wanted for r in w], dtype=np.int64)
    gains = np.array(draw(st.lists(st.integers(-9, 20), min_size=n, max_size=n)))
    steps = draw(
        st.lists(st.lists(st.integers(0, 9), min_size=n_readings, max_size=n_readings), min_size=1, max_size=4)
    )
    return Needs(np.array(parent), start, reading, n_readings), gains, np.cumsum(steps, axis=0)


@settings(max_examples=80)
@given(small_needs())
def test_what_is_kept_is_the_smallest_of_the_best_sets_while_prices_rise(case):
    needs, gains, series = case
    closure = Closure(needs, gains)
    for prices in series:
        kept = closure.raise_prices(prices)
        values = {}
        for chosen in product([False, True], repeat=len(gains)):
            if all(not c or q < 0 or chosen[q] for c, q in zip(chosen, needs.parent, strict=True)):
                read = {
                    r for h, c in enumerate(chosen) if c for r in needs.reading[needs.start[h] : needs.start[h + 1]]
                }
                values[chosen] = gains[list(chosen)].sum() - prices[list(read)].sum()
        best = max(values.values())
        assert closure.unspent.sum() == best
        assert kept.tolist() == np.all([c for c, v in values.items() if v == best], axis=0).tolist()


@pytest.mark.parametrize("price", PRICES)
def test_each_tree_alone_at_its_shares_of_the_prices_proves_the_optimum(price):
    """The dual (22): no tree could do better at what it pays, and no reading is paid more than its price."""
    p, _, codes, trees = fitted()
    forest = pruner(p, codes, trees)
    forest.prune(price)
    needs, spent = forest.needs, forest.closure.spent
    paid = np.bincount(needs.reading, weights=spent, minlength=needs.n_readings)
    assert (spent >= 0).all()
    assert (paid <= forest.prices(price)).all()
    best = forest.gains.astype(object)  # bottom-up: a split, if it is kept, with the best below it
    for h in range(len(best) - 1, -1, -1):
        best[h] -= int(spent[needs.start[h] : needs.start[h + 1]].sum())
        if needs.parent[h] >= 0:
            best[needs.parent[h]] += max(best[h], 0)
    assert sum(max(b, 0) for b, q in zip(best, needs.parent, strict=True) if q < 0) == forest.closure.unspent.sum()


# ---------------------------------------------------------------- the integer programme


def programme(p, codes, trees, price):
    """(20) of docs/math.md literally: its costs, and its equations and inequalities as (rows, right hand sides)."""
    n, c = codes.shape[1], []
    z = {}
    for t, tree in enumerate(trees):
        for h, guess in enumerate(tree.shares.argmax(axis=1)):
            z[t, h] = len(c)
            here = [i for i in range(n) if h in path_of(tree, codes[:, i])]
            c.append(float((p.train.y[here] != guess).sum()) / (n * len(trees)))
    w = {(k, i): len(c) + k * n + i for k in range(len(COSTS)) for i in range(n)}
    c += [price * cost / n for cost in COSTS for _ in range(n)]
    equal, below = set(), []
    for i in range(n):
        for t, tree in enumerate(trees):
            path = path_of(tree, codes[:, i])
            sensors = [p.sensor_of[tree.feature[h]] for h in path[:-1]]
            # w_ki >= w_ki^(t) = 1 - sum of z down to the first split that reads k
            below += [[w[k, i], *(z[t, h] for h in path[: sensors.index(k) + 1])] for k in set(sensors)]
    for t, tree in enumerate(trees):
        ends = [[0]]
        for path in ends:
            if tree.feature[path[-1]] < 0:
                equal.add(tuple(z[t, h] for h in path))
            else:
                ends += [[*path, int(child)] for child in tree.children[path[-1]]]
    return np.array(c), sorted(equal), below, z


def matrix(rows, width):
    return csr_array(
        (np.ones(sum(map(len, rows))), np.concatenate(rows), np.cumsum([0, *map(len, rows)])), shape=(len(rows), width)
    )


@pytest.mark.parametrize("price", PRICES)
def test_the_pruned_forest_solves_the_integer_programme_and_its_relaxation_is_exact(price):
    p, _, codes, trees = fitted(n=60)
    c, equal, below, z = programme(p, codes, trees, price)
    A, B = matrix(equal, len(c)), matrix(below, len(c))
    ones = np.ones(len(equal))
    relaxed = linprog(c, A_ub=-B, b_ub=-np.ones(len(below)), A_eq=A, b_eq=ones, bounds=(0, 1), method="highs-ds")
    whole = milp(c, integrality=1, bounds=(0, 1), constraints=[LinearConstraint(A, 1, 1), LinearConstraint(B, 1)])
    assert relaxed.status == whole.status == 0
    assert np.abs(relaxed.x - relaxed.x.round()).max() < 1e-9
    keep = pruner(p, codes, trees).prune(price)
    leaves = 0.0
    for t, (tree, kept) in enumerate(zip(trees, keep, strict=True)):
        todo = [0]
        for h in todo:
            leaves += 0 if kept[h] else c[z[t, h]]
            todo += tree.children[h].tolist() if kept[h] else []
    mine = leaves + price * float((bought(p, trees, keep, codes) @ COSTS).mean())
    assert mine == pytest.approx(relaxed.fun, rel=1e-9)
    assert mine == pytest.approx(whole.fun, rel=1e-9)


# ---------------------------------------------------------------- pruning


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_higher_price_only_takes_splits_away_and_never_costs_more(n_classes):
    p, _, codes, trees = fitted(n_classes)
    forest = pruner(p, codes, trees)
    before = [tree.is_split for tree in trees]
    costs, splits = [bought(p, trees, before, codes) @ COSTS], []
    for price in PRICES:
        keep = forest.prune(price)
        assert all((kept <= was).all() for kept, was in zip(keep, before, strict=True))
        costs.append(bought(p, trees, keep, codes) @ COSTS)
        assert (costs[-1] <= costs[-2]).all()
        splits.append(sum(kept.sum() for kept in keep))
        before = keep
    assert splits[0] > splits[-1]
    assert costs[-1].mean() < costs[0].mean() / 4


def test_at_no_price_every_tree_errs_as_little_as_any_pruning_of_it():
    p, _, codes, trees = fitted()
    for tree, kept in zip(trees, pruner(p, codes, trees).prune(0.0), strict=True):
        errors = np.zeros(len(kept))
        for i, row in enumerate(codes.T):
            path = path_of(tree, row)
            errors[path] += tree.shares[path].argmax(axis=1) != p.train.y[i]
        best, mine = errors.copy(), errors.copy()
        for h in range(len(kept) - 1, -1, -1):
            if tree.is_split[h]:
                best[h] = min(best[h], best[tree.children[h]].sum())
                mine[h] = mine[tree.children[h]].sum() if kept[h] else mine[h]
        assert mine[0] == best[0]


def test_a_price_beyond_all_errors_leaves_roots_alone_but_keeps_what_is_free():
    p, _, codes, trees = fitted()
    assert not any(kept.any() for kept in pruner(p, codes, trees).prune(1e30))
    free = int(p.sensor_of[trees[0].feature[0]])
    forest = BudgetPrune(trees, codes, p.train.y, np.ones(150), p.sensor_of, COSTS * (np.arange(6) != free))
    assert np.flatnonzero(bought(p, trees, forest.prune(1e30), codes).any(axis=0)).tolist() == [free]


def test_a_weight_of_two_counts_as_the_row_twice():
    p, _, codes, trees = fitted()
    weights = 1.0 + (np.arange(150) % 3 == 0)
    twice = np.repeat(np.arange(150), weights.astype(int))
    other = BudgetPrune(trees, codes[:, twice], p.train.y[twice], np.ones(len(twice)), p.sensor_of, COSTS)
    forest = pruner(p, codes, trees, weights)
    assert forest.gains / UNIT == pytest.approx(other.gains / UNIT, abs=1e-12)
    for price in PRICES[1:]:
        for one, two in zip(forest.prune(price), other.prune(price), strict=True):
            assert one.tolist() == two.tolist()


def test_some_rows_stand_for_the_cost_of_all_and_all_for_the_errors(monkeypatch):
    p, _, codes, trees = fitted()
    every = pruner(p, codes, trees)
    monkeypatch.setattr(budget_prune, "PRICED_ROWS", 50)
    some = pruner(p, codes, trees)
    assert some.gains.tolist() == every.gains.tolist()
    rows = np.random.default_rng(0).permutation(150)[:50]
    costs = bought(p, trees, [t.is_split for t in trees], codes) @ COSTS
    assert some.prices(0.01).sum() / UNIT == pytest.approx(0.01 * costs[rows].mean())
    assert every.prices(0.01).sum() / UNIT == pytest.approx(0.01 * costs.mean())
    assert costs[rows].mean() != costs.mean()


def test_a_row_needs_a_sensor_where_its_path_first_reads_it():
    p, _, codes, trees = fitted()
    assert (codes == MISSING_BIN).any()
    for tree in trees:
        node, row = splits_on_paths(tree, codes, p.sensor_of)
        found = {}
        for h, i in zip(node.tolist(), row.tolist(), strict=True):
            found.setdefault(i, []).append(h)
        for i in range(codes.shape[1]):
            first = {}
            for h in path_of(tree, codes[:, i])[:-1]:
                first.setdefault(int(p.sensor_of[tree.feature[h]]), h)
            assert found.get(i, []) == list(first.values())


@pytest.mark.parametrize(("price", "is_kept"), [(0.0, True), (0.08, True), (0.09, False), (0.12, False)])
def test_a_heavy_row_pays_by_its_weight(price, is_kept):
    """(20) by hand: four rows, of which the last has the weight 5, so that W = 8.

    The root reads a sensor that costs nothing. The split below it reads one that costs 2, for the last two rows, and
    mends the third: it saves 1/8, and costs 2 (1 + 5) / 8, so it is worth at most the price 1/12.
    """
    leaf = -1
    tree = ForestTree(
        feature=np.array([0, leaf, 1, leaf, leaf], np.int32), bins=np.zeros(5, np.int32), missing_left=np.ones(5, bool),
        children=np.array([[1, 2], [-1, -1], [3, 4], [-1, -1], [-1, -1]], np.int32), shares=np.eye(2)[[0, 0, 1, 0, 1]],
    )  # fmt: skip
    codes = np.array([[0, MISSING_BIN, 1, 1], [0, 0, 0, 1]], np.uint8)  # what is missing goes left
    y, weights = np.array([0, 0, 0, 1]), np.array([1.0, 1.0, 1.0, 5.0])
    forest = BudgetPrune([tree], codes, y, weights, np.array([0, 1]), np.array([0.0, 2.0]))
    (kept,) = forest.prune(price)
    assert kept.tolist() == [True, False, is_kept, False, False]
