# SPDX-License-Identifier: Apache-2.0
"""Scores of tree ensembles, and of stacks on them, for codes of shape (n_columns, n).

All trees are walked together, a few hundred rows at a time: the node numbers, (rows, trees), go one step down in a few
array operations. As in ``session.scoring``, each code is stored twice, with missing below and above every code. A leaf
leads to itself, so a step is only the comparison ``code <= threshold``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...program.definition import CODE_MAX, MISSING, Stack, Tree, Trees
from ...program.stored_trees import children_of, depth_of

Array = NDArray[Any]

CHUNK = 512  # rows walked at once, as many as fit a core's cache


def score_trees(s: Trees, codes: Array) -> Array:
    """Scores, (n, n_outputs), added tree by tree: int64 if all leaves and bases are integers, else float64."""
    trees = tuple(s.trees)
    parts = [(slice(t.output, t.output + t.width), _leaves(t)) for t in trees]
    return _scores(trees, np.array(s.base), parts, codes[list(s.columns)])


def score_stack(s: Stack, below: Trees, codes: Array) -> Array:
    """Scores, (n, n_outputs), of a stack on the ensemble ``below``: int64 if both hold integers, else float64."""
    trees = [below.trees[m] for m in s.members]
    weights = np.array(s.weights).reshape(len(s.bias), len(trees))
    parts = [(w != 0, _leaves(t) * w[w != 0, None]) for t, w in zip(trees, weights.T, strict=True)]
    return _scores(trees, np.array(s.bias), parts, codes[list(below.columns)])


def _leaves(tree: Tree) -> Array:
    """The values of a tree's leaves, (width, n_leaves)."""
    return np.array(tree.leaves).reshape(-1, tree.width).T


def _scores(trees: Sequence[Tree], start: Array, parts: Sequence[tuple[Any, Array]], codes: Array) -> Array:
    """``start``, (n_outputs,), plus what each tree adds; ``parts``: a tree's outputs and their values by leaf."""
    dtype = np.result_type(start, *{values.dtype for _, values in parts})
    forest = _Forest(trees, shares=dtype == np.int64)
    values = np.zeros((len(start), forest.n_leaves), dtype=dtype)
    adds = np.zeros((len(start), forest.n_shapes), dtype=np.bool_)
    for (outputs, leaves), (shape, first) in zip(parts, forest.places, strict=True):
        values[outputs, first : first + leaves.shape[1]] += leaves
        adds[outputs, shape] = True
    scores = np.tile(start.astype(dtype), (codes.shape[1], 1))
    for rows, reached in forest.walk(codes):
        for o, shapes in enumerate(adds):
            if shapes.any():
                added = values[o].take(reached if shapes.all() else reached[:, shapes])
                added[:, 0] += scores[rows, o]
                scores[rows, o] = np.cumsum(added, axis=1, out=added)[:, -1]
    return scores


class _Forest:
    """Trees laid out one after another, all nodes first and then all leaves.

    Parameters
    ----------
    shares : whether trees of the same shape are walked once; their leaves are then summed in a different order

    Attributes
    ----------
    places : for each tree, the number of its shape, and the number of that shape's first leaf among all leaves
    """

    def __init__(self, trees: Sequence[Tree], shares: bool) -> None:
        self.places: list[tuple[int, int]] = []
        self.n_leaves = 0
        shapes: dict[object, tuple[int, int]] = {}
        first: list[Tree] = []  # of each shape
        for k, tree in enumerate(trees):
            key = (tree.splits, tree.thresholds, tree.missing_left, tree.children) if shares else k
            if key not in shapes:
                shapes[key] = len(first), self.n_leaves
                first.append(tree)
                self.n_leaves += len(tree.splits) + 1
            self.places.append(shapes[key])
        self.n_shapes = len(first)
        self._lay(first)

    def _lay(self, trees: Sequence[Tree]) -> None:
        self._n_nodes = sum(len(tree.splits) for tree in trees)
        size = self._n_nodes + self.n_leaves
        self._slot, self._threshold = np.zeros(size, dtype=np.int32), np.full(size, CODE_MAX, dtype=np.int32)
        child = np.repeat(np.arange(size, dtype=np.int32), 2).reshape(size, 2)  # right, left
        roots, node, leaf = [], 0, self._n_nodes
        for tree in trees:
            n = len(tree.splits)
            roots.append(node if n else leaf)
            if n:
                own, pairs = slice(node, node + n), np.array(children_of(tree))
                self._slot[own] = 2 * np.array(tree.splits) + ~np.array(tree.missing_left, dtype=np.bool_)
                self._threshold[own] = tree.thresholds
                child[own] = np.where(pairs < 0, leaf - 1 - pairs, node + pairs)[:, ::-1]
            node, leaf = node + n, leaf + n + 1
        self._child, self._roots = child.ravel(), np.array(roots, dtype=np.int32)
        self._n_steps = max(map(depth_of, trees), default=0)

    def walk(self, codes: Array) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Yield a slice of rows and the leaf that each of these rows reaches in each shape, (rows, n_shapes)."""
        n = codes.shape[1]
        slots = np.zeros((n, max(2 * len(codes), 1)), dtype=np.int32)
        slots[:, ::2] = codes.T if len(codes) else 0
        slots[:, 1::2] = np.where(codes == MISSING, -MISSING - 1, codes).T
        for start in range(0, n, CHUNK):
            rows = slots[start : start + CHUNK]
            offset = (np.arange(len(rows), dtype=np.int32) * rows.shape[1])[:, None]
            flat = rows.ravel()
            node = np.broadcast_to(self._roots, (len(rows), self.n_shapes)).copy()
            for _ in range(self._n_steps):
                left = flat.take(self._slot.take(node) + offset) <= self._threshold.take(node)
                node = self._child.take(2 * node + left)
            yield slice(start, start + len(rows)), node.astype(np.int64) - self._n_nodes
