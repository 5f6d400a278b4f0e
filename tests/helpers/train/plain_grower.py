# SPDX-License-Identifier: Apache-2.0
"""Random tables for the tree grower, and a plain reading of its formula: every split tried, row by row."""

from __future__ import annotations

import numpy as np

from hardcase_train.trees.binning import MISSING_BIN
from hardcase_train.trees.grower import grow

SHAPE = {"max_leaves": 8, "max_depth": 4, "min_rows": 1, "l2": 0.5}


def make(seed, n=40, n_features=4, n_outputs=2, n_bins=5, missing=0.2):
    """Random bins, gradients and hessians."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_bins, (n_features, n)).astype(np.uint8)
    codes[rng.random(codes.shape) < missing] = MISSING_BIN
    return codes, rng.normal(size=(n, n_outputs)), rng.uniform(0.05, 1.0, (n, n_outputs))


def grown(codes, gradient, hessian, penalty=None, owner=None, n_bins=5, **shape):
    owner = np.arange(len(codes)) if owner is None else np.asarray(owner)
    penalty = np.zeros(owner.max() + 1 if len(owner) else 1) if penalty is None else penalty
    bins = np.full(len(codes), n_bins) if np.isscalar(n_bins) else np.asarray(n_bins)
    return grow(codes, bins, owner, gradient, hessian, penalty, **{**SHAPE, **shape})


def saved(rows, left, gradient, hessian, l2):
    """What parting these rows lowers the loss by, to second order."""

    def half(part):
        g, h = gradient[part].sum(axis=0), hessian[part].sum(axis=0)
        return 0.5 * (g * g / (h + l2)).sum()

    return half(left) + half(np.setdiff1d(rows, left)) - half(rows)


def splits(codes, rows, n_bins=5):
    """(feature, bin, missing goes left, rows that go left) of every split there is."""
    for f in range(len(codes)):
        code = codes[f, rows]
        for missing_left in (False, True):
            for b in range(n_bins):
                yield f, b, missing_left, rows[np.where(code == MISSING_BIN, missing_left, code <= b)]


def best_gain(codes, rows, gradient, hessian, *, l2=0.5, min_rows=1, features=None):
    gains = [
        saved(rows, left, gradient, hessian, l2)
        for f, _, _, left in splits(codes, rows)
        if min_rows <= len(left) <= len(rows) - min_rows and (features is None or f in features)
    ]
    return max(gains, default=0.0)


def loss(tree, g, h, l2=0.5):
    """Second-order loss of the tree's leaves over its rows, the leaves' own penalty included."""
    value = tree.leaves[tree.leaf_of_row]
    return float((g * value + 0.5 * h * value**2).sum() + 0.5 * l2 * (tree.leaves**2).sum())


def depths(tree):
    out = np.zeros(len(tree.leaves), dtype=int)
    stack = [(0, 0)] if len(tree.features) else []
    while stack:
        at, depth = stack.pop()
        for child in tree.children[at]:
            if child >= 0:
                stack.append((int(child), depth + 1))
            else:
                out[-1 - child] = depth + 1
    return out
