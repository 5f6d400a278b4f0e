# SPDX-License-Identifier: Apache-2.0
"""Items of several parts: lists of (parts, features) arrays, and the same with all parts one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np


def starts_of(items: Sequence[np.ndarray]) -> np.ndarray:
    """(n_items + 1,) where each item begins when all lie one after the other, and the end.

    >>> starts_of([np.zeros((3, 2)), np.zeros((1, 2))]).tolist()
    [0, 3, 4]
    """
    return np.cumsum([0, *(len(item) for item in items)]).astype(np.int64)


def flatten(items: Sequence[np.ndarray], dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """All parts one after the other, and where each item begins.

    Raises
    ------
    ValueError
        There are no items, or one has no parts, or their parts differ in width.
    """
    if not len(items) or not all(len(item) for item in items):
        raise ValueError("an item needs at least one part, and there must be an item; drop empty ones")
    return np.ascontiguousarray(np.concatenate([np.asarray(item) for item in items]), dtype=dtype), starts_of(items)


def as_items(values: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
    """The list of items again; views, nothing is copied."""
    return [values[a:b] for a, b in pairwise(starts)]


def take(items: Sequence[np.ndarray], which: np.ndarray) -> list[np.ndarray]:
    """The items of these numbers."""
    return [items[int(k)] for k in which]


def folds_of(n_items: int, n_folds: int, rng: np.random.Generator, groups: np.ndarray | None = None) -> np.ndarray:
    """(n_items,) a fold for each item; items of one group have the same fold, and folds are of about one size."""
    if groups is None:
        return rng.permutation(np.arange(n_items) % n_folds)
    names, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    if len(names) < n_folds:
        raise ValueError(f"{len(names)} groups cannot be divided into {n_folds} folds; use fewer folds")
    fold_of, sizes = np.zeros(len(names), dtype=np.int64), np.zeros(n_folds)
    order = rng.permutation(len(names))
    for g in order[np.argsort(-counts[order], kind="stable")]:
        fold_of[g] = np.argmin(sizes)
        sizes[fold_of[g]] += counts[g]
    return fold_of[group]


def part_place(starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For all parts: the item, the place in it from 0 on, and how many parts the item has."""
    sizes = np.diff(starts)
    item = np.repeat(np.arange(len(sizes)), sizes)
    return item, np.arange(starts[-1]) - starts[:-1][item], sizes[item]
