# SPDX-License-Identifier: Apache-2.0
"""Additive models: one table of scores per feature, learned as boosted stumps and stored as one tree per feature.

An explainable boosting machine without pairs (Lou, Caruana and Gehrke 2012). Each table reads one sensor, so a model of
several sensors is the sum of what each of them says, and a device walks one small tree for each feature.
"""

from __future__ import annotations

import numpy as np

from .binning import MISSING_BIN
from .boosting import NO_ROWS, Ensemble, TreeSettings, ensemble_scores
from .grower import GrownTree

__all__ = ["STUMPS", "tables"]

STUMPS = TreeSettings(learning_rate=0.3, max_leaves=2, max_depth=1, min_rows=20, l2=1.0)


def tables(ensemble: Ensemble) -> Ensemble:
    """The ensemble of stumps with all stumps of a feature as one tree, which gives the same sums."""
    by_feature: dict[int, list[int]] = {}
    for t, tree in enumerate(ensemble.trees):
        by_feature.setdefault(int(tree.features[0]), []).append(t)
    width, nothing = len(ensemble.base), np.zeros(len(ensemble.base))
    trees = []
    for feature, numbers in sorted(by_feature.items()):
        codes = np.zeros((len(ensemble.features), int(ensemble.bins.sizes[feature]) + 1), dtype=np.uint8)
        codes[feature] = [*range(codes.shape[1] - 1), MISSING_BIN]
        own = [ensemble.trees[t] for t in numbers]
        part = Ensemble(ensemble.bins, ensemble.features, nothing, own, [(0, width)] * len(own))
        trees.append(_table(feature, ensemble_scores(part, codes)))
    return Ensemble(ensemble.bins, ensemble.features, ensemble.base, trees, [(0, width)] * len(trees))


def _table(feature: int, scores: np.ndarray) -> GrownTree:
    """The tree of a feature with these scores (n_bins + 1, n_outputs), of its bins and last of a missing reading."""
    bins, missing = scores[:-1], scores[-1]
    first = np.flatnonzero(np.append(True, (bins[1:] != bins[:-1]).any(axis=1)))  # of each run of equal bins
    cells = bins[first]
    alike = np.flatnonzero((cells == missing).all(axis=1))
    leaves = cells if len(alike) else np.vstack([cells, missing])
    home = int(alike[0]) if len(alike) else 0
    nodes: list[tuple[int, bool]] = []  # a bin, and whether a missing reading goes left
    children: list[list[int]] = []

    def add(cut: int, missing_left: bool) -> int:
        nodes.append((cut, missing_left))
        children.append([0, 0])
        return len(nodes) - 1

    def search(low: int, high: int) -> int:
        """The node that finds one of the cells low to high, or -1-k for cell k alone."""
        if low == high:
            return -1 - low
        middle = (low + high) // 2
        node = add(int(first[middle + 1]) - 1, home <= middle)
        children[node] = [search(low, middle), search(middle + 1, high)]
        return node

    if not len(alike):  # a split after the last bin: all readings go left, a missing one goes right
        root = add(len(bins) - 1, False)
        children[root] = [search(0, len(cells) - 1), -len(leaves)]
    else:
        search(0, len(cells) - 1)
    cuts, missing_left = zip(*nodes, strict=True) if nodes else ((), ())
    return GrownTree(
        np.full(len(nodes), feature, dtype=np.int32),
        np.array(cuts, dtype=np.int32),
        np.array(missing_left, dtype=bool),
        np.array(children, dtype=np.int32).reshape(-1, 2),
        leaves,
        NO_ROWS,
    )
