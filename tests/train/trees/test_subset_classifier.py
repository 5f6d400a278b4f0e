# SPDX-License-Identifier: Apache-2.0
"""The classifier of a sensor set, of each kind: it reads what it may, and a forest says what scikit-learn's says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier

from hardcase_train.policy.batch import Batch
from hardcase_train.policy.compile import compile_program
from hardcase_train.policy.losses import class_outputs
from hardcase_train.settings.config import PolicyLimits
from hardcase_train.trees.binning import MISSING_BIN
from hardcase_train.trees.boosting import ensemble_scores
from hardcase_train.trees.forest import ForestSettings
from hardcase_train.trees.subset_classifier import (
    EBM,
    FOREST,
    STUMPS,
    TREES,
    classifier_kinds,
    fit_classifier,
    make_learner,
    tables,
)
from tests.helpers.train.problems import make_problem

KINDS = (TREES, FOREST, EBM)


def fitted(kind, sensors, n_classes=3):
    p = make_problem(n_classes)
    learner = make_learner(p, kind)
    return p, learner, learner.fit(sensors, np.arange(len(p.train.y)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sensors", [(0,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_classifier_reads_its_sensors_alone(kind, sensors, n_classes):
    p, learner, made = fitted(kind, sensors, n_classes)
    assert made.features.tolist() == [f for s in sensors for f in p.sensors[s].features]
    assert made.base.shape == (class_outputs(n_classes),)
    scores = ensemble_scores(made, learner.valid[made.features])
    label = scores.argmax(axis=1) if n_classes > 2 else (scores[:, 0] > 0).astype(int)
    assert (label == p.valid.y).mean() > 1.2 / n_classes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_of_no_sensor_it_says_the_commonest_class(kind, n_classes):
    p, _, made = fitted(kind, (), n_classes)
    assert not made.trees
    commonest = np.bincount(p.train.y).argmax()
    assert commonest == (made.base.argmax() if n_classes > 2 else int(made.base[0] > 0))


def test_a_classifier_knows_no_other_rows():
    p = make_problem(3)
    rows = np.arange(0, len(p.train.y), 2)
    for kind in KINDS:
        changed = replace(p, train=replace(p.train, y=np.where(np.arange(len(p.train.y)) % 2 == 0, p.train.y, 0)))
        one, other = (make_learner(q, kind).fit((0, 1), rows) for q in (p, changed))
        codes = make_learner(p, kind).valid[one.features]
        assert (ensemble_scores(one, codes) == ensemble_scores(other, codes)).all()


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_forest_says_what_scikit_learns_says_of_the_same_bins(n_classes):
    p = make_problem(n_classes, missing=0.0)
    train, valid = (replace(rows, X=np.nan_to_num(rows.X)) for rows in (p.train, p.valid))
    p = replace(p, train=train, valid=valid)
    learner = replace(make_learner(p, FOREST), forest=ForestSettings(20, 0.5, is_drawn=True, max_leaves=30))
    made = learner.fit((0, 1, 2), np.arange(len(p.train.y)))
    theirs = ExtraTreesClassifier(20, max_features=0.5, max_leaf_nodes=30, max_depth=32, random_state=p.seed)
    theirs.fit(learner.codes.T.astype(np.float32), p.train.y)
    chances = theirs.predict_proba(learner.valid.T.astype(np.float32))
    said = ensemble_scores(made, learner.valid) / 20
    np.testing.assert_allclose(said, chances if n_classes > 2 else chances[:, 1:] - chances[:, :1], atol=1e-12)
    program = compile_program(p, [made], [])
    np.testing.assert_allclose(Batch(program, p.valid.X).scores(0) / 20, said, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_tables_of_an_additive_model_add_up_to_its_stumps(n_classes, missing):
    p = make_problem(n_classes, missing=missing)
    learner, rows = make_learner(p, EBM), np.arange(len(p.train.y))
    stumps = fit_classifier(p, (0, 1, 2), learner.bins, learner.codes, STUMPS, 100, rows)
    made = tables(stumps)
    features = [set(tree.features.tolist()) for tree in made.trees]
    assert len(set().union(*features)) == sum(map(len, features)) == len(made.trees) < len(stumps.trees)
    codes = learner.valid[made.features].copy()
    codes[:, :40] = MISSING_BIN  # also of a column that never lacked a reading
    np.testing.assert_allclose(ensemble_scores(made, codes), ensemble_scores(stumps, codes), atol=1e-9)
    program = compile_program(p, [made], [])
    said = Batch(program, p.valid.X).scores(0)
    np.testing.assert_allclose(said, ensemble_scores(made, learner.valid[made.features]), atol=1e-9)


@pytest.mark.parametrize(
    ("size", "limits", "kinds"),
    [
        ("auto", {}, {FOREST, TREES}),
        ("ebm", {}, {EBM}),
        ("ebm", {"max_bytes": 15_000}, {EBM}),
        ("auto", {"max_bytes": 15_000}, {FOREST, TREES, EBM}),
        ("auto", {"max_bytes": 10_000_000}, {FOREST, TREES}),
        ("auto", {"max_ms": 0.01}, {FOREST, TREES, EBM}),
        ("auto", {"budget": 3.0}, {FOREST, TREES}),
        ("small", {"max_bytes": 15_000}, {TREES}),
    ],
)
def test_additive_models_are_offered_where_they_are_asked_for_or_a_device_is_small(size, limits, kinds):
    p = replace(make_problem(2), size_name=size, limits=PolicyLimits(**limits))
    assert {kind.partition("/")[0] for kind in classifier_kinds(p)} == kinds


@pytest.mark.parametrize("size", ["small", "large"])
def test_a_size_that_has_no_forest_says_so(size):
    with pytest.raises(ValueError, match=f"size '{size}' has no forest for 150 rows; use the kind 'trees'"):
        make_learner(replace(make_problem(2), size_name=size), FOREST)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fitted_model_keeps_nothing_of_each_training_row(kind):
    p, _, made = fitted(kind, (0, 1))
    sizes = [len(values) for tree in made.trees for values in vars(tree).values()]
    assert max(sizes) < len(p.train.y)
