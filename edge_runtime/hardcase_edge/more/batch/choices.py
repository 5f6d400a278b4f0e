# SPDX-License-Identifier: Apache-2.0
"""The margins, classes and targets that nodes choose by scores of shape (n, n_outputs), as the session does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...program.definition import ARGMAX, THRESHOLD, TOURNAMENT, Branch

Array = NDArray[Any]
Bracket = tuple[tuple[int, int], ...]  # entrants are 0 to n - 1, then the winners of the matches, in order


def margins_of(scores: Array) -> Array:
    """Each row's best score minus its second best, (n,); |s| for a single score s, which stands for (0, s)."""
    if scores.shape[1] == 1:
        return np.abs(scores[:, 0])
    top = np.partition(scores, -2, axis=1)
    return np.asarray(top[:, -1] - top[:, -2])


def classes_of(scores: Array) -> NDArray[np.int64]:
    """The class with each row's best score, (n,); the first of equals."""
    return (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)


def values_of(scores: Array, shift: int) -> Array:
    """Integer scores (n,) times 2^shift, rounded to the nearest integers, halves up."""
    return scores << shift if shift >= 0 else (scores + (1 << -shift - 1)) >> -shift


def choose(node: Branch, scores: Array, can: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """The index in ``node.targets`` of each row's target, (n,).

    Parameters
    ----------
    scores : (n, n_outputs) those of the node's slice
    can : (n_targets, n) which targets are available; a row without any takes the rule's first choice. None: all are
    """
    can = np.ones((len(node.targets), len(scores)), dtype=np.bool_) if can is None else can
    if node.rule == TOURNAMENT:
        return play(node.bracket, scores, can)
    if node.rule == ARGMAX:
        return _best(scores, can)
    above = scores[:, 0] > node.threshold if node.rule == THRESHOLD else margins_of(scores) >= node.threshold
    return np.where(can[0] == can[1], above, can[1]).astype(np.int64)


def _best(scores: Array, can: NDArray[np.bool_]) -> NDArray[np.int64]:
    if scores.shape[1] == 1:
        scores = np.column_stack([np.zeros_like(scores), scores])
    order = np.argsort(-scores, axis=1, kind="stable")
    first = np.take_along_axis(can.T, order, axis=1).argmax(axis=1)  # 0, the best, if none is available
    return np.take_along_axis(order, first[:, None], axis=1)[:, 0]


def play(bracket: Bracket, scores: Array, can: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Each row's winner of a tournament, (n,).

    Parameters
    ----------
    scores : (n, n_matches), where above 0 the second of a pair wins
    can : (n_entrants, n) which entrants are available; the others lose their matches, unless none is available
    """
    can = can | ~can.any(axis=0)
    winners = [np.where(entrants, k, -1) for k, entrants in enumerate(can)]
    for m, (a, b) in enumerate(bracket):
        second = (winners[a] < 0) | ((winners[b] >= 0) & (scores[:, m] > 0))
        winners.append(np.where(second, winners[b], winners[a]))
    return np.asarray(winners[-1])
