# SPDX-License-Identifier: Apache-2.0
"""Gradient boosting of trees whose leaves are vectors, with penalties on the sensors that splits acquire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
from numba import njit

from hardcase_edge.program.definition import CODE_MAX, Column, Number, Rank, Tree, Trees

from ..policy.tree_scores import add_tree
from .binning import MISSING_BIN, Bins
from .grower import Grower, GrownTree

NO_ROWS = np.empty(0, dtype=np.int32)


class Loss(Protocol):
    """The interface of a loss for boosting."""

    def derivatives(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and diagonal of the Hessian, each of the scores' shape."""


@dataclass(frozen=True)
class TreeSettings:
    """Shape of a tree, its learning rate, and how splits pay for sensors (``charge`` of ``grower.grow``)."""

    learning_rate: float = 0.2
    max_leaves: int = 16
    max_depth: int = 4
    min_rows: int = 5
    l2: float = 1.0
    max_bins: int = 64
    charge: str = "once"


@dataclass
class Ensemble:
    """Trees whose leaf values are added to ``base``; the values include the learning rate.

    ``outputs[t]`` is (first output, width) of tree t; ``features`` maps the trees' features to the table's.
    """

    bins: Bins
    features: np.ndarray  # (n_used,) table column of each feature of the trees
    base: np.ndarray  # (n_outputs,)
    trees: list[GrownTree] = field(default_factory=list)
    outputs: list[tuple[int, int]] = field(default_factory=list)

    def read(self) -> list[int]:
        """The table columns that the trees split, tree by tree."""
        return [int(self.features[f]) for tree in self.trees for f in tree.features]

    def columns(self, dtypes: Sequence[str]) -> list[Column]:
        """A rank column for each feature that the trees split, with the thresholds in use."""
        thresholds: dict[int, set[Number]] = {}
        for f, cut in self._splits(dtypes)[0]:
            thresholds.setdefault(f, set()).add(cut)
        return [Column(f, Rank(tuple(sorted(thresholds[f])))) for f in sorted(thresholds)]

    def scorer(self, dtypes: Sequence[str], columns: Sequence[Column]) -> Trees:
        """The draft scorer over a program's columns."""
        place, rank = {}, {}
        for k, column in enumerate(columns):
            if isinstance(column.rule, Rank):
                place[column.feature] = k
                rank[column.feature] = {value: k - CODE_MAX for k, value in enumerate(column.rule.thresholds)}
        pairs, which, starts = self._splits(dtypes)
        used = sorted({f for f, _ in pairs})
        local = {f: k for k, f in enumerate(used)}
        splits = np.array([local[f] for f, _ in pairs], dtype=np.int64)[which].tolist()
        thresholds = np.array([rank[f][cut] for f, cut in pairs], dtype=np.int64)[which].tolist()
        trees = [
            Tree(
                output=output,
                width=width,
                splits=tuple(splits[a:b]),
                thresholds=tuple(thresholds[a:b]),
                missing_left=tuple(np.asarray(tree.missing_left, dtype=bool).tolist()),
                children=tuple(map(tuple, np.asarray(tree.children).tolist())) if a < b else (),
                leaves=tuple(np.asarray(tree.leaves, dtype=np.float64).ravel().tolist()),
            )
            for tree, (output, width), (a, b) in zip(self.trees, self.outputs, pairwise(starts), strict=True)
        ]
        return Trees(tuple(place[f] for f in used), tuple(float(b) for b in self.base), tuple(trees))

    def _splits(self, dtypes: Sequence[str]) -> tuple[list[tuple[int, Number]], np.ndarray, list[int]]:
        """Different (table column, cut) of splits in order; which each split is; where those of each tree begin."""
        sizes = [len(tree.features) for tree in self.trees]
        keys = np.zeros(sum(sizes), dtype=np.int64)
        if len(keys):
            feature, bin_ = (
                np.concatenate([getattr(t, name) for t in self.trees]).astype(np.int64) for name in ("features", "bins")
            )
            keys = feature << 32 | bin_
        different, which = np.unique(keys, return_inverse=True)
        feature = different >> 32
        bin_ = np.minimum(different & 0xFFFFFFFF, self.bins.sizes[feature] - 1)
        cuts = {f: self._cuts(f, dtypes[int(self.features[f])]) for f in np.unique(feature).tolist()}
        owner = self.features[feature].tolist() if len(feature) else []
        pairs = [(f, cuts[k][b]) for f, k, b in zip(owner, feature.tolist(), bin_.tolist(), strict=True)]
        return pairs, which, np.cumsum([0, *sizes]).tolist()

    def only(self, which: Sequence[int]) -> Ensemble:
        """The ensemble with some of its outputs; each of its trees must have a single one."""
        place = {m: k for k, m in enumerate(which)}
        numbers = [t for t, (m, _) in enumerate(self.outputs) if m in place]
        trees, outputs = [self.trees[t] for t in numbers], [(place[self.outputs[t][0]], 1) for t in numbers]
        return Ensemble(self.bins, self.features, self.base[list(which)], trees, outputs)

    def _cuts(self, feature: int, dtype: str) -> list[Number]:
        """The upper end of each bin, in the feature's declared type.

        A split after the last bin separates all readings from missing ones: the largest value of the type does so.
        """
        cuts = self.bins.cuts[feature]
        if dtype == "i32":
            return [*cuts.astype(np.int64).tolist(), 2**31 - 1]
        return [*cuts.astype(np.float64).tolist(), float(np.finfo(np.float64 if dtype == "f64" else np.float32).max)]


