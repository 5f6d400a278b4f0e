# SPDX-License-Identifier: Apache-2.0
"""Shapes of trees of classifiers: which node follows which, where rows exit, and which nodes a path has.

Xu et al. (2014), figures 2 and 4. A row goes to the high child if its routing score is above 0, else to the low one. A
side without a child is an exit: the node's own scores answer there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

EXIT = -1
LOW_HIGH = (0, 1)


@dataclass(frozen=True)
class Shape:
    """Nodes in level order, 0 the root; ``children[k]`` are the low and the high child of node k, or ``EXIT``.

    >>> tree(1).children, chain(2).children
    (((1, 2), (-1, -1), (-1, -1)), ((-1, 1), (-1, -1)))
    >>> tree(1).exits, chain(2).exits
    (((1, None), (2, None)), ((0, 0), (1, None)))
    """

    children: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.children)

    def is_leaf(self, k: int) -> bool:
        """Whether every row that reaches node k exits there."""
        return self.children[k] == (EXIT, EXIT)

    @cached_property
    def exits(self) -> tuple[tuple[int, int | None], ...]:
        """Each exit as its node and the side (0 low, 1 high) that leads to it; None at a leaf, where both do."""
        pairs: list[tuple[int, int | None]] = []
        for k, pair in enumerate(self.children):
            pairs += [(k, None)] if self.is_leaf(k) else [(k, side) for side in LOW_HIGH if pair[side] == EXIT]
        return tuple(pairs)

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """The parent of each node, -1 of the root."""
        above = [-1] * len(self)
        for k, pair in enumerate(self.children):
            for child in pair:
                if child != EXIT:
                    above[child] = k
        return tuple(above)

    @cached_property
    def above(self) -> np.ndarray:
        """(n_nodes, n_nodes) bool: whether node j (column) lies on the way to node k (row), k itself included."""
        lies = np.eye(len(self), dtype=bool)
        for k, parent in enumerate(self.parents):
            if parent >= 0:
                lies[k] |= lies[parent]
        return lies

    @cached_property
    def paths(self) -> np.ndarray:
        """(n_exits, n_nodes) bool: the nodes that a row meets before it leaves by each exit."""
        return np.array([self.above[k] for k, _ in self.exits])

    def way(self, k: int) -> tuple[list[int], Shape]:
        """The nodes on the way to node k, and their shape if k were a leaf and all other sides were exits."""
        nodes = np.flatnonzero(self.above[k]).tolist()
        onward = [pair_of(self.children[j], nodes[i + 1], i + 1) for i, j in enumerate(nodes[:-1])]
        return nodes, Shape((*onward, (EXIT, EXIT)))


def pair_of(pair: tuple[int, int], child: int, number: int) -> tuple[int, int]:
    """The pair with this child under another number, and no other child."""
    return (number if pair[0] == child else EXIT, number if pair[1] == child else EXIT)


def tree(depth: int) -> Shape:
    """The full binary tree with ``2 ** depth`` leaves; one node at depth 0."""
    n_inner = 2**depth - 1
    return Shape(tuple((2 * k + 1, 2 * k + 2) if k < n_inner else (EXIT, EXIT) for k in range(2 * n_inner + 1)))


def chain(n_nodes: int) -> Shape:
    """The cascade: each node but the last answers its low rows and hands the others on."""
    return Shape(tuple((EXIT, k + 1 if k + 1 < n_nodes else EXIT) for k in range(n_nodes)))
