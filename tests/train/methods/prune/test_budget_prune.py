# SPDX-License-Identifier: Apache-2.0
"""BudgetPrune: its solver against others, forests against scikit-learn's, programs against the forests they walk."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, linprog, milp
from scipy.sparse import csr_array
from sklearn.ensemble import RandomForestClassifier

from hardcase_edge.batch.quality import figures_of
from hardcase_edge.program.decode import decode
from hardcase_edge.program.definition import MICRO, Acquire, Answer, Forward, Sensor, Slice
from hardcase_edge.program.encode import encode
from hardcase_edge.verifier.verify import MAX_NODES, verify
from hardcase_export.integers.align import align
from hardcase_export.integers.decide import decisions
from hardcase_export.integers.quantise import quantise
from hardcase_train.data.effort import NORMAL
from hardcase_train.data.problem import N_FOLDS
from hardcase_train.methods.prune import budget_prune
from hardcase_train.methods.prune.budget_prune import UNIT, BudgetPrune, splits_on_paths
from hardcase_train.methods.prune.lazy_program import lazy_program
from hardcase_train.methods.prune.max_closure import Closure, Needs
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.compile import compile_program
from hardcase_train.policy.selection import Judge
from hardcase_train.sweep.train import learn, points_of
from hardcase_train.trees import forest as forest_module
from hardcase_train.trees.binning import MISSING_BIN, Bins, make_bins
from hardcase_train.trees.boosting import Ensemble, ensemble_scores
from hardcase_train.trees.forest import ForestSettings, fit_forest, forest_ensemble
from tests.helpers.train.problems import make_problem

COSTS = np.array([1.0, 2.0, 3.0, 5.0, 8.0, 13.0])
PRICES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.03, 0.1)


@cache
def fitted(n_classes=3, n=150, n_trees=3):
    """A problem with a sensor for each feature, its bins and codes, and a forest.

    One label in five is drawn anew, so that splits are many.
    """
    p = make_problem(n_classes, n=n, seed=n_classes)
    p = replace(p, sensors=tuple(Sensor((f,), (int(cost) * MICRO,)) for f, cost in enumerate(COSTS)))
    rng = np.random.default_rng(n)
    p.train.y[:] = np.where(rng.random(n) < 0.2, rng.integers(0, n_classes, n), p.train.y)
    bins = make_bins(p.train.X, p.dtypes)
    codes = bins.transform(p.train.X)
    settings = ForestSettings(n_trees, max_features=0.5, min_rows=3)
    return p, bins, codes, fit_forest(codes, p.train.y, n_classes, np.ones(n), settings)


def pruner(p, codes, trees, weights=None):
    return BudgetPrune(
        trees, codes, p.train.y, np.ones(len(p.train.y)) if weights is None else weights, p.sensor_of, COSTS
    )


def path_of(tree, row):
    """The nodes that a row of bins visits, from the root to a leaf."""
    path = [0]
    while tree.feature[path[-1]] >= 0:
        h = path[-1]
        code = row[tree.feature[h]]
        left = tree.missing_left[h] if code == MISSING_BIN else code <= tree.bins[h]
        path.append(int(tree.children[h, 0 if left else 1]))
    return path


def bought(p, trees, keep, codes):
    """(n, n_sensors) which sensors the kept splits on each row's paths read."""
    out = np.zeros((codes.shape[1], len(p.sensors)), dtype=bool)
    for i, row in enumerate(codes.T):
        for tree, kept in zip(trees, keep, strict=True):
            for h in path_of(tree, row):
                if not kept[h]:
                    break
                out[i, p.sensor_of[tree.feature[h]]] = True
    return out


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


@settings(max_examples=150)
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


# ---------------------------------------------------------------- forests


