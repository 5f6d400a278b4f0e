# SPDX-License-Identifier: Apache-2.0
"""The trees of an ensemble as they lie in a bundle: each ``Tree`` is built when it is read, and none is kept.

Trees are most of a bundle, and as Python integers they would take ten times its bytes. The verifier, the kernel's
image and the Python evaluator therefore read them one by one; of an ensemble the proof notes an ``Outline``. ``decode``
has checked every record. ``children_of`` and ``depth_of`` accept trees of both layouts, in heap order or with pointers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import overload

from ..base.record import record
from ..errors import ProgramError
from .definition import Tree
from .format import TREE, Tensor

_RECORD, _PAIR = Struct(f"{TREE}i"), Struct("2h")


class StoredTrees(Sequence[Tree]):
    """A sequence of trees that equals the tuple of the same trees.

    Parameters
    ----------
    records : ``TREE`` words for each tree
    shorts : the pool of slots, thresholds and children
    leaves : the pool of leaves
    """

    __slots__ = ("_leaves", "_records", "_shorts")

    def __init__(self, records: Tensor, shorts: Tensor, leaves: Tensor) -> None:
        self._records = records
        self._shorts = shorts
        self._leaves = leaves

    def __len__(self) -> int:
        return len(self._records) // TREE

    @overload
    def __getitem__(self, index: int) -> Tree: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tree, ...]: ...
    def __getitem__(self, index: int | slice) -> Tree | tuple[Tree, ...]:
        places = range(len(self))[index]
        return self._tree(places) if isinstance(places, int) else tuple([self._tree(k) for k in places])

    def __iter__(self) -> Iterator[Tree]:
        return map(self._tree, range(len(self)))

    def _tree(self, k: int) -> Tree:
        output, width, n, has_children, slots, thresholds, children, leaves = _RECORD.unpack_from(
            self._records, k * _RECORD.size
        )
        values = tuple(self._leaves[leaves : leaves + (n + 1) * width].tolist())
        if not n:  # a leaf: as many of them as are allowed take the reader longest
            return Tree(output, width, (), (), (), (), values)
        shorts = self._shorts
        slot: list[int] = shorts[slots : slots + n].tolist()
        return Tree(
            output,
            width,
            tuple([x >> 1 for x in slot]),
            tuple(shorts[thresholds : thresholds + n].tolist()),
            tuple([not x & 1 for x in slot]),
            tuple(_PAIR.iter_unpack(shorts[children : children + 2 * n * has_children])),
            values,
        )

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, tuple | StoredTrees) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[type[tuple[Tree, ...]], tuple[tuple[Tree, ...]]]:
        return tuple, (tuple(self),)  # a copy or a pickle does not need the bundle


def children_of(tree: Tree) -> Sequence[tuple[int, int]]:
    """The left and the right child of every node: a node's number, or -1-k for leaf k."""
    if tree.children:
        return tree.children
    n = len(tree.splits)
    children = [c if c < n else n - 1 - c for c in range(1, 2 * n + 1)]
    return list(zip(children[::2], children[1::2], strict=True))


def depth_of(tree: Tree) -> int:
    """Most steps from root to leaf of a tree in which every node and leaf has one parent; raises as ``longest_way``."""
    return longest_way(tree.children) if tree.children else len(tree.splits).bit_length()


def longest_way(children: Sequence[tuple[int, int]]) -> int:
    """Most steps from node 0 to a leaf, given (left, right) for each node; 0 without nodes.

    Raises
    ------
    ProgramError
        A node leads to itself or to an earlier node.
    """
    depths = [0] * (2 * len(children) + 1)  # of nodes from the front, of leaves (-1 - k) from the end
    for i, (left, right) in enumerate(children):
        if 0 <= left <= i or 0 <= right <= i:
            raise ProgramError(f"node {i} leads back to {left}, {right}")
        depths[left] = depths[right] = depths[i] + 1
    return max(depths)


@record(frozen=True, slots=True)
class Shape:
    """Where a tree adds to the scores, and how large it is."""

    output: int
    width: int
    nodes: int
    depth: int


@record(frozen=True, slots=True)
class Outline:
    """The shapes of all trees, and the splits: positions in the scorer's columns, and whether missing goes left."""

    shapes: tuple[Shape, ...]
    splits: frozenset[tuple[int, bool]]


def outline_of(trees: Iterable[Tree]) -> Outline:
    """The outline of trees that have passed their own checks."""
    shapes = []
    splits: set[tuple[int, bool]] = set()
    for tree in trees:
        shapes.append(shape_of(tree))
        splits.update(zip(tree.splits, tree.missing_left, strict=True))
    return Outline(tuple(shapes), frozenset(splits))


def shape_of(tree: Tree) -> Shape:
    """The shape of one tree; raises the errors of ``depth_of``."""
    return Shape(tree.output, tree.width, len(tree.splits), depth_of(tree))
