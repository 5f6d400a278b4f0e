# SPDX-License-Identifier: Apache-2.0
"""Rows packed for counting: what shares a byte, and that no tree can tell."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_train.trees.binning import MISSING_BIN, pack
from hardcase_train.trees.grower import Grower, grow
from tests.helpers.train.plain_grower import SHAPE, best_gain, grown, make, saved

FIELDS = ("features", "bins", "missing_left", "children", "leaves", "leaf_of_row")


def one_hot(seed, n=300, n_groups=6, usual=0.5):
    """Codes of exclusive features, most rows at one of two bins, some of a feature's others in three or missing."""
    rng = np.random.default_rng(seed)
    group = np.where(rng.random(n) < usual, 0, rng.integers(0, n_groups, n))
    codes = np.zeros((n_groups, n), dtype=np.uint8)
    for k in range(n_groups):
        codes[k, group == k] = rng.choice([1, 2, MISSING_BIN], (group == k).sum())
    return codes


def unpacked(packed, f):
    """A feature's codes, read back from the cells."""
    n = packed.n_bins[f]
    column = int(np.searchsorted(packed.cell, packed.first[f], side="right")) - 1
    at = packed.columns[column].astype(int) + int(packed.cell[column]) - packed.first[f]
    if packed.usual[f] >= 0:
        usual = packed.usual[f]
        at = np.where((at < 0) | (at >= n), usual, at + (at >= usual))
    return np.where(at == n, MISSING_BIN, at)


@given(seed=st.integers(0, 10_000), usual=st.floats(0, 1), dense=st.integers(0, 2))
@settings(max_examples=40)
def test_packed_rows_say_what_the_codes_say(seed, usual, dense):
    codes = np.vstack([make(seed, n=50, n_features=dense, n_bins=3)[0], one_hot(seed, 50, usual=usual)])
    packed = pack(codes, np.full(len(codes), 3), np.ones(len(codes), dtype=bool))
    assert sorted(packed.features) == list(range(len(codes)))
    for f in range(len(codes)):
        assert unpacked(packed, f).tolist() == codes[f].tolist()


def test_a_one_hot_group_becomes_one_column():
    state = np.random.default_rng(0).integers(0, 40, 5000)
    codes = (state == np.arange(40)[:, None]).astype(np.uint8)
    packed = pack(codes, np.full(40, 2), np.ones(40, dtype=bool))
    assert packed.columns.shape == (1, 5000)
    assert packed.cell.tolist() == [0, 81]  # all usual, then 40 times one and missing


def test_features_that_leave_their_usual_bins_together_do_not_share_a_column():
    codes = np.zeros((2, 9), dtype=np.uint8)
    codes[0, 3] = codes[1, 3] = 1
    assert pack(codes, np.array([2, 2]), np.ones(2, dtype=bool)).columns.shape == (2, 9)
    codes[1, 3], codes[1, 4] = 0, 1
    assert pack(codes, np.array([2, 2]), np.ones(2, dtype=bool)).columns.shape == (1, 9)


def test_a_column_never_has_more_cells_than_a_byte_counts():
    codes = np.zeros((4, 1000), dtype=np.uint8)
    for f in range(4):
        codes[f, 250 * f : 250 * f + 99] = np.arange(1, 100)
    packed = pack(codes, np.full(4, 100), np.ones(4, dtype=bool))
    assert np.diff(packed.cell.astype(int)).tolist() == [201, 201]
    assert all(unpacked(packed, f).tolist() == codes[f].tolist() for f in range(4))


@pytest.mark.parametrize("seed", range(8))
def test_the_first_split_over_shared_columns_is_the_best_of_all(seed):
    codes = one_hot(seed)
    _, g, h = make(seed, n=300, n_outputs=1 + seed % 3)
    tree = grown(codes, g, h, max_leaves=2, n_bins=3)
    found = saved(np.arange(300), np.flatnonzero(tree.leaf_of_row == 0), g, h, 0.5)
    assert found == pytest.approx(best_gain(codes, np.arange(300), g, h), rel=1e-9)


def same(one, two):
    return all(getattr(one, name).tobytes() == getattr(two, name).tobytes() for name in FIELDS)


def test_many_trees_may_grow_side_by_side():
    tables = [make(seed, n=300) for seed in range(4)]
    args = [(codes, np.full(4, 5), np.arange(4), g, h) for codes, g, h in tables]
    wanted = [grow(*a, np.zeros(4), **SHAPE) for a in args]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: grow(*args[k % 4], np.zeros(4), **SHAPE), range(40)))
    assert all(same(tree, wanted[k % 4]) for k, tree in enumerate(found))


def test_a_grower_that_is_kept_grows_what_a_new_one_would():
    codes, g, h = make(9, n=200, n_outputs=3)
    kept = Grower(codes, np.full(4, 5), np.arange(4))
    for k in (3, 2, 1, 3):
        for max_leaves in (8, 3):
            shape = SHAPE | {"max_leaves": max_leaves}
            new = grow(codes, np.full(4, 5), np.arange(4), g[:, :k], h[:, :k], np.zeros(4), **shape)
            assert same(new, kept.grow(g[:, :k], h[:, :k], np.zeros(4), **shape))
