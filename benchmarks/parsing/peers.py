# SPDX-License-Identifier: Apache-2.0
"""Peers of learned policies: how much each part wants to buy, without looking at truth, for one-shot purchases.

The gap of max-marginals has no learning at all; the whole structure buys in ``myopic``, ``uniform_items`` and
``ItemValue``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from hardcase_train.methods.structured.anytime import Evidence
from hardcase_train.methods.structured.chain_features import gaps_of, item_means


def uniform_parts(starts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Parts in random order."""
    return rng.permutation(int(starts[-1])).astype(np.float64)


def uniform_items(starts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Items in random order, each with all its parts."""
    return np.repeat(rng.permutation(len(starts) - 1).astype(np.float64), np.diff(starts))


def own_margin(unary: np.ndarray) -> np.ndarray:
    """The part whose own scores are closest first; no inference."""
    return -gaps_of(unary)


def gap(max_marginals: np.ndarray) -> np.ndarray:
    """The part with the smallest gap of max-marginals first."""
    return -gaps_of(max_marginals)


def myopic(max_marginals: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The item with the least mean gap first, with all its parts (Trapeznikov and Saligrama, 2013)."""
    return -item_means(gaps_of(max_marginals), starts)


class ItemValue:
    """What buying all of an item saves, a part: one ridge regression of the saved loss on the item's features.

    Weiss and Taskar (2013) extract features of whole structures in steps, and learn what each step is worth with the
    value of the steps after it (Q-learning). One costly level leaves one step and no value after it, so nothing is
    iterated here.
    """

    def __init__(self, ridge: float = 1.0) -> None:
        self.ridge = ridge

    def fit(self, folds: Sequence[Evidence]) -> Self:
        """Learn from items that the folds' models have not seen."""
        rows = np.vstack([self._rows(f.features_in(np.zeros(len(f.truth), dtype=bool)), f.starts) for f in folds])
        saved = np.concatenate([_saved(fold) for fold in folds])
        gram = rows.T @ rows + self.ridge * np.eye(rows.shape[1])
        self.weights_ = np.linalg.solve(gram, rows.T @ saved)
        return self

    def scores(self, features: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """(n,) the expected saving of each part's item, a part, from features of the first inference."""
        return np.repeat(self._rows(features, starts) @ self.weights_, np.diff(starts))

    @staticmethod
    def _rows(features: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """(items, d): means of the features, of the first one (a chain's gap) where it saturates, and one."""
        gaps = features[:, :1]
        parts = np.hstack([features, np.exp(-gaps), np.exp(-gaps / 4)])
        means = np.add.reduceat(parts, starts[:-1]) / np.diff(starts)[:, None]
        return np.hstack([means, np.ones((len(means), 1))])


def _saved(fold: Evidence) -> np.ndarray:
    """(items,) share of parts that buying everything mends."""
    n = len(fold.truth)
    wrong = [fold.labels_in(np.full(n, bought)) != fold.truth for bought in (False, True)]
    return np.asarray(np.add.reduceat(wrong[0] * 1.0 - wrong[1], fold.starts[:-1]) / np.diff(fold.starts))
