# SPDX-License-Identifier: Apache-2.0
"""Forests that are pruned: against scikit-learn's, and as programs against the forests that they walk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from hardcase_edge.more.batch.quality import figures_of
from hardcase_edge.program.decode import decode
from hardcase_edge.program.definition import Acquire, Answer, Forward, Slice
from hardcase_edge.program.encode import encode
from hardcase_edge.verifier.verify import MAX_NODES, verify
from hardcase_export.integers.align import align
from hardcase_export.integers.decide import decisions
from hardcase_export.integers.quantise import quantise
from hardcase_train.data.problem import N_FOLDS
from hardcase_train.methods.prune.pruned_forest import lazy_program
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.compile import compile_program
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.effort import NORMAL
from hardcase_train.sweep.train import learn, points_of
from hardcase_train.trees import forest as forest_module
from hardcase_train.trees.binning import MISSING_BIN, Bins
from hardcase_train.trees.boosting import Ensemble, ensemble_scores
from hardcase_train.trees.forest import ForestSettings, fit_forest, forest_ensemble
from tests.helpers.train.forests import COSTS, bought, fitted, pruner
from tests.helpers.train.problems import make_problem

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
        assert p.valid.forward_rate == p.test.forward_rate == 0.0
        assert p.params["splits"] == sum(len(t.splits) for t in p.program.scorers[0].trees)
        assert p.params["trees"] == len(p.program.scorers[0].trees)
        test = Batch(p.program, problem.test.X).run(problem.test.hpc_label)
        assert p.test == figures_of(test, problem.test.y)
    assert points[-1].valid.quality > points[0].valid.quality + 0.2
    again = learn(problem, ("budget-prune",), quiet=True)[1:]
    assert again == points


def test_judged_rows_are_not_those_a_forest_has_fitted():
    """With labels that nothing says, the judged accuracy is that of guessing, though forests fit their rows."""
    problem = make_problem(2, n=300, effort=replace(NORMAL, prune_forests=((8, 1.0),), n_prune_prices=4))
    rng = np.random.default_rng(5)
    problem.train.y[:], problem.valid.y[:] = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
    (point, *_) = sorted(points_of("budget-prune", Judge(problem)), key=lambda p: -p.params["splits"])
    fitted_rows = Batch(point.program, problem.train.X).run(problem.train.hpc_label)
    assert figures_of(fitted_rows, problem.train.y).quality > 0.75
    assert abs(point.valid.quality - 0.5) < 0.1