def boost(
    ensemble: Ensemble,
    loss: Loss,
    codes: np.ndarray,
    sensor_of: np.ndarray,
    scores: np.ndarray,
    penalty: np.ndarray,
    settings: TreeSettings,
    n_trees: int,
    first_output: int = 0,
) -> None:
    """Add trees to an ensemble, each of which lowers the loss; stop early if no split has a positive gain.

    Parameters
    ----------
    codes : ndarray of shape (n_used, n), uint8
        Bins of the features the ensemble may use.
    sensor_of : ndarray of shape (n_used,), int
    scores : ndarray of shape (n, n_outputs), changed in place
        Current scores of the training rows.
    penalty : ndarray of shape (n_sensors,), changed in place
        Cost of each sensor that is not acquired yet, in units of the summed loss; 0 once it is acquired.
    first_output : int
        The loss applies to ``scores[:, first_output:]``.
    """
    grower = Grower(codes, ensemble.bins.sizes, sensor_of)
    extend(ensemble, loss, grower, scores, penalty, settings, n_trees, first_output)


def extend(
    ensemble: Ensemble,
    loss: Loss,
    grower: Grower,
    scores: np.ndarray,
    penalty: np.ndarray,
    settings: TreeSettings,
    n_trees: int,
    first_output: int = 0,
) -> None:
    """Like ``boost``, with the caller's grower, for an ensemble that gets its trees in several rounds."""
    shape = {key: getattr(settings, key) for key in ("max_leaves", "max_depth", "min_rows", "l2", "charge")}
    own_scores = scores[:, first_output:]
    for _ in range(n_trees):
        tree = grower.grow(*loss.derivatives(own_scores), penalty, **shape)
        if len(tree.features) == 0:
            break
        tree.leaves[:] *= settings.learning_rate
        _add_leaves(tree.leaves, tree.leaf_of_row, scores, first_output)
        ensemble.trees.append(replace(tree, leaf_of_row=NO_ROWS))  # an entry a row and tree: gigabytes
        ensemble.outputs.append((first_output, tree.leaves.shape[1]))
    grower.release()


def ensemble_scores(ensemble: Ensemble, codes: np.ndarray) -> np.ndarray:
    """Scores, (n, n_outputs), of rows given as bins (n_used, n)."""
    scores = np.tile(ensemble.base, (codes.shape[1], 1))
    codes = np.ascontiguousarray(codes)
    for tree, (output, _) in zip(ensemble.trees, ensemble.outputs, strict=True):
        shape = (tree.features, tree.bins, tree.missing_left, tree.children, tree.leaves)
        add_tree(codes, MISSING_BIN, *shape, scores, output)
    return scores


@njit(nogil=True, cache=True)
def _add_leaves(leaves: np.ndarray, leaf_of_row: np.ndarray, out: np.ndarray, output: int) -> None:
    for i in range(len(leaf_of_row)):
        for k in range(leaves.shape[1]):
            out[i, output + k] += leaves[leaf_of_row[i], k]
