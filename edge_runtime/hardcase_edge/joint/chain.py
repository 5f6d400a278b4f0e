# SPDX-License-Identifier: Apache-2.0
"""The chain in integers: the best labels of all parts together, and by how much each of them is the best.

Viterbi's algorithm forwards and backwards (max-product); the *max-marginal* of part t and label y is the score of the
best labels with y at t. All sums are exact; ties go to the lowest label. docs/SPEC-joint-v1.md section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add

from .definition import MAX_GAP, Chain

NEVER = -(2**63)  # below all sums: a label that a part cannot have


def gap_of(scores: Sequence[int]) -> int:
    """The best score minus the second best, at most ``MAX_GAP``.

    >>> gap_of([3, 9, 4]), gap_of([7, 7]), gap_of([0, 2**40])
    (5, 0, 2147483647)
    """
    second, best = sorted(scores)[-2:]
    gap = best - second
    return gap if gap < MAX_GAP else MAX_GAP


class ChainDecoder:
    """A chain made ready to decode in Python; immutable."""

    def __init__(self, chain: Chain) -> None:
        k, flat = chain.labels, chain.transitions
        self._k, self._start, self._stop = k, chain.start, chain.stop
        self._from = [flat[y * k : y * k + k] for y in range(k)]  # scores of what comes after y
        self._to = [flat[y::k] for y in range(k)]  # scores of what comes before y

    def decode(
        self, scores: Sequence[Sequence[int]], fixed: Mapping[int, int], with_gaps: bool = True
    ) -> tuple[list[int], list[int]]:
        """The best labels of all parts, and each part's gap of max-marginals.

        Parameters
        ----------
        scores : (parts, K); the scores of a fixed part are not looked at
        fixed : label of each part that has only one
        with_gaps : False: an empty list of gaps, in half the time

        Returns
        -------
        labels : (parts,)
        gaps : (parts,), at most ``MAX_GAP``, which is also the gap of a fixed part
        """
        last, k = len(scores) - 1, self._k
        rows = [_fixed_row(k, fixed[t]) if t in fixed else row for t, row in enumerate(scores)]
        ahead = [[*map(add, self._start, rows[0])]]
        for row in rows[1:]:
            before = ahead[-1]
            ahead.append([u + max(map(add, before, column)) for u, column in zip(row, self._to, strict=True)])
        total = [*map(add, ahead[last], self._stop)]
        label = total.index(max(total))
        labels = [label]
        for t in range(last - 1, -1, -1):
            reached = [*map(add, ahead[t], self._to[label])]
            label = reached.index(max(reached))
            labels.append(label)
        labels.reverse()
        return labels, self._gaps(rows, ahead, fixed) if with_gaps else []

    def _gaps(self, rows: list[Sequence[int]], ahead: list[list[int]], fixed: Mapping[int, int]) -> list[int]:
        gaps, behind = [], list(self._stop)
        for t in range(len(rows) - 1, -1, -1):
            gaps.append(MAX_GAP if t in fixed else gap_of([*map(add, ahead[t], behind)]))
            if t:
                after = [*map(add, rows[t], behind)]
                behind = [max(map(add, row, after)) for row in self._from]
        gaps.reverse()
        return gaps


def _fixed_row(k: int, label: int) -> list[int]:
    """Scores that leave one label: all others lie far below every sum that the verifier allows."""
    row = [NEVER] * k
    row[label] = 0
    return row
