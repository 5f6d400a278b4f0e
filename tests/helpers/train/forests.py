# SPDX-License-Identifier: Apache-2.0
"""A small forest, its pruner, and what its kept splits read, by walking every path."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from hardcase_edge.program.definition import MICRO, Sensor
from hardcase_train.methods.prune.budget_prune import BudgetPrune
from hardcase_train.trees.binning import MISSING_BIN, make_bins
from hardcase_train.trees.forest import ForestSettings, fit_forest
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
