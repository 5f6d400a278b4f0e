# SPDX-License-Identifier: Apache-2.0
"""Confidence tables, and what the compiler makes of cuts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.program.definition import CODE_MAX, Acquire, Answer, Rank, Slice
from hardcase_edge.program.readings import make_coder
from hardcase_train.policy.answers import answer_node
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.compile import compile_program
from hardcase_train.policy.confidences import BIN_ROWS, MAX_BINS, MAX_STEPS, confidence_table, value_table
from hardcase_train.policy.losses import ClassLoss
from hardcase_train.trees.binning import MISSING_BIN, make_bins
from hardcase_train.trees.boosting import Ensemble, TreeSettings, boost, ensemble_scores
from tests.helpers.train.problems import make_problem


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.25, 1.0, 3.5]) | st.floats(0, 10), st.booleans()), max_size=200
    )
)
@settings(max_examples=100)
def test_a_table_rises_strictly_in_margin_and_never_falls_in_confidence(rows):
    margins, right = np.array([m for m, _ in rows]), np.array([r for _, r in rows], dtype=bool)
    thresholds, confidences = confidence_table(margins, right)
    assert len(confidences) == len(thresholds) + 1 <= MAX_STEPS + 1
    assert all(a < b for a, b in pairwise(thresholds))
    assert list(confidences) == sorted(confidences)
    assert all(0 < c < 10_000 for c in confidences)
    assert all(type(c) is int for c in confidences)
    assert all(type(t) is float for t in thresholds)


def test_without_rows_nothing_is_known():
    assert confidence_table(np.empty(0), np.empty(0, dtype=bool)) == ((), (5000,))


def test_a_step_says_how_often_its_rows_were_right():
    margins = np.array([0.1] * 100 + [2.0] * 100)
    right = np.array([True] * 60 + [False] * 40 + [True] * 95 + [False] * 5)
    assert confidence_table(margins, right) == ((1.05,), (round(10_000 * 61 / 102), round(10_000 * 96 / 102)))


def test_a_step_lies_between_rows_so_that_rounding_moves_none_of_them():
    thirds = np.array([0.1, 0.1, 1 / 3, 1 / 3, 1 / 3])
    thresholds, _ = confidence_table(thirds, np.array([False, False, True, True, True]))
    assert 0.1 + 1e-9 < thresholds[0] < 1 / 3 - 1e-9
    near = 1000.0 + np.spacing(1000.0) * np.arange(3)
    rows, right = np.repeat(near, 9), np.array([False] * 9 + [True, False, True] * 3 + [True] * 9)
    assert confidence_table(rows, right)[0] == tuple(near[1:])


def test_a_margin_that_says_nothing_gives_one_step():
    margins = np.linspace(0, 1, 50)
    thresholds, confidences = confidence_table(margins, np.arange(50) < 25)  # the sure ones are wrong
    assert thresholds == ()
    assert confidences == (5000,)


def test_many_steps_become_at_most_twelve():
    rng = np.random.default_rng(0)
    margins = rng.uniform(0, 1, 20_000)
    thresholds, confidences = confidence_table(margins, rng.random(20_000) < margins)
    assert len(thresholds) == MAX_STEPS - 1
    place = np.searchsorted(thresholds, margins, side="right")
    for k, said in enumerate(confidences):
        assert said / 10_000 == pytest.approx(margins[place == k].mean(), abs=0.05)


@given(st.lists(st.tuples(st.floats(-5, 5) | st.sampled_from([0.0, 1.0]), st.booleans()), max_size=300))
@settings(max_examples=60)
def test_a_table_by_values_rises_strictly_and_counts_every_row_once(rows):
    values, right = np.array([v for v, _ in rows]), np.array([r for _, r in rows], dtype=bool)
    thresholds, confidences = value_table(values, right, np.ones(len(rows)))
    assert len(confidences) == len(thresholds) + 1 <= max(1, min(MAX_BINS, len(rows) // BIN_ROWS))
    assert all(a < b for a, b in pairwise(thresholds))
    bins = np.searchsorted(thresholds, values, side="right")
    for k, said in enumerate(confidences):
        own = right[bins == k]
        assert said == round(10_000 * (own.sum() + 1) / (len(own) + 2))


def test_the_confidence_of_a_value_depends_on_the_value():
    rng = np.random.default_rng(0)
    values = rng.uniform(0, 1, 800)
    node = Answer(Slice(0, 0, 1), "value")
    made = answer_node(node, values, rng.random(800) < np.where(values < 0.5, 0.9, 0.3), np.ones(800))
    assert len(made.confidences) == MAX_BINS
    assert made.confidences[0] > 8000
    assert made.confidences[-1] < 5000


# ---------------------------------------------------------------- cuts


VALUES = {
    "i32": [-(2**31) + 2, -7, 0, 1, 2, 900_000_001, 2**31 - 2],
    "f32": [float(np.float32(v)) for v in (-3.4e38, -1.0, 0.0, 1e-30, 0.1, 0.1 + 1e-8, 1.0, 3.4e38)],
    "f64": [-1.7e308, -1.0, 0.0, 5e-324, 0.1, 0.1 + 1e-16, 1e300, 1.7e308],
}


@pytest.mark.parametrize("dtype", VALUES)
def test_cuts_part_neighbouring_readings_and_are_exact_in_the_declared_type(dtype):
    values = np.unique(np.array(VALUES[dtype], dtype=np.float64))
    (cuts,) = make_bins(np.repeat(values, 3)[:, None], (dtype,)).cuts
    assert len(cuts) == len(values) - 1
    assert ((values[:-1] <= cuts) & (cuts < values[1:])).all()
    if dtype == "i32":
        assert (cuts == np.floor(cuts)).all()
    if dtype == "f32":
        assert (cuts == cuts.astype(np.float32)).all()


@given(seed=st.integers(0, 1000), max_bins=st.integers(2, 255), n=st.integers(2, 600))
@settings(max_examples=40)
def test_there_are_never_more_bins_than_asked_for(seed, max_bins, n):
    X = np.round(np.random.default_rng(seed).normal(size=(n, 1)) * 40)
    (cuts,) = make_bins(X, ("f64",), max_bins).cuts
    assert len(cuts) < max_bins
    assert (np.diff(cuts) > 0).all()
    codes = make_bins(X, ("f64",), max_bins).transform(X)
    assert codes.max(initial=0) <= len(cuts) < MISSING_BIN


@pytest.mark.parametrize("dtype", VALUES)
def test_missing_against_all_readings_becomes_a_threshold_above_every_reading(dtype):
    """Where being there is what tells: no cut says so, and readings of later rows may be larger than all seen."""
    values = VALUES[dtype]
    problem = make_problem(2, n=40)
    X = np.full((40, 6), 1.0)
    X[:20, 5] = np.nan
    X[20:, 5] = np.resize(values[2:5], 20)
    features = tuple(type(f)(dtype if k == 5 else "f32", k == 5) for k, f in enumerate(problem.features))
    object.__setattr__(problem, "features", features)
    bins = make_bins(X, problem.dtypes, 32)
    codes = bins.transform(X)
    y = np.array([0] * 20 + [1] * 20)
    ensemble = Ensemble(bins, np.arange(6), np.zeros(1))
    boost(
        ensemble,
        ClassLoss(y, 2, np.ones(40)),
        codes,
        problem.sensor_of,
        np.zeros((40, 1)),
        np.zeros(3),
        TreeSettings(),
        1,
    )
    assert ensemble.trees[0].features.tolist() == [5]
    program = compile_program(problem, [ensemble], (Acquire((2,), 1, 1), Answer(Slice(0, 0, 1))))
    (column,) = program.columns
    assert isinstance(column.rule, Rank)
    assert all(make_coder(column)(v) == -CODE_MAX for v in values)
    later = np.full((len(values) + 1, 6), 1.0)
    later[:-1, 5], later[-1, 5] = values, np.nan
    outcome = Batch(program, later).run(np.zeros(len(later), dtype=int))
    assert outcome.label.tolist() == [1] * len(values) + [0]


def test_a_compiled_ensemble_scores_rows_as_training_does():
    problem = make_problem(3)
    rows = problem.train
    bins = make_bins(rows.X, problem.dtypes, 32)
    codes = bins.transform(rows.X)
    loss = ClassLoss(rows.y, 3, np.ones(len(rows.y)))
    ensemble = Ensemble(bins, np.arange(6), loss.base())
    scores = np.tile(loss.base(), (len(rows.y), 1))
    boost(ensemble, loss, codes, problem.sensor_of, scores, np.zeros(3), TreeSettings(), 10)
    program = compile_program(problem, [ensemble], (Acquire((0, 1, 2), 1, 1), Answer(Slice(0, 0, 3))))
    assert Batch(program, rows.X).scores(0) == pytest.approx(scores, abs=1e-12)
    assert ensemble_scores(ensemble, codes) == pytest.approx(scores, abs=1e-12)
    for column in program.columns:
        kind = int if problem.dtypes[column.feature] == "i32" else float
        assert all(type(t) is kind for t in column.rule.thresholds)
