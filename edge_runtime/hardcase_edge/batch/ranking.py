# SPDX-License-Identifier: Apache-2.0
"""Normalised discounted cumulative gain (NDCG) of scores within groups, with ties counted by their expectation.

Gain 2^y - 1 and discount log2(rank + 1) as in Burges et al. (2005), "Learning to rank using gradient descent"; ties as
in McSherry and Najork (2008), "Computing information retrieval performance measures efficiently in the presence of tied
scores".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["group_ndcg"]

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


def _gains(gain: Array, score: Array, group: Array, at: int) -> Array:
    """The expected discounted gain of each group, ranked by score, (n_groups,)."""
    order = np.lexsort((-score, group))
    g, s = group[order], score[order]
    row = np.arange(len(g))
    is_new_group = np.append(True, g[1:] != g[:-1])
    is_new_tie = is_new_group | np.append(True, s[1:] != s[:-1])
    rank = row - row[is_new_group][np.cumsum(is_new_group) - 1] + 1
    discount = np.where(rank <= at, 1.0 / np.log2(rank + 1.0), 0.0)
    tie = np.cumsum(is_new_tie) - 1
    mean_gain = np.bincount(tie, gain[order]) / np.bincount(tie)
    return np.bincount(g, mean_gain[tie] * discount)
