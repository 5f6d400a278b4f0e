# SPDX-License-Identifier: Apache-2.0
"""The outline of an ensemble, noted during the proof: the sizes of its trees and the columns that they read."""

from __future__ import annotations

from collections.abc import Iterable

from ..base.record import record
from ..program.definition import Tree
from ..program.stored_trees import depth_of

__all__ = ["Outline", "Shape", "outline_of", "shape_of"]


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
