# SPDX-License-Identifier: Apache-2.0
"""Memory of a growing tree: its nodes, the rows and sums of its leaves, and the steps of a leaf's rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Growth(NamedTuple):
    """State of a growing tree; leaf a has the rows ``rows[start[a] : stop[a]]`` and the sums ``sums[slot[a]]``."""

    features: np.ndarray  # this and the next three as in GrownTree, for the largest number of nodes
    bins: np.ndarray
    missing_left: np.ndarray
    children: np.ndarray
    n_leaves: np.ndarray  # (1,)
    rows: np.ndarray  # (n,) uint32, by leaf; unsigned indices are faster, as they cannot count from the end
    spare: np.ndarray  # (n,) uint32
    ordered: np.ndarray  # (n, width): the steps of a leaf's rows, one after the other
    start: np.ndarray  # this and the following: for each leaf
    stop: np.ndarray
    depth: np.ndarray
    parent: np.ndarray  # node above, or -1
    side: np.ndarray  # 0 for its left child, 1 for its right
    slot: np.ndarray
    totals: np.ndarray  # (max_leaves, n_sums)
    best: np.ndarray  # (max_leaves, n_features, 3): the best split of each feature
    sums: np.ndarray  # (max_leaves, n_cells, width): as of steps


def width_of(n_sums: int) -> int:
    """Numbers in a row's steps: gradients, Hessians, 1 for the row's count, and zeros up to a multiple of four."""
    return (n_sums + 4) // 4 * 4


def _aligned(shape: tuple[int, ...]) -> np.ndarray:
    """An uninitialised float64 array that begins at a cache line."""
    size = 8 * int(np.prod(shape))
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(np.float64).reshape(shape)


def room(n: int, n_features: int, n_cells: int, n_sums: int, max_leaves: int) -> Growth:
    """Uninitialised memory for a tree of n rows."""
    return Growth(
        features=np.empty(max_leaves, np.int32),
        bins=np.empty(max_leaves, np.int32),
        missing_left=np.empty(max_leaves, np.bool_),
        children=np.empty((max_leaves, 2), np.int32),
        n_leaves=np.empty(1, np.int64),
        rows=np.empty(n, np.uint32),
        spare=np.empty(n, np.uint32),
        ordered=_aligned((n, width_of(n_sums))),
        start=np.empty(max_leaves, np.int64),
        stop=np.empty(max_leaves, np.int64),
        depth=np.empty(max_leaves, np.int64),
        parent=np.empty(max_leaves, np.int64),
        side=np.empty(max_leaves, np.int64),
        slot=np.empty(max_leaves, np.int64),
        totals=np.empty((max_leaves, n_sums)),
        best=np.empty((max_leaves, n_features, 3)),
        sums=_aligned((max_leaves, n_cells, width_of(n_sums))),
    )
