"""Filter trees: choosing among several actions of known costs by matches between two, each a weighted binary problem.

Beygelzimer, Langford and Ravikumar, *Multiclass classification with filter trees* (2007). The first entrant is the one
to stop: the others play it off among themselves and their winner meets it in the final, so that the last match is
"stop or go on". A match is learned from the rows' costs of the two that come to it, as learned earlier matches send
them, weighted by how far these costs lie apart. What learns a round of matches is anything that scores rows: above
zero the second of the pair wins, as in a program's tournament. docs/math.md (61) to (63).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hardcase_edge.batch.choices import Bracket

__all__ = ["Round", "bracket_of", "learn_matches", "without"]

# (numbers of the matches, label (n_matches, n) 1 where the second should win, weight (n_matches, n)) -> scores, as they
Round = Callable[[Sequence[int], np.ndarray, np.ndarray], np.ndarray]


def bracket_of(n: int) -> Bracket:
    """Entrants 1 to n - 1 in pairs, round by round, and entrant 0 against their winner."""
    matches: list[tuple[int, int]] = []
    playing = list(range(1, n))
    while len(playing) > 1:
        after = []
        for a, b in zip(playing[::2], playing[1::2], strict=False):
            matches.append((a, b))
            after.append(n + len(matches) - 1)
        playing = after + playing[len(playing) - len(playing) % 2 :]
    return (*matches, (0, playing[0])) if playing else ()


def rounds(bracket: Bracket, n: int) -> list[list[int]]:
    """Numbers of the matches that can be held at once, round by round."""
    depth: list[int] = []
    for a, b in bracket:
        depth.append(1 + max([depth[x - n] for x in (a, b) if x >= n], default=0))
    return [[m for m, d in enumerate(depth) if d == r] for r in range(1, max(depth, default=0) + 1)]


def learn_matches(costs: np.ndarray, weight: np.ndarray, bracket: Bracket, learn: Round) -> np.ndarray:
    """Each row's choice of the tree that is learned, (n,).

    Parameters
    ----------
    costs : (n, n_actions) of each row's actions
    weight : (n,) of the rows
    learn : what learns matches; the scores that it gives back decide which rows' winners later rounds see
    """
    n, k = costs.shape
    who = np.empty((k + len(bracket), n), dtype=np.int64)
    who[:k] = np.arange(k)[:, None]
    rows = np.arange(n)
    for numbers in rounds(bracket, k):
        a, b = (np.array([who[bracket[m][side]] for m in numbers]) for side in (0, 1))
        ahead = costs[rows, a] - costs[rows, b]  # what the second of the pair saves
        scores = learn(numbers, (ahead > 0).astype(np.int64), np.abs(ahead) * weight)
        who[k + np.array(numbers)] = np.where(scores > 0, b, a)
    return who[-1]


def without(bracket: Bracket, n_actions: int, kept: Sequence[int]) -> tuple[Bracket, list[int]]:
    """The bracket of some of the entrants, renumbered in their order, and which matches are left."""
    new: list[int | None] = [list(kept).index(k) if k in kept else None for k in range(n_actions)]
    pairs: list[tuple[int, int]] = []
    left: list[int] = []
    for m, (a, b) in enumerate(bracket):
        one, other = new[a], new[b]
        if one is None or other is None:
            new.append(other if one is None else one)
            continue
        left.append(m)
        pairs.append((one, other))
        new.append(len(kept) + len(pairs) - 1)
    return tuple(pairs), left
