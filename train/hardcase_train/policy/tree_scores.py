"""Scores of tree ensembles on many rows at once."""

from __future__ import annotations

import numpy as np
from numba import njit

from hardcase_edge.program.definition import MISSING, Trees
from hardcase_edge.program.stored_trees import children_of

__all__ = ["BLOCK", "add_tree", "score_trees"]

BLOCK = 1024  # rows that go down a tree together


def score_trees(scorer: Trees, codes: np.ndarray) -> np.ndarray:
    """Scores of an ensemble, (n, n_outputs) float64, for codes of shape (n_columns, n)."""
    out = np.tile(np.array(scorer.base, dtype=np.float64), (codes.shape[1], 1))
    columns = np.array(scorer.columns, dtype=np.int64)
    for tree in scorer.trees:
        n = len(tree.splits)
        add_tree(
            codes,
            MISSING,
            columns[np.array(tree.splits, dtype=np.int64)].astype(np.int32),
            np.array(tree.thresholds, dtype=np.int32),
            np.array(tree.missing_left, dtype=np.bool_),
            np.array(children_of(tree), dtype=np.int32).reshape(n, 2),
            np.array(tree.leaves, dtype=np.float64).reshape(n + 1, tree.width),
            out[:, tree.output : tree.output + tree.width],
        )
    return out


@njit(nogil=True, cache=True)
def add_tree(codes, missing, splits, thresholds, missing_left, children, leaves, out):
    """Add each row's leaf of one tree to ``out`` (n, width); ``codes`` is (n_columns, n).

    A block of rows goes down together, parted at every node: no branch hangs on a single row.
    """
    n_nodes, n = len(splits), codes.shape[1]
    rows, spare = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.uint32)
    todo = np.empty((n_nodes + 1, 3), np.int64)  # node and its part of ``rows``
    for first in range(0, n, BLOCK):
        size = min(BLOCK, n - first)
        for j in range(size):
            rows[j] = first + j
        todo[0, 0], todo[0, 1], todo[0, 2] = 0 if n_nodes > 0 else -1, 0, size
        top = 1
        while top > 0:
            top -= 1
            at, start, stop = todo[top]
            if start == stop:
                continue
            if at < 0:
                _add_leaf(leaves[-1 - at], rows[start:stop], out)
                continue
            middle = _part(rows, spare, start, stop, codes[splits[at]], missing, thresholds[at], missing_left[at])
            todo[top, 0], todo[top, 1], todo[top, 2] = children[at, 0], start, middle
            todo[top + 1, 0], todo[top + 1, 1], todo[top + 1, 2] = children[at, 1], middle, stop
            top += 2


@njit(nogil=True, cache=True)
def _part(rows, spare, start, stop, codes, missing, threshold, missing_left):
    """Rows that go left first; where the others begin."""
    at, other = start, 0
    for j in range(start, stop):
        i = rows[j]
        code = codes[i]
        left = int(missing_left if code == missing else code <= threshold)
        rows[at], spare[other] = i, i
        at += left
        other += 1 - left
    rows[at:stop] = spare[:other]
    return at


@njit(nogil=True, cache=True)
def _add_leaf(leaf, rows, out):
    for i in rows:
        for k in range(len(leaf)):
            out[i, k] += leaf[k]
