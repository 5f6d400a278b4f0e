# SPDX-License-Identifier: Apache-2.0
"""Affine columns and linear parts: codes as the device's, scores as the estimator's, programs that verify."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from hardcase_edge.bundle.file import Bundle, pack_bundle, unpack_bundle
from hardcase_edge.more.batch.codes import affine_codes
from hardcase_edge.more.batch.scores import score_codes
from hardcase_edge.program.definition import (
    CODE_MAX,
    MISSING,
    Acquire,
    Affine,
    Answer,
    Column,
    Feature,
    Program,
    Rank,
    Sensor,
    Slice,
    Trees,
    Uplink,
)
from hardcase_edge.program.readings import make_coder
from hardcase_edge.session.session import Machine
from hardcase_edge.verifier.verify import verify
from hardcase_export.integers.quantise import quantise
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.linear.logistic import ridge_regression
from hardcase_train.linear.part import STEPS, Linear, affine_rule, make_standard
from hardcase_train.policy.compile import compile_program
from hardcase_train.policy.losses import ClassLoss
from hardcase_train.trees.binning import make_bins
from hardcase_train.trees.boosting import Ensemble, TreeSettings, boost

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
RULES = st.builds(
    Affine,
    frac=st.integers(-64, 64),
    mul=st.integers(-(2**31) + 1, 2**31 - 1),
    add=st.integers(-(2**62) + 1, 2**62 - 1),
    shift=st.integers(0, 62),
)


@given(rule=RULES, x=st.lists(NUMBERS, min_size=1, max_size=20))
@example(rule=Affine(-64, 1, 0, 0), x=[-5e-324, 5e-324, 0.0, -1.7e308, 1.7e308])
@settings(max_examples=100)
def test_codes_of_many_readings_are_the_devices_own(rule, x):
    code = make_coder(Column(0, rule))
    assert affine_codes(rule, np.array(x)).tolist() == [code(v) for v in x]


@given(
    mean=st.floats(-1e9, 1e9),
    deviation=st.floats(1e-3, 1e9),
    away=st.lists(st.floats(-20, 20), min_size=1, max_size=20),
)
@settings(max_examples=120)
def test_a_code_is_the_distance_from_the_mean_in_2048ths_of_a_deviation(mean, deviation, away):
    if abs(mean) > 2**12 * deviation:
        deviation = abs(mean) / 2**12
    rule = affine_rule(mean, deviation)
    x = mean + np.array(away) * deviation
    wanted = np.clip((x - mean) / deviation * STEPS, -CODE_MAX, CODE_MAX)
    assert affine_codes(rule, x) == pytest.approx(wanted, abs=1.0)
    assert affine_codes(rule, np.array([mean])).tolist() == [0]


@given(mean=NUMBERS, deviation=NUMBERS)
@settings(max_examples=120)
def test_whatever_the_mean_the_rule_is_none_or_one_that_a_device_accepts(mean, deviation):
    rule = affine_rule(mean, deviation)
    if rule is not None:
        scorers = (Trees((), (0,), ()),)
        nodes = (Answer(Slice(0, 0, 1)),)
        verify(Program((Feature("f64"),), (Sensor((0,), (1,)),), Uplink(), (Column(0, rule),), scorers, nodes, 2))


def test_features_that_say_nothing_have_no_column():
    x = np.random.default_rng(0).normal(size=50)
    X = np.stack([x, np.full(50, 3.0), np.full(50, np.nan), x * 1e300, x * 1e-300, 1e18 + 4096 * (x > 0)], axis=1)
    standard = make_standard(X)
    assert [c is not None for c in standard.columns] == [True, False, False, False, False, False]
    Z = standard.transform(X)
    assert (Z[:, 1:] == 0).all()
    assert Z[:, 0] == pytest.approx((x - x.mean()) / x.std(), abs=1 / STEPS)


def test_weights_move_mean_and_deviation_and_missing_is_the_mean():
    X = np.array([[0.0], [2.0], [100.0], [np.nan]])
    Z = make_standard(X, np.array([1.0, 1.0, 0.0, 1.0])).transform(X)
    assert Z[:, 0].tolist() == [-1.0, 1.0, CODE_MAX / STEPS, 0.0]


# ---------------------------------------------------------------- parts and programs


def problem(X, y, dtypes):
    rows = Rows(X, y, np.eye(3)[y], np.arange(len(y)))
    features = tuple(Feature(d, nullable=True) for d in dtypes)
    sensors = tuple(Sensor((f,), (1,)) for f in range(len(features)))
    return Problem(features, sensors, Uplink(), 3, rows, rows, rows)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(1)
    X = np.stack([rng.normal(20, 3, 300), rng.integers(-500, 500, 300), rng.normal(0, 1e-4, 300)], axis=1)
    X[:, [0, 2]] = X[:, [0, 2]].astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, rng.integers(0, 3, 300), ("f32", "i32", "f32")


def machine_scores(program, scorer, X):
    """Row by row, as a session computes them."""
    machine = Machine(program)
    coders = [make_coder(c) for c in program.columns]
    out = []
    for row in X:
        codes = []
        for column, code in zip(program.columns, coders, strict=True):
            x = row[column.feature]
            codes += [MISSING, -MISSING - 1] if np.isnan(x) else [code(x)] * 2
        out.append(machine.score[scorer](codes))
    return np.array(out)


def test_a_linear_parts_draft_scores_as_the_part_itself_and_the_integers_nearly_so(case):
    X, y, dtypes = case
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(3, 4))
    weights[1] = 0
    part = Linear(make_standard(X), weights, rng.normal(size=4))
    program = compile_program(problem(X, y, dtypes), [part], (Answer(Slice(0, 0, 3)),))
    assert [c.feature for c in program.columns] == [0, 2]
    wanted = part.scores(part.standard.transform(X))
    assert machine_scores(program, 0, X) == pytest.approx(wanted, rel=1e-12, abs=1e-12)
    done = quantise(compile_program(problem(X, y, dtypes), [part], bought(3)))
    assert machine_scores(done.program, 0, X) / done.scales[0][0] == pytest.approx(wanted, abs=1e-3)


def bought(n_sensors):
    return (Acquire(tuple(range(n_sensors)), 1, 1), Answer(Slice(0, 0, 3)))


def test_a_linear_part_that_reads_nothing_still_becomes_a_program(case):
    X, y, dtypes = case
    part = Linear(make_standard(X), np.zeros((3, 3)), np.array([0.5, -1.0, 2.0]))
    done = quantise(compile_program(problem(X, y, dtypes), [part], (Answer(Slice(0, 0, 3)),)))
    assert done.program.columns == ()
    assert unpack_bundle(pack_bundle(Bundle({}, done.program, ()))).program == done.program
    assert (machine_scores(done.program, 0, X[:2]) / done.scales[0][0]).tolist() == [[0.5, -1.0, 2.0]] * 2


def test_trees_and_lines_over_one_feature_share_a_program_but_no_column(case):
    X, y, dtypes = case
    bins = make_bins(X, dtypes, 16)
    ensembles = []
    for seed in (0, 1):
        loss = ClassLoss(np.random.default_rng(seed).permutation(y), 3, np.ones(300))
        e = Ensemble(bins, np.arange(3), loss.base())
        scores = np.tile(e.base, (300, 1))
        boost(e, loss, bins.transform(X), np.arange(3), scores, np.zeros(3), TreeSettings(), 3)
        ensembles.append((e, scores))
    line = Linear(make_standard(X), np.ones((3, 3)), np.zeros(3))
    (first, first_scores), (second, second_scores) = ensembles
    program = compile_program(problem(X, y, dtypes), [first, line, second, line], bought(3))
    kinds = [(c.feature, isinstance(c.rule, Rank)) for c in program.columns]
    assert len(set(kinds)) == len(kinds) == 6
    assert machine_scores(program, 0, X) == pytest.approx(first_scores)
    assert machine_scores(program, 2, X) == pytest.approx(second_scores)
    assert machine_scores(program, 3, X) == pytest.approx(line.scores(line.standard.transform(X)))
    assert score_codes(program.scorers, 1, np.zeros((6, 1), dtype=np.int32)).tolist() == [[0.0] * 3]


def test_ridge_regressions_of_values_are_scikit_learns_one_for_each_weighting() -> None:
    rng = np.random.default_rng(0)
    values = np.vstack([np.ones(40), rng.normal(size=(3, 40))]).astype(np.float32)
    y, weight = rng.normal(size=40) + 5, np.vstack([rng.random((2, 40)), np.zeros(40)])
    found = ridge_regression(values, y, weight, 0.3)
    for k in (0, 1):
        same = Ridge(alpha=0.3 * weight[k].sum()).fit(values[1:].T.astype(float), y, weight[k])
        assert found[k] == pytest.approx([same.intercept_, *same.coef_], rel=1e-4)
    assert not found[2].any()
