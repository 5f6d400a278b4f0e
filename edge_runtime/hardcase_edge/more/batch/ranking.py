# SPDX-License-Identifier: Apache-2.0
"""NDCG, precision and average precision of scores within groups, with ties counted by their expectation.

Gain 2^y - 1 and discount log2(rank + 1) as in Burges et al. (2005), "Learning to rank using gradient descent"; ties as
in McSherry and Najork (2008), "Computing information retrieval performance measures efficiently in the presence of tied
scores".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def group_ndcg(y: Array, score: Array, group: Array, at: int) -> Array:
    """NDCG of each group's first ``at`` ranks, (n_groups,); NaN for a group without a relevant row.

    Rows of equal score take their ranks in every order with equal probability, so each of them has the mean gain of
    all of them.

    Parameters
    ----------
    y : relevance, from 0, (n,)
    score : (n,), the highest is ranked first
    group : index of the row's group, 0 to n_groups - 1, each at least once, (n,)
    """
    gain = np.exp2(np.asarray(y, dtype=np.float64)) - 1.0
    best = _gains(gain, gain, group, at)
    with np.errstate(invalid="ignore"):
        return np.asarray(_gains(gain, np.asarray(score, dtype=np.float64), group, at) / best)


def group_precision(y: Array, score: Array, group: Array, at: int) -> Array:
    """The share of relevant rows in each group's first ``at`` ranks, (n_groups,); arguments as for ``group_ndcg``.

    A row is relevant if y is above 0. It is a share of ``at``, also in groups of fewer rows; NaN for a group without a
    relevant row. docs/math.md (140).
    """
    is_relevant = (np.asarray(y) > 0).astype(np.float64)
    n_relevant = _gains(is_relevant, np.asarray(score, dtype=np.float64), group, at, is_discounted=False)
    return np.where(np.bincount(group, is_relevant) > 0, n_relevant / at, np.nan)


def group_average_precision(y: Array, score: Array, group: Array, at: int) -> Array:
    """The average precision of each group's first ``at`` ranks, (n_groups,); arguments as for ``group_precision``.

    Of one order it is the sum, over ranks r that hold a relevant row, of the share of relevant rows up to r, divided by
    the number of relevant rows, or by ``at`` if there are more. Over orders, two ranks of one tie of n rows, m of them
    relevant, both hold a relevant one with probability m (m - 1) / (n (n - 1)), and ranks of different ties
    independently. docs/math.md (141).
    """
    is_relevant, s = (np.asarray(y) > 0).astype(np.float64), np.asarray(score, dtype=np.float64)
    by_group = np.argsort(group, kind="stable")
    parts = np.split(by_group, np.cumsum(np.bincount(group))[:-1])
    return np.array([_average_precision(is_relevant[rows], s[rows], at) for rows in parts])


def _average_precision(is_relevant: Array, score: Array, at: int) -> float:
    if not is_relevant.any():
        return float("nan")
    levels, tie = np.unique(-score, return_inverse=True)
    n, m = np.bincount(tie), np.bincount(tie, is_relevant, len(levels))
    of_rank = np.searchsorted(np.cumsum(n), np.arange(min(at, len(score))), side="right")  # the tie of each rank
    share = (m / n)[of_rank]
    same = (m * (m - 1) / np.maximum(n * (n - 1), 1))[of_rank]
    both = np.where(of_rank[:, None] == of_rank[None], same[:, None], np.outer(share, share))
    np.fill_diagonal(both, share)
    ranks = np.arange(1, len(of_rank) + 1)
    return float((np.tril(both).sum(axis=1) / ranks).sum() / min(is_relevant.sum(), at))


def _gains(gain: Array, score: Array, group: Array, at: int, *, is_discounted: bool = True) -> Array:
    """The expected gain of each group's first ``at`` ranks by score, discounted by rank or not, (n_groups,)."""
    order = np.lexsort((-score, group))
    g, s = group[order], score[order]
    row = np.arange(len(g))
    is_new_group = np.append(True, g[1:] != g[:-1])
    is_new_tie = is_new_group | np.append(True, s[1:] != s[:-1])
    rank = row - row[is_new_group][np.cumsum(is_new_group) - 1] + 1
    discount = np.where(rank <= at, 1.0 / np.log2(rank + 1.0) if is_discounted else 1.0, 0.0)
    tie = np.cumsum(is_new_tie) - 1
    mean_gain = np.bincount(tie, gain[order]) / np.bincount(tie)
    return np.bincount(g, mean_gain[tie] * discount)
