# SPDX-License-Identifier: Apache-2.0
"""BudgetPrune: prune splits of a random forest that save fewer errors than the readings they need cost.

Nan, Wang and Saligrama, *Pruning Random Forests for Prediction on a Budget* (2016), with sensors instead of features:
the integer program (20) of docs/math.md, whose linear relaxation is exact. A sensor's reading, once bought for a row,
is free for all splits of all trees. ``max_closure`` solves the program.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from ...trees.binning import MISSING_BIN
from ...trees.forest import ForestTree
from .max_closure import Closure, Needs

UNIT = 2**44  # integer value of a gain or price of 1; the gains of a forest sum to at most 1
PRICED_ROWS = 12_000  # largest sample of rows on which costs are counted


class BudgetPrune:
    """A fitted forest that can be pruned for rising prices.

    Parameters
    ----------
    trees : as returned by ``forest.fit_forest``
    codes : ndarray of shape (n_features, n), uint8
        Bins of the rows on which errors and costs are counted.
    y, weights : ndarray of shape (n,)
    sensor_of : ndarray of shape (n_features,), int
    costs : ndarray of shape (n_sensors,), or (n, n_sensors) if they depend on the row
        In the user's unit.
    losses : ndarray of shape (n_classes, n_classes)
        Loss of each answer to a case of each class; None: each error counts 1.
    seed : int
        For the sample of at most ``PRICED_ROWS`` rows on which the mean cost is estimated.
    """

    def __init__(
        self,
        trees: Sequence[ForestTree],
        codes: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        sensor_of: np.ndarray,
        costs: np.ndarray,
        seed: int = 0,
        losses: np.ndarray | None = None,
    ) -> None:
        self.trees, n_sensors = trees, costs.shape[-1]
        rows = np.sort(np.random.default_rng(seed).permutation(len(y))[:PRICED_ROWS])
        gains, parents, counts, needed = [], [], [], []
        n_splits = 0
        for tree in trees:
            parent, split = _parents(tree, n_splits)
            errors = _errors(tree, codes, y, weights / (weights.sum() * len(trees)), losses)
            gains.append((errors - errors[tree.children].sum(axis=1))[split])
            parents.append(parent[split])
            count, reading = _readings(tree, codes[:, rows], sensor_of, n_sensors)
            counts.append(count[split])
            needed.append(reading)
            n_splits += len(split)
        used, reading = np.unique(np.concatenate(needed), return_inverse=True)
        start = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        self.needs = Needs(np.concatenate(parents), start, reading.astype(np.int64), len(used))
        self.gains = _units(np.concatenate(gains))  # (n_splits,) errors saved, as a share of rows
        row, sensor = rows[used // n_sensors], used % n_sensors
        paid = np.broadcast_to(costs, (len(y), n_sensors))[row, sensor]
        self._prices = paid * weights[row] / weights[rows].sum()
        self.closure = Closure(self.needs, self.gains)

    def prune(self, price: float) -> list[np.ndarray]:
        """The splits to keep of each tree, (n_nodes,) bool; the smallest of equally good sets.

        Parameters
        ----------
        price : float
            Errors (as a share of rows) that a unit of mean cost must save. Must not fall between calls.
        """
        is_kept = self.closure.raise_prices(self.prices(price))
        masks, at = [], 0
        for tree in self.trees:
            mask = tree.is_split.copy()
            n = int(mask.sum())
            mask[mask] = is_kept[at : at + n]
            masks.append(mask)
            at += n
        return masks

    def prices(self, price: float) -> np.ndarray:
        """The price of every reading, (n_readings,), in units of 1 / ``UNIT``; at most the sum of all gains."""
        return _units(np.minimum(price * self._prices, 1.0))


def _units(values: np.ndarray) -> np.ndarray:
    return np.round(values * UNIT).astype(np.int64)


def _parents(tree: ForestTree, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Each node's parent, splits being numbered from ``first``, -1 for the root; and the nodes that are splits."""
    split = np.flatnonzero(tree.is_split)
    parent = np.full(len(tree.feature), -1, dtype=np.int64)
    parent[tree.children[split]] = (first + np.arange(len(split)))[:, None]
    return parent, split


def _errors(
    tree: ForestTree, codes: np.ndarray, y: np.ndarray, weights: np.ndarray, losses: np.ndarray | None
) -> np.ndarray:
    """(n_nodes,) loss of each node as a leaf, over the rows that reach it."""
    guess = tree.shares.argmax(axis=1)
    errors = np.zeros(len(guess))
    losses = 1.0 - np.eye(tree.shares.shape[1]) if losses is None else losses
    codes = np.ascontiguousarray(codes)
    _add_errors(codes, tree.feature, tree.bins, tree.missing_left, tree.children, guess, y, weights, losses, errors)
    return errors


def _readings(
    tree: ForestTree, codes: np.ndarray, sensor_of: np.ndarray, n_sensors: int
) -> tuple[np.ndarray, np.ndarray]:
    """The number of readings that each node needs, (n_nodes,), and these by node, as row x n_sensors + sensor.

    A row needs a sensor at the first split on its path that reads it.
    """
    node, row = splits_on_paths(tree, codes, sensor_of)
    order = np.argsort(node, kind="stable")
    node, row = node[order], row[order]
    return np.bincount(node, minlength=len(tree.feature)), row * n_sensors + sensor_of[tree.feature[node]]


def splits_on_paths(tree: ForestTree, codes: np.ndarray, sensor_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (split, row) at which a row first needs a sensor, ordered by row and then along its path."""
    args = (codes, tree.feature, tree.bins, tree.missing_left, tree.children, sensor_of)
    n = _first_needs(*args, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    node, row = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    _first_needs(*args, node, row)
    return node, row


@njit(nogil=True, cache=True)
def _first_needs(
    codes: np.ndarray,
    feature: np.ndarray,
    bins: np.ndarray,
    missing_left: np.ndarray,
    children: np.ndarray,
    sensor_of: np.ndarray,
    node: np.ndarray,
    row: np.ndarray,
) -> int:
    """Fill ``node`` and ``row`` with the pairs, as far as they have room; the number of all pairs."""
    seen = np.full(sensor_of.max() + 1, -1)
    n = 0
    for i in range(codes.shape[1]):
        h = 0
        while feature[h] >= 0:
            f = feature[h]
            if seen[sensor_of[f]] != i:
                seen[sensor_of[f]] = i
                if n < len(node):
                    node[n], row[n] = h, i
                n += 1
            code = codes[f, i]
            left = missing_left[h] if code == MISSING_BIN else code <= bins[h]
            h = children[h, 0 if left else 1]
    return n


@njit(nogil=True, cache=True)
def _add_errors(
    codes: np.ndarray,
    feature: np.ndarray,
    bins: np.ndarray,
    missing_left: np.ndarray,
    children: np.ndarray,
    guess: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    losses: np.ndarray,
    errors: np.ndarray,
) -> None:
    """Add the weighted loss of each row to ``errors`` of the nodes on its path."""
    for i in range(codes.shape[1]):
        h = 0
        while True:
            errors[h] += weights[i] * losses[y[i], guess[h]]
            f = feature[h]
            if f < 0:
                break
            code = codes[f, i]
            left = missing_left[h] if code == MISSING_BIN else code <= bins[h]
            h = children[h, 0 if left else 1]
