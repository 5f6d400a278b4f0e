# SPDX-License-Identifier: Apache-2.0
"""What a sensor costs the trees: charged once, never paid back; and rows that weigh nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_train.trees.binning import Bins
from hardcase_train.trees.boosting import Ensemble, TreeSettings, boost
from tests.helpers.train.plain_grower import best_gain, depths, grown, loss, make

OWNER = np.array([0, 0, 1, 2])  # three sensors, the first of which gives two features


def best_after(codes, tree, g, h, prices):
    """The largest gain of any split of any open leaf, less the price of its sensor."""
    leaves = [np.flatnonzero(tree.leaf_of_row == k) for k, depth in enumerate(depths(tree)) if depth < 4]
    return max(
        best_gain(codes, rows, g, h, features=np.flatnonzero(s == OWNER)) - price
        for rows in leaves
        for s, price in enumerate(prices)
    )


@pytest.mark.parametrize("charge", ["once", "per-split"])
@pytest.mark.parametrize("seed", range(5))
def test_every_split_is_the_best_of_all_less_what_is_not_paid_yet(charge, seed):
    """Once: sensors of earlier splits are free, and only free. Per split: those of earlier trees alone."""
    codes, g, h = make(seed, n=60)
    prices = np.array([0.0, 0.6, 1.2])
    for max_leaves in range(1, 7):
        before = grown(codes, g, h, prices.copy(), OWNER, max_leaves=max_leaves, charge=charge)
        after = grown(codes, g, h, prices.copy(), OWNER, max_leaves=max_leaves + 1, charge=charge)
        unpaid = prices.copy()
        if charge == "once":
            unpaid[OWNER[before.features]] = 0.0
        wanted = best_after(codes, before, g, h, unpaid)
        if len(after.features) == len(before.features):
            assert wanted <= 1e-12
        else:
            paid = unpaid[OWNER[after.features[-1]]]
            assert loss(before, g, h) - loss(after, g, h) - paid == pytest.approx(wanted, rel=1e-8)


@given(seed=st.integers(0, 10_000), price=st.floats(0, 8), share=st.floats(0, 1))
@settings(max_examples=40)
def test_a_sensor_that_takes_the_first_split_takes_it_at_any_lower_price(seed, price, share):
    codes, g, h = make(seed, n=30)
    dear, cheap = (grown(codes, g, h, np.array([p, 1.0, 1.0]), OWNER, max_leaves=2) for p in (price, price * share))
    if OWNER[dear.features].tolist() == [0]:
        assert (cheap.features[0], cheap.bins[0]) == (dear.features[0], dear.bins[0])


@given(seed=st.integers(0, 10_000), price=st.floats(0, 20))
@settings(max_examples=40)
def test_a_sensor_alone_is_used_as_if_free_or_not_at_all(seed, price):
    """Its first split must gain more than it costs; what it costs changes nothing else."""
    codes, g, h = make(seed, n=30)
    rows = np.arange(30)
    alone = np.full(3, np.inf)
    alone[0] = 0.0
    free = grown(codes, g, h, alone.copy(), OWNER)
    alone[0] = price
    tree = grown(codes, g, h, alone, OWNER)
    if best_gain(codes, rows, g, h, features=(0, 1)) - price > 1e-9:
        assert tree.features.tolist() == free.features.tolist()
        assert tree.leaves.tobytes() == free.leaves.tobytes()
    else:
        assert tree.features.tolist() == []


# ---------------------------------------------------------------- small tables, exact figures


def effects(*parts):
    """Codes of balanced 0/1 features over 16 rows, and gradients in which feature f alone gains ``parts[f]``.

    With unit hessians and l2 = 0, an effect e on all of n rows gains n e^2 / 2, at the root and below it.
    """
    codes = (np.arange(16) >> np.arange(len(parts))[:, None] & 1).astype(np.uint8)
    gradient = (np.sqrt(2 * np.array(parts) / 16)[:, None] * (1 - 2.0 * codes)).sum(axis=0)
    return codes, gradient[:, None], np.ones((16, 1))


def test_per_split_charges_a_sensor_again_until_the_tree_is_done():
    """Two features of sensor 0, gains 50 and 12 (6 in each half), price 8; a free feature that gains 4 (2)."""
    codes, g, h = effects(50.0, 12.0, 4.0)
    grown_with, left = {}, {}
    for charge in ("once", "per-split"):
        penalty = np.array([8.0, 0.0])
        tree = grown(codes, g, h, penalty, [0, 0, 1], n_bins=2, max_leaves=4, max_depth=2, l2=0.0, charge=charge)
        grown_with[charge], left[charge] = tree.features.tolist(), penalty.tolist()
    assert grown_with == {"once": [0, 1, 1], "per-split": [0, 2, 2]}  # 6 > 2, but 6 - 8 < 2
    assert left == {"once": [0.0, 0.0], "per-split": [0.0, 0.0]}


@pytest.mark.parametrize(("charge", "features"), [("once", [[0, 1, 1]] * 2), ("per-split", [[0], [1]])])
def test_a_sensor_is_charged_for_one_tree_and_not_for_the_next(charge, features):
    """Price 8, gains 50 and 12. A whole step leaves nothing of what a tree has split on, half a step a quarter."""
    codes, g, h = effects(50.0, 12.0)

    class Squares:
        def derivatives(self, scores):
            return g + scores, h

    step = 0.5 if charge == "once" else 1.0
    shape = TreeSettings(learning_rate=step, max_leaves=4, max_depth=2, min_rows=1, l2=0.0, charge=charge)
    ensemble = Ensemble(Bins((np.array([0.5]),) * 2), np.arange(2), np.zeros(1))
    penalty = np.array([8.0])
    boost(ensemble, Squares(), codes, np.array([0, 0]), np.zeros((16, 1)), penalty, shape, 2)
    assert [tree.features.tolist() for tree in ensemble.trees] == features
    assert penalty.tolist() == [0.0]


def test_gate_and_classes_pay_for_a_sensor_together():
    codes, g, h = effects(5.0)
    both = np.hstack([g, g]), np.hstack([h, h])
    assert len(grown(codes, g, h, np.array([6.0]), n_bins=2, l2=0.0).features) == 0
    assert len(grown(codes, *both, np.array([6.0]), n_bins=2, l2=0.0).features) == 1
    assert len(grown(codes, *both, np.array([10.5]), n_bins=2, l2=0.0).features) == 0


def test_another_charge_is_refused():
    codes, g, h = effects(5.0)
    with pytest.raises(ValueError, match="charge is 'twice'; use one of once, per-split"):
        grown(codes, g, h, n_bins=2, charge="twice")


# ---------------------------------------------------------------- rows that weigh nothing


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_rows_of_weight_zero_change_neither_splits_nor_leaves(seed, n_outputs):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 5, (3, 80)).astype(np.uint8)
    weight = (np.arange(80) < 50).astype(float)[:, None]
    g = rng.integers(-9, 10, (80, n_outputs)) * weight  # whole numbers: sums are exact
    h = rng.integers(1, 4, (80, n_outputs)) * weight
    with_them = grown(codes, g, h)
    without = grown(codes[:, :50], g[:50], h[:50])
    assert with_them.features.tolist() == without.features.tolist()
    assert with_them.bins.tolist() == without.bins.tolist()
    assert with_them.leaves.tobytes() == without.leaves.tobytes()


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_where_no_row_weighs_anything_nothing_is_split_and_leaves_are_zero(n_outputs):
    codes = make(0)[0]
    nothing = np.zeros((40, n_outputs))
    tree = grown(codes, nothing, nothing, l2=0.0)
    assert tree.features.tolist() == []
    assert tree.leaves.tolist() == [[0.0] * n_outputs]


def test_a_half_without_weight_is_no_reason_to_split():
    codes = np.array([[0] * 5 + [1] * 5], dtype=np.uint8)
    heavy = (np.arange(10) < 5).astype(float)[:, None]
    for l2 in (0.0, 1.0):
        assert grown(codes, 3 * heavy, heavy, n_bins=2, l2=l2).features.tolist() == []


def test_min_rows_counts_rows_whatever_they_weigh():
    codes = np.array([[0] * 3 + [1] * 7], dtype=np.uint8)
    g, weight = np.where(codes[0] == 0, -1.0, 1.0), (np.arange(10) != 2).astype(float)
    args = (codes, (g * weight)[:, None], weight[:, None])
    assert grown(*args, n_bins=2, min_rows=3).leaf_of_row.tolist() == [0] * 3 + [1] * 7
    assert grown(*args, n_bins=2, min_rows=4).features.tolist() == []


def test_weights_count_as_repeated_rows():
    codes, g, h = make(3, n=30, missing=0.0)
    times = np.random.default_rng(3).integers(1, 4, 30)
    weighted = grown(codes, g * times[:, None], h * times[:, None])
    again = np.repeat(np.arange(30), times)
    repeated = grown(codes[:, again], g[again], h[again])
    assert weighted.features.tolist() == repeated.features.tolist()
    assert weighted.leaves == pytest.approx(repeated.leaves, rel=1e-12)
