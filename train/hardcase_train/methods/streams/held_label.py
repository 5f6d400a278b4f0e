# SPDX-License-Identifier: Apache-2.0
"""Parts that read the memory: the held label as an answer, and whether it is too old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hardcase_edge.program.definition import CODE_MAX, Column, Rank, Tree, Trees


@dataclass(frozen=True, eq=False)
class HeldLabel:
    """Answers the held label: one tree with a leaf for each class over the column of the held label.

    feature : of the held label
    usual : class that is answered if nothing is held
    """

    feature: int
    n_classes: int
    usual: int

    def columns(self, dtypes: Sequence[str]) -> list[Column]:
        """A rank column with a threshold between each two classes."""
        return [Column(self.feature, Rank(tuple(range(self.n_classes - 1))))]

    def scorer(self, dtypes: Sequence[str], columns: Sequence[Column]) -> Trees:
        """The draft scorer over a program's columns."""
        place, codes = _codes(columns, self.feature, range(self.n_classes - 1))
        thresholds: list[int] = []
        missing_left: list[bool] = []
        children: list[tuple[int, int]] = []

        def grow(first: int, last: int) -> int:
            """The node that tells the classes ``first`` to ``last`` apart, or their leaf."""
            if first == last:
                return -1 - first
            middle, node = (first + last) // 2, len(thresholds)
            thresholds.append(codes[middle])
            missing_left.append(self.usual <= middle)
            children.append((0, 0))
            children[node] = grow(first, middle), grow(middle + 1, last)
            return node

        grow(0, self.n_classes - 1)
        width = 1 if self.n_classes == 2 else self.n_classes
        rows = [(-1.0, 1.0)] if width == 1 else [[float(k == c) for k in range(width)] for c in range(width)]
        leaves = tuple(value for row in rows for value in row)
        splits = (0,) * len(thresholds)
        tree = Tree(0, width, splits, tuple(thresholds), tuple(missing_left), tuple(children), leaves)
        return Trees((place,), (0.0,) * width, (tree,))


@dataclass(frozen=True, eq=False)
class TooOld:
    """Scores 1 if one of several sensors was read more than ``most`` windows ago or never, otherwise -1."""

    features: tuple[int, ...]  # that count windows
    most: int

    def columns(self, dtypes: Sequence[str]) -> list[Column]:
        """A rank column for each count."""
        return [Column(f, Rank((self.most,))) for f in self.features]

    def scorer(self, dtypes: Sequence[str], columns: Sequence[Column]) -> Trees:
        """The draft scorer over a program's columns: each count sends the row on if it is small enough."""
        codes_of = [_codes(columns, f, (self.most,)) for f in self.features]
        n = len(codes_of)
        children = tuple((k + 1 if k + 1 < n else -1, -2 - k) for k in range(n))
        thresholds = tuple(codes[0] for _, codes in codes_of)
        tree = Tree(0, 1, tuple(range(n)), thresholds, (False,) * n, children, (-1.0, *(1.0,) * n))
        return Trees(tuple(place for place, _ in codes_of), (0.0,), (tree,))


def _codes(columns: Sequence[Column], feature: int, thresholds: Sequence[int]) -> tuple[int, list[int]]:
    """The place of a feature's rank column, and the codes of readings at these thresholds."""
    place = next(k for k, c in enumerate(columns) if c.feature == feature and isinstance(c.rule, Rank))
    rule = columns[place].rule
    assert isinstance(rule, Rank)
    return place, [rule.thresholds.index(t) - CODE_MAX for t in thresholds]
