# SPDX-License-Identifier: Apache-2.0
"""Random forests over bins with class shares in every node, so that any split can be pruned to a leaf.

There are two kinds: the best splits of bootstrap samples (Breiman, *Random Forests*, 2001), and the best of random
splits, one drawn per feature, on all rows (Geurts et al., *Extremely randomized trees*, 2006).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from hardcase_edge.program.limits import MAX_NODES

from ..policy.losses import class_outputs
from .binning import MISSING_BIN, Bins
from .boosting import Ensemble
from .grower import GrownTree


@dataclass(frozen=True)
class ForestSettings:
    """Shape of a forest.

    max_features : share of the features from which each split is chosen
    max_leaves : of a tree; None for the most with which each split of the forest may become two nodes of a program
    is_drawn : splits are drawn at random, and every tree is grown on all rows
    """

    n_trees: int = 16
    max_features: float = 1.0
    min_rows: int = 1
    max_depth: int = 32
    max_leaves: int | None = None
    is_drawn: bool = False


@dataclass(frozen=True)
class ForestTree:
    """One tree; node 0 is its root, and children have larger numbers than their parents.

    feature : (n_nodes,) int32, -1 at a leaf
    bins : (n_nodes,) int32: go left if bin <= this
    missing_left : (n_nodes,) bool
    children : (n_nodes, 2) int32, -1 at a leaf
    shares : (n_nodes, n_classes) weighted class shares of the rows it was grown on, or (n_nodes, 1) their mean value
    """

    feature: np.ndarray
    bins: np.ndarray
    missing_left: np.ndarray
    children: np.ndarray
    shares: np.ndarray

    @property
    def is_split(self) -> np.ndarray:
        """(n_nodes,) bool, False at leaves."""
        return np.asarray(self.feature >= 0)

    def cut(self, keep: np.ndarray, leaves: np.ndarray) -> GrownTree:
        """Prune the tree to the splits ``keep``, (n_nodes,) bool; ``leaves``, (n_nodes, width), has the leaf values."""
        splits: list[int] = []
        ends: list[int] = []
        nodes = [0]
        for h in nodes:  # grows while it is walked: breadth first, so that children come after parents
            (splits if keep[h] else ends).append(h)
            nodes += self.children[h].tolist() if keep[h] else []
        number = {h: k for k, h in enumerate(splits)} | {h: -1 - k for k, h in enumerate(ends)}
        children = [(number[int(a)], number[int(b)]) for a, b in self.children[splits]]
        return GrownTree(
            self.feature[splits],
            self.bins[splits],
            self.missing_left[splits],
            np.array(children, dtype=np.int32).reshape(-1, 2),
            leaves[ends],
            np.empty(0, dtype=np.int32),
        )


def fit_forest(
    codes: np.ndarray, y: np.ndarray, n_classes: int, weights: np.ndarray, settings: ForestSettings, seed: int = 0
) -> list[ForestTree]:
    """Grow a forest with scikit-learn on bins, which are exact in float32.

    Parameters
    ----------
    codes : ndarray of shape (n_features, n), uint8
        Bins, ``MISSING_BIN`` for missing; each split learns the direction of missing readings.
    y : ndarray of shape (n,), class index, or value if ``n_classes`` is 0
    weights : ndarray of shape (n,), > 0
    """
    X = codes.T.astype(np.float32)
    X[X == MISSING_BIN] = np.nan
    of_classes = ExtraTreesClassifier if settings.is_drawn else RandomForestClassifier
    of_values = ExtraTreesRegressor if settings.is_drawn else RandomForestRegressor
    forest = (of_classes if n_classes else of_values)(
        settings.n_trees,
        max_features=settings.max_features,
        min_samples_leaf=settings.min_rows,
        max_leaf_nodes=settings.max_leaves or MAX_NODES // 2 // settings.n_trees,
        max_depth=settings.max_depth,
        random_state=seed,
    )
    forest.fit(X, y, sample_weight=weights)
    if not n_classes:
        return [_tree(member.tree_, member.tree_.value[:, 0]) for member in forest.estimators_]
    return [_tree(member.tree_, _shares(member.tree_, forest.classes_, n_classes)) for member in forest.estimators_]


def _shares(tree: Any, classes: np.ndarray, n_classes: int) -> np.ndarray:
    shares = np.zeros((tree.node_count, n_classes))
    shares[:, classes] = tree.value[:, 0] / tree.value[:, 0].sum(axis=1, keepdims=True)
    return shares


def _tree(tree: Any, shares: np.ndarray) -> ForestTree:
    children = np.column_stack([tree.children_left, tree.children_right]).astype(np.int32)
    return ForestTree(
        feature=np.where(children[:, 0] < 0, -1, tree.feature).astype(np.int32),
        bins=np.floor(np.minimum(tree.threshold, MISSING_BIN - 1)).astype(
            np.int32
        ),  # inf separates present from missing
        missing_left=tree.missing_go_to_left.astype(bool),
        children=children,
        shares=shares,
    )


def forest_ensemble(bins: Bins, trees: list[ForestTree], keep: list[np.ndarray]) -> Ensemble:
    """The trees pruned to the splits ``keep``, as an ensemble of class shares; for two classes, of their difference.

    Trees of values are added up to their mean.
    """
    n_outputs = trees[0].shares.shape[1]
    width = class_outputs(n_outputs)
    ensemble = Ensemble(bins, np.arange(len(bins.cuts)), np.zeros(width))
    for tree, splits in zip(trees, keep, strict=True):
        shares = tree.shares / len(trees) if n_outputs == 1 else tree.shares
        shares = shares[:, 1:] - shares[:, :1] if n_outputs == 2 else shares
        ensemble.trees.append(tree.cut(splits, shares))
        ensemble.outputs.append((0, width))
    return ensemble
