# SPDX-License-Identifier: Apache-2.0
"""The tree grower against a plain reading of its own formula: every split tried, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_train.trees.binning import MISSING_BIN, Bins
from hardcase_train.trees.boosting import Ensemble
from tests.helpers.train.plain_grower import best_gain, depths, grown, loss, make, saved


def leaf_by_walking(tree, codes, i):
    at = 0 if len(tree.features) else -1
    while at >= 0:
        code = codes[tree.features[at], i]
        left = tree.missing_left[at] if code == MISSING_BIN else code <= tree.bins[at]
        at = tree.children[at, 0 if left else 1]
    return -1 - at


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("min_rows", [1, 6])
def test_the_first_split_is_the_best_of_all(seed, min_rows):
    codes, g, h = make(seed, n_outputs=1 + seed % 3)
    rows = np.arange(codes.shape[1])
    tree = grown(codes, g, h, max_leaves=2, min_rows=min_rows)
    assert len(tree.features) == 1
    found = saved(rows, np.flatnonzero(tree.leaf_of_row == 0), g, h, 0.5)
    assert found == pytest.approx(best_gain(codes, rows, g, h, min_rows=min_rows), rel=1e-9)
    assert np.bincount(tree.leaf_of_row).min() >= min_rows


@pytest.mark.parametrize("seed", range(6))
def test_every_further_split_is_the_best_of_all_open_leaves(seed):
    codes, g, h = make(seed, n=60)
    for max_leaves in range(2, 8):
        before = grown(codes, g, h, max_leaves=max_leaves)
        after = grown(codes, g, h, max_leaves=max_leaves + 1)
        leaves = [np.flatnonzero(before.leaf_of_row == k) for k in range(len(before.leaves))]
        depth = depths(before)
        wanted = max(best_gain(codes, rows, g, h) for rows, d in zip(leaves, depth, strict=True) if d < 4)
        assert loss(before, g, h) - loss(after, g, h) == pytest.approx(wanted, rel=1e-8)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 50), missing=st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=40)
def test_rows_lie_in_the_leaf_that_walking_reaches_and_leaves_minimise_the_loss(seed, n, missing):
    codes, g, h = make(seed, n=n, n_outputs=3, missing=missing)
    tree = grown(codes, g, h, max_leaves=6, max_depth=3)
    assert len(tree.leaves) == len(tree.features) + 1 <= 6
    assert depths(tree).max(initial=0) <= 3
    assert all(leaf_by_walking(tree, codes, i) == tree.leaf_of_row[i] for i in range(n))
    for k, leaf in enumerate(tree.leaves):
        rows = tree.leaf_of_row == k
        assert leaf == pytest.approx(-g[rows].sum(axis=0) / (h[rows].sum(axis=0) + 0.5), rel=1e-9, abs=1e-12)


def test_missing_rows_go_where_they_lower_the_loss_most():
    codes = np.array([[0, 0, 1, 1, MISSING_BIN, MISSING_BIN]], dtype=np.uint8)
    h = np.ones((6, 1))
    with_low = grown(codes, np.array([[1.0], [1], [-1], [-1], [1], [1]]), h, max_leaves=2, n_bins=2)
    with_high = grown(codes, np.array([[1.0], [1], [-1], [-1], [-1], [-1]]), h, max_leaves=2, n_bins=2)
    apart = grown(codes, np.array([[1.0], [1], [1], [1], [-1], [-1]]), h, max_leaves=2, n_bins=2)
    assert (with_low.missing_left[0], with_high.missing_left[0]) == (True, False)
    assert apart.leaf_of_row.tolist() == [0, 0, 0, 0, 1, 1]


def test_depth_and_leaves_are_bounds():
    codes, g, h = make(3, n=200)
    assert len(grown(codes, g, h, max_leaves=1).features) == 0
    assert len(grown(codes, g, h, max_depth=0).features) == 0
    assert len(grown(codes, g, h, max_leaves=5).leaves) == 5
    assert depths(grown(codes, g, h, max_leaves=64, max_depth=2)).max() == 2


# ---------------------------------------------------------------- what sensors cost


def columns(*parts):
    """Codes from lists of 0 and 1."""
    return np.array(parts, dtype=np.uint8)


def test_a_penalty_is_charged_once_and_shared_by_a_sensors_features():
    codes, g, h = make(0, n=80, missing=0.0)
    owner = [0, 0, 1, 1]
    penalty = np.array([0.5, np.inf])
    tree = grown(codes, g, h, penalty, owner)
    assert set(tree.features.tolist()) == {0, 1}
    assert penalty.tolist() == [0.0, np.inf]
    free = grown(codes, g, h, np.array([0.0, np.inf]), owner)
    assert tree.features.tolist() == free.features.tolist()  # paid at the root: all later splits are as if free
    rows = np.arange(80)
    best = best_gain(codes, rows, g, h, features=(0, 1))
    assert len(grown(codes, g, h, np.array([best * 1.001, np.inf]), owner).features) == 0
    assert len(grown(codes, g, h, np.array([best * 0.999, np.inf]), owner).features) > 0


def test_a_sensor_just_bought_gets_its_raw_gain_and_no_bonus():
    """A leaf where the free sensor gains more must not go to the sensor just bought, whose penalty is not paid back.

    Root: sensor 1 parts the rows (its gain is far above its penalty 5). In the right half the free sensor 0 gains 10
    and sensor 1's other feature 6: a grower that credits the penalty paid would see 6 + 5 = 11.
    """
    gains = {0: 10.0, 2: 6.0}
    n = 8
    first = [0] * n + [1] * n
    free, other = [0] * n, [0] * n
    pattern = np.arange(n)
    free += (pattern % 2).tolist()
    other += (pattern // 2 % 2).tolist()
    # with l2 -> 0 and unit hessians, a balanced feature with effect e gains n * e^2 / 2
    effect = {f: np.sqrt(2 * gain / n) for f, gain in gains.items()}
    g = np.where(np.array(first) == 0, 20.0, -20.0)
    g += np.array(first) * (effect[0] * (1 - 2 * np.array(free)) + effect[2] * (1 - 2 * np.array(other)))
    codes = columns(free, first, other)
    args = (codes, g[:, None], np.ones((2 * n, 1)))
    rows = np.arange(n, 2 * n)
    for f, gain in gains.items():
        assert best_gain(codes, rows, *args[1:], l2=1e-9, features=(f,)) == pytest.approx(gain, rel=1e-6)
    penalty = np.array([0.0, 5.0])
    tree = grown(*args, penalty, owner=[0, 1, 1], n_bins=2, max_leaves=3, l2=1e-9)
    assert tree.features.tolist() == [1, 0]
    assert penalty.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("seed", range(8))
def test_raising_a_sensors_penalty_never_brings_it_in(seed):
    codes, g, h = make(seed, n=60)
    owner = np.array([0, 0, 1, 2])
    for sensor in range(3):
        used = []
        for price in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, np.inf):
            penalty = np.full(3, 1.0)
            penalty[sensor] = price
            tree = grown(codes, g, h, penalty, owner)
            used.append(sensor in owner[tree.features])
        assert used == sorted(used, reverse=True)
        assert not used[-1]


def test_where_every_sensor_is_out_of_reach_nothing_is_split():
    codes, g, h = make(1)
    penalty = np.full(4, np.inf)
    tree = grown(codes, g, h, penalty)
    assert len(tree.features) == 0
    assert np.isinf(penalty).all()
    assert np.isfinite(tree.leaves).all()


def test_features_of_no_sensor_are_never_split():
    codes, g, h = make(2)
    tree = grown(codes, g, h, np.zeros(2), owner=[-1, 0, -1, 1])
    assert set(tree.features.tolist()) <= {1, 3}
    assert len(grown(codes, g, h, np.zeros(1), owner=[-1] * 4).features) == 0


def test_constant_columns_and_columns_without_readings_are_not_split():
    codes, g, h = make(4)
    codes[0], codes[1] = 0, MISSING_BIN
    tree = grown(codes, g, h, n_bins=[1, 1, 5, 5])
    assert set(tree.features.tolist()) == {2, 3}
    codes[0, :7] = MISSING_BIN  # constant but for being missing: that may be split
    apart = grown(codes[:1], np.where(codes[0] == MISSING_BIN, -1.0, 1.0)[:, None], h[:, :1], n_bins=[1], max_leaves=2)
    assert (apart.leaf_of_row == 1).tolist() == (codes[0] == MISSING_BIN).tolist()


def test_a_table_without_features_gives_one_leaf():
    tree = grown(np.empty((0, 5), dtype=np.uint8), np.ones((5, 1)), np.ones((5, 1)))
    assert tree.leaves.tolist() == [[-5 / 5.5]]


def test_the_same_input_grows_the_same_tree():
    codes, g, h = make(5, n=500, n_features=6)
    one, two = (grown(codes, g, h, np.full(6, 0.3)) for _ in range(2))
    for name in ("features", "bins", "missing_left", "children", "leaves", "leaf_of_row"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_reading_that_is_never_missing_in_training_goes_the_way_of_most_rows_if_it_is(seed, n_outputs):
    codes, g, h = make(seed, n_outputs=n_outputs, missing=0.0)
    tree = grown(codes, g, h, max_leaves=2)
    is_left = codes[tree.features[0]] <= tree.bins[0]
    assert tree.missing_left.tolist() == [2 * is_left.sum() >= len(is_left)]


def test_some_outputs_of_an_ensemble_have_their_trees_and_no_others():
    trees = [object() for _ in range(3)]
    every = Ensemble(Bins(()), np.arange(0), np.array([0.1, 0.2, 0.3]), trees, [(0, 1), (2, 1), (1, 1)])
    some = every.only([2, 0])
    assert some.base.tolist() == [0.3, 0.1]
    assert list(zip(some.trees, some.outputs, strict=True)) == [(trees[0], (1, 1)), (trees[1], (0, 1))]