@pytest.mark.parametrize("n_classes", [2, 3])
def test_an_unpruned_forest_scores_as_scikit_learns_with_missing_values_and_weights(n_classes):
    p, bins, codes, _ = fitted(n_classes)
    weights = np.random.default_rng(0).uniform(0.2, 2.0, 150)
    trees = fit_forest(codes, p.train.y, n_classes, weights, ForestSettings(5, 0.5, 2), seed=3)
    X = codes.T.astype(np.float32)
    X[X == MISSING_BIN] = np.nan
    theirs = RandomForestClassifier(5, max_features=0.5, min_samples_leaf=2, max_depth=32, random_state=3)
    theirs.set_params(max_leaf_nodes=MAX_NODES // 10).fit(X, p.train.y, sample_weight=weights)
    wanted = theirs.predict_proba(X) * 5
    mine = ensemble_scores(forest_ensemble(bins, trees, [t.is_split for t in trees]), codes)
    assert np.isnan(X).any()
    assert mine == pytest.approx(wanted if n_classes > 2 else wanted[:, 1:] - wanted[:, :1], abs=1e-9)


def test_a_class_that_the_rows_lack_has_no_share():
    p, _, codes, _ = fitted(3)
    rows = p.train.y != 1
    trees = fit_forest(codes[:, rows], p.train.y[rows], 3, np.ones(rows.sum()), ForestSettings(2))
    assert all(tree.shares.shape[1] == 3 and not tree.shares[:, 1].any() for tree in trees)


def test_no_forest_grows_larger_than_a_program_may_be(monkeypatch):
    monkeypatch.setattr(forest_module, "MAX_NODES", 64)
    p, bins, codes, _ = fitted(3)
    trees = fit_forest(codes, p.train.y, 3, np.ones(150), ForestSettings(4, 0.5, 1))
    program = lazy_program(p, forest_ensemble(bins, trees, [t.is_split for t in trees]))
    assert sum(t.is_split.sum() for t in trees) == 4 * 7
    assert 28 < len(program.nodes) <= 64


# ---------------------------------------------------------------- programs


@pytest.mark.parametrize("price", [None, 0.0, 0.002, 0.005, 1.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_program_answers_as_its_forest_and_each_row_pays_for_its_own_paths(n_classes, price):
    p, bins, codes, trees = fitted(n_classes)
    keep = [t.is_split for t in trees] if price is None else pruner(p, codes, trees).prune(price)
    ensemble = forest_ensemble(bins, trees, keep)
    program = lazy_program(p, ensemble)
    outcome = Batch(program, p.train.X).run(p.train.hpc_label)
    scores = ensemble_scores(ensemble, codes)
    labels = scores.argmax(axis=1) if n_classes > 2 else scores[:, 0] > 0
    assert outcome.label.tolist() == labels.astype(int).tolist()
    assert outcome.cost == pytest.approx(bought(p, trees, keep, codes) @ COSTS, rel=1e-12)
    assert price == 1.0 or len(set(outcome.cost)) > 1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_program_buys_nothing_that_every_path_has_bought(n_classes):
    p, bins, _, trees = fitted(n_classes)
    nodes = lazy_program(p, forest_ensemble(bins, trees, [t.is_split for t in trees])).nodes
    tried = [0] + [-1] * (len(nodes) - 1)  # bits; -1: every sensor
    for k, node in enumerate(nodes):
        if isinstance(node, Acquire):
            assert len(node.sensors) == 1
            assert not tried[k] >> node.sensors[0] & 1
            tried[node.then] &= tried[k] | 1 << node.sensors[0]
        for t in () if isinstance(node, Acquire | Answer) else node.targets:
            tried[t] &= tried[k]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_is_shipped_decides_as_its_draft_on_every_row(n_classes):
    """Rows on which sensors fail are among them, and each sensor dead in turn: a decision is made regardless."""
    p, bins, codes, trees = fitted(n_classes)
    draft = lazy_program(p, forest_ensemble(bins, trees, pruner(p, codes, trees).prune(0.001)))
    shipped, _ = decode(encode(align(draft, quantise(draft).program, p.valid.X)))
    verify(shipped)
    X, hpc = p.test.X, p.test.hpc_label
    assert np.isnan(X[:, 3]).any()
    for dead in ((), *((s,) for s in range(6)), tuple(range(6))):
        assert decisions(shipped, X, hpc, dead=dead) == decisions(draft, X, hpc, dead=dead)
    assert len({d.cost for d in decisions(shipped, X, hpc)}) > 1


def test_a_forest_without_splits_is_a_program_that_only_answers():
    p, bins, codes, trees = fitted()
    program = lazy_program(p, forest_ensemble(bins, trees, pruner(p, codes, trees).prune(1e30)))
    assert [type(node) for node in program.nodes] == [Answer]


# ---------------------------------------------------------------- points


def test_each_fold_is_judged_by_the_program_that_has_not_seen_it():
    judge = Judge(make_problem(3, n=40))
    programs = []
    assert N_FOLDS == 4
    for k in (0, 1, 2, 1, 0):
        ensemble = Ensemble(Bins(()), np.empty(0, dtype=np.int64), np.eye(3)[k])
        programs.append(compile_program(judge.problem, [ensemble], (Answer(Slice(0, 0, 3)),)))
    outcome = judge.run_each(programs)
    assert outcome.label[:40].tolist() == np.array([0, 1, 2, 1])[judge.fold].tolist()
    assert outcome.label[40:].tolist() == [0] * 40
    assert outcome.cost.tolist() == [0.0] * 80


def test_points_say_what_they_are_and_never_forward():
    problem = make_problem(3, n=200, effort=replace(NORMAL, prune_forests=((2, 1.0), (5, 1.0))))
    points = learn(problem, ("budget-prune",), quiet=True)[1:]
    assert len(points) > 3
    assert {p.method for p in points} == {"budget-prune"}
    for p in points:
        assert not any(isinstance(node, Forward) for node in p.program.nodes)
        assert p.valid["forward_rate"] == p.test["forward_rate"] == 0.0
        assert p.params["splits"] == sum(len(t.splits) for t in p.program.scorers[0].trees)
        assert p.params["trees"] == len(p.program.scorers[0].trees)
        test = Batch(p.program, problem.test.X).run(problem.test.hpc_label)
        assert p.test == figures_of(test, problem.test.y)
    assert points[-1].valid["quality"] > points[0].valid["quality"] + 0.2
    again = learn(problem, ("budget-prune",), quiet=True)[1:]
    assert again == points


def test_judged_rows_are_not_those_a_forest_has_fitted():
    """With labels that nothing says, the judged accuracy is that of guessing, though forests fit their rows."""
    problem = make_problem(2, n=300)
    rng = np.random.default_rng(5)
    problem.train.y[:], problem.valid.y[:] = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
    (point, *_) = sorted(points_of("budget-prune", Judge(problem)), key=lambda p: -p.params["splits"])
    fitted_rows = Batch(point.program, problem.train.X).run(problem.train.hpc_label)
    assert figures_of(fitted_rows, problem.train.y)["quality"] > 0.75
    assert abs(point.valid["quality"] - 0.5) < 0.1
