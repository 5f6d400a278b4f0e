# SPDX-License-Identifier: Apache-2.0
"""Chains and trees by trying everything, and small made-up words and sentences."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np

from hardcase_train.structured.chain import ChainClassifier

LEVELS = ((0, 1), (0, 1, 2, 3))


def labelling_score(unary, transitions, start, stop, labels) -> float:
    inside = sum(transitions[a, b] for a, b in itertools.pairwise(labels))
    return float(sum(unary[i, k] for i, k in enumerate(labels)) + start[labels[0]] + stop[labels[-1]] + inside)


def all_labellings(unary, transitions, start, stop) -> dict[tuple[int, ...], float]:
    n, n_labels = unary.shape
    every = itertools.product(range(n_labels), repeat=n)
    return {y: labelling_score(unary, transitions, start, stop, y) for y in every}


@cache
def all_trees(n: int, is_single: bool, is_projective: bool) -> tuple[tuple[int, ...], ...]:
    """Every tree over n words, as heads."""
    found = []
    for heads in itertools.product(range(n + 1), repeat=n):
        if is_single and heads.count(0) != 1:
            continue
        if not all(_reaches_root(heads, m) for m in range(1, n + 1)):
            continue
        edges = [tuple(sorted((m + 1, h))) for m, h in enumerate(heads)]
        crosses = any(a < c < b < d for a, b in edges for c, d in edges)
        if not (is_projective and crosses):
            found.append(heads)
    return tuple(found)


def _reaches_root(heads: tuple[int, ...], m: int) -> bool:
    for _ in range(len(heads)):
        m = heads[m - 1]
        if m == 0:
            return True
    return False


def tree_score(scores, heads) -> float:
    return float(sum(scores[h, m + 1] for m, h in enumerate(heads)))


def made_up_words(n_items: int, seed: int, noise: float = 1.0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Items whose neighbours' labels hang together, with two weak and two strong features a part."""
    rng = np.random.default_rng(seed)
    ways = np.random.default_rng(7).dirichlet(np.full(3, 0.4), 3)
    weak, strong = np.random.default_rng(8).normal(size=(3, 2)), 3 * np.random.default_rng(9).normal(size=(3, 2))
    X, y = [], []
    for _ in range(n_items):
        labels = [int(rng.integers(3))]
        for _ in range(int(rng.integers(0, 6))):
            labels.append(int(rng.choice(3, p=ways[labels[-1]])))
        codes = np.array(labels)
        parts = np.hstack([weak[codes], strong[codes]])
        X.append(parts + noise * rng.normal(size=parts.shape))
        y.append(codes)
    return X, y


def sentences(n: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Chains of words to the left and the right of a root's child; words 8 are on its right, words 9 on its left.

    One in three words has a tag that does not say the side, so that cheap features are not enough.
    """
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        size = int(rng.integers(3, 8))
        place, root = np.arange(size), int(rng.integers(size))
        heads = np.where(place > root, place, place + 2)
        heads[root] = 0
        words = np.where(place == root, 7, np.where(place > root, 8, 9))
        tags = np.where(rng.random(size) < 0.7, 6, words - 3)
        X.append(np.stack([words, np.full(size, 3), tags, tags], axis=1))
        y.append(heads)
    return X, y


def small_chain(n_epochs: int = 3, **params) -> ChainClassifier:
    return ChainClassifier(LEVELS, n_epochs=n_epochs, **params)
