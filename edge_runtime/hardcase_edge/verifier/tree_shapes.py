"""Outlines: what is to be known of an ensemble's trees before they are laid out, found while they are proved safe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..base.record import record
from ..errors import ProgramError
from ..program.definition import Tree

__all__ = ["Outline", "Shape", "children_of", "depth_of", "outline_of", "shape_of"]


@record(frozen=True, slots=True)
class Shape:
    """Where a tree adds to the scores, and how large it is."""

    output: int
    width: int
    nodes: int
    depth: int


@record(frozen=True, slots=True)
class Outline:
    """Shapes of all trees, and what nodes ask: a position in the scorer's columns, and whether missing goes left."""

    shapes: tuple[Shape, ...]
    splits: frozenset[tuple[int, bool]]


def outline_of(trees: Iterable[Tree]) -> Outline:
    """The outline of trees that fit their program."""
    shapes = []
    splits: set[tuple[int, bool]] = set()
    for tree in trees:
        shapes.append(shape_of(tree))
        splits.update(zip(tree.splits, tree.missing_left, strict=True))
    return Outline(tuple(shapes), frozenset(splits))


def shape_of(tree: Tree) -> Shape:
    """The shape of one; errors as of ``depth_of``."""
    return Shape(tree.output, tree.width, len(tree.splits), depth_of(tree))


def depth_of(tree: Tree) -> int:
    """Most steps from root to leaf of a tree whose nodes and leaves are each one child.

    Raises
    ------
    ProgramError
        A node leads back.
    """
    if not tree.children:
        return len(tree.splits).bit_length()
    depths = [0] * (2 * len(tree.children) + 1)  # of nodes from the front, of leaves (-1 - k) from the end
    for i, (left, right) in enumerate(tree.children):
        if 0 <= left <= i or 0 <= right <= i:
            raise ProgramError(f"node {i} leads back to {left}, {right}")
        depths[left] = depths[right] = depths[i] + 1
    return max(depths)


def children_of(tree: Tree) -> Sequence[tuple[int, int]]:
    """Left and right of every node: a node, or -1-k for leaf k."""
    if tree.children:
        return tree.children
    n = len(tree.splits)
    both = [c if c < n else n - 1 - c for c in range(1, 2 * n + 1)]
    return list(zip(both[::2], both[1::2], strict=True))
