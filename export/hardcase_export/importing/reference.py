# SPDX-License-Identifier: Apache-2.0
"""Reference scores of a source model, computed in float64 from its plain numbers by the source's own thresholds.

Each row walks each tree, and sums are made tree by tree in the source's order. This code shares nothing with the
integers of a program, so a program is compared with it if the source's own library is not at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..sources.source import Network, Source, SourceTree

ACTIVATIONS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
}


def reference_scores(source: Source, X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores (n, n_outputs) of rows (n, n_features), NaN = missing."""
    if source.dtype == "f32":
        with np.errstate(over="ignore"):
            X = X.astype(np.float32).astype(np.float64)
    if source.linear is not None:
        return np.asarray(source.linear.filled(X) @ source.linear.weights.T + source.linear.bias)
    if source.network is not None:
        return _network_scores(source.network, X)
    out = np.tile(np.array(source.base, dtype=np.float64), (len(X), 1))
    columns = [(x, bool(np.isnan(x).any())) for x in np.ascontiguousarray(X.T)]
    for tree in source.trees:
        leaf = _leaves(tree, columns, len(X))
        out[:, tree.output : tree.output + tree.leaves.shape[1]] += tree.leaves[leaf]
    return out


def _network_scores(network: Network, X: NDArray[np.float64]) -> NDArray[np.float64]:
    x = (X - network.centre) * network.factor
    with np.errstate(over="ignore"):
        for layer in network.layers:
            x = ACTIVATIONS[layer.activation](x @ layer.weights.T + layer.bias)
    return np.asarray(x)


def _leaves(tree: SourceTree, columns: Sequence[tuple[NDArray[np.float64], bool]], n: int) -> NDArray[np.int64]:
    """The leaf that each of n rows reaches, (n,). ``columns``: each feature's values, and whether any is missing."""
    leaf = np.zeros(n, dtype=np.int64)
    pending = [(0 if tree.splits else -1, np.arange(n))]
    while pending:
        node, rows = pending.pop()
        if node < 0:
            leaf[rows] = -1 - node
            continue
        feature, cuts, sides, missing_left = tree.splits[node]
        column, has_missing = columns[feature]
        x = column.take(rows)
        if sides in ((True, False), (False, True)):
            left = (x <= cuts[0]) == sides[0]
        else:
            left = np.array(sides)[np.searchsorted(np.array(cuts), x, side="left") if cuts else np.zeros(len(x), int)]
        if has_missing:
            left = np.where(np.isnan(x), missing_left, left)
        for child, side_rows in zip(tree.children[node], (rows[left], rows[~left]), strict=True):
            if len(side_rows):
                pending.append((child, side_rows))
    return leaf


def labels_of_scores(scores: NDArray[np.floating] | NDArray[np.integer], *, ties_up: bool = False) -> NDArray[np.int64]:
    """Class indices (n,): by the sign of one score, or the first of the highest of several."""
    if scores.shape[1] > 1:
        return np.asarray(scores.argmax(axis=1), dtype=np.int64)
    up = scores[:, 0] >= 0 if ties_up else scores[:, 0] > 0
    return np.asarray(up, dtype=np.int64)
