# SPDX-License-Identifier: Apache-2.0
"""Filter trees: cost-sensitive classification of several actions by a tournament of weighted binary problems.

Beygelzimer, Langford and Ravikumar, *Multiclass classification with filter trees* (2007). Entrant 0 is the action
"stop": the other actions play among themselves, and their winner meets it in the final, so the last match is "stop or
go on". A match is trained on the costs of the two actions that reach it, as decided by the matches before, and a row is
weighted by the difference of the two costs. Any learner that scores rows may learn a round of matches: if the score is
above zero the second of the pair wins, as in a program's tournament. docs/math.md (61) to (63).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hardcase_edge.more.batch.choices import Bracket

# (numbers of the matches, label (n_matches, n) 1 where the second should win, weight (n_matches, n)) -> scores, as they
Round = Callable[[Sequence[int], np.ndarray, np.ndarray], np.ndarray]


def bracket_of(n: int) -> Bracket:
    """Entrants 1 to n - 1 in pairs, round by round, and entrant 0 against their winner.

    Examples
    --------
    >>> bracket_of(4)  # the winner of match k is entrant 4 + k
    ((1, 2), (4, 3), (0, 5))
    """
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
    """The numbers of the matches of each round; matches of a round do not depend on each other."""
    depth: list[int] = []
    for a, b in bracket:
        depth.append(1 + max([depth[x - n] for x in (a, b) if x >= n], default=0))
    return [[m for m, d in enumerate(depth) if d == r] for r in range(1, max(depth, default=0) + 1)]


def learn_matches(costs: np.ndarray, weight: np.ndarray, bracket: Bracket, learn: Round) -> np.ndarray:
    """Train a filter tree; the action that it chooses for each row, (n,).

    Parameters
    ----------
    costs : (n, n_actions) cost of each action for each row
    weight : (n,) row weights
    learn : learns a round of matches; the scores that it returns select the winners that later rounds are trained on
    """
    n, k = costs.shape
    winner = np.empty((k + len(bracket), n), dtype=np.int64)  # of each entrant, the action that it stands for
    winner[:k] = np.arange(k)[:, None]
    rows = np.arange(n)
    for numbers in rounds(bracket, k):
        a, b = (np.array([winner[bracket[m][side]] for m in numbers]) for side in (0, 1))
        ahead = costs[rows, a] - costs[rows, b]  # what the second of the pair saves against the first
        scores = learn(numbers, (ahead > 0).astype(np.int64), np.abs(ahead) * weight)
        winner[k + np.array(numbers)] = np.where(scores > 0, b, a)
    choice: np.ndarray = winner[-1]
    return choice


def without(bracket: Bracket, n_actions: int, actions: Sequence[int]) -> tuple[Bracket, list[int]]:
    """The bracket restricted to these actions, renumbered in their order; and the numbers of its matches."""
    new: list[int | None] = [list(actions).index(k) if k in actions else None for k in range(n_actions)]
    pairs: list[tuple[int, int]] = []
    left: list[int] = []
    for m, (a, b) in enumerate(bracket):
        one, other = new[a], new[b]
        if one is None or other is None:
            new.append(other if one is None else one)
            continue
        left.append(m)
        pairs.append((one, other))
        new.append(len(actions) + len(pairs) - 1)
    return tuple(pairs), left
