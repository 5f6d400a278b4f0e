"""A tournament of actions: the matches of a filter tree on many rows at once."""

from __future__ import annotations

import numpy as np

__all__ = ["Bracket", "play"]

Bracket = tuple[tuple[int, int], ...]  # entrants are 0 to n - 1, then the winners of matches in their order


def play(bracket: Bracket, scores: np.ndarray, has: np.ndarray) -> np.ndarray:
    """Each row's winner, (n,), as a program's tournament has it.

    Parameters
    ----------
    scores : (n, n_matches), above 0 the second of a pair wins
    has : (n_entrants, n) bool; who is not there is passed over, and where nobody is, all are
    """
    has = has | ~has.any(axis=0)
    who = [np.where(here, k, -1) for k, here in enumerate(has)]
    for m, (a, b) in enumerate(bracket):
        second = (who[a] < 0) | ((who[b] >= 0) & (scores[:, m] > 0))
        who.append(np.where(second, who[b], who[a]))
    return np.asarray(who[-1])
