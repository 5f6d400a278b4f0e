"""Ensembles in an image: trees regrouped by layout, outputs and depth, so that a kernel walks many alike at a time.

A shallow tree becomes a complete one in heap order (node i has the children 2i and 2i+1, the root is 1), padded where
it has fewer levels; a deep, leaf-wise one keeps pointers. Either way a row reaches leaves of the same values, and sums
of integers do not depend on the order of trees.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from operator import add

from ..base.record import record
from ..program.definition import Number, Tree, Trees
from ..program.stored_trees import children_of
from ..verifier.tree_shapes import Outline, Shape
from .cells import Cells, Splits
from .sections import Sections, packed

__all__ = ["Ensemble", "plan_ensemble"]

SMALL_HEAP, WIDE_HEAP, SMALL_POINTERS, WIDE_POINTERS = range(4)
MAX_HEAP_DEPTH = 10
HEAP_GROWTH = 2.0  # a heap may be so many times larger than pointers
PADDING_GROWTH = 1.25  # heaps of one depth may be so many times larger than heaps of their own depths


@record(frozen=True, slots=True)
class Group:
    """Trees of one layout, first output, width and (heaps) depth."""

    is_heap: bool
    output: int
    width: int
    depth: int
    trees: tuple[int, ...]


@record(frozen=True, slots=True)
class Ensemble:
    """An ensemble's groups. ``place``: each tree's group and number in it."""

    scorer: Trees
    is_small: bool
    groups: tuple[Group, ...]
    place: dict[int, tuple[int, int]]

    def records(self, splits: Splits, out: Sections) -> list[int]:
        """Words of all groups."""
        words: list[int] = []
        for g in self.groups:
            layout = (SMALL_HEAP if g.is_heap else SMALL_POINTERS) + (not self.is_small)
            data = self._heaps(g, splits, out) if g.is_heap else self._pointers(g, splits, out)
            words += [layout, g.output, g.width, len(g.trees), g.depth, data]
        return words

    def _heaps(self, group: Group, splits: Splits, out: Sections) -> int:
        data = bytearray()
        for k in group.trees:
            tree = self.scorer.trees[k]
            nodes, leaves = _complete(tree, self._splits(tree, splits), group.depth)
            code = "BB" if self.is_small else "Hh"
            for column, values in zip(code, zip(*nodes, strict=True), strict=True):
                data += packed(f"{len(values)}{column}", values)
            data += packed(f"{len(leaves)}h", leaves)
        return out.raw(bytes(data), 8)

    def _pointers(self, group: Group, splits: Splits, out: Sections) -> int:
        places = []
        code = "BBhh" if self.is_small else "Hhhh"
        for k in group.trees:
            tree = self.scorer.trees[k]
            n = len(tree.splits)
            nodes = map(add, self._splits(tree, splits), children_of(tree))
            data = packed(code * n, chain.from_iterable(nodes))
            places += [out.raw(data, 2), out.i16(tree.leaves), n]
        return out.i32(places)

    def _splits(self, tree: Tree, splits: Splits) -> list[tuple[int, int]]:
        columns = [self.scorer.columns[position] for position in tree.splits]
        return list(map(splits.__getitem__, zip(columns, tree.thresholds, tree.missing_left, strict=True)))


def plan_ensemble(scorer: Trees, outline: Outline, cells: Cells, keyed: Collection[int] = ()) -> Ensemble:
    """Group an ensemble's trees, and want the cells that they read: those of columns that are not read as keys."""
    shapes = outline.shapes
    columns = [(scorer.columns[position], left) for position, left in outline.splits]
    is_small = cells.want_trees({(column, not left) for column, left in columns if column not in keyed})
    heaps: dict[tuple[int, int], list[int]] = {}
    pointers: dict[tuple[int, int], list[int]] = {}
    for k, shape in enumerate(shapes):
        into = heaps if _is_shallow(shape, is_small) else pointers
        into.setdefault((shape.output, shape.width), []).append(k)
    depths = [shape.depth for shape in shapes]
    groups = [g for key, trees in heaps.items() for g in _by_depth(*key, trees, depths, is_small)]
    groups += [Group(False, *key, 0, tuple(trees)) for key, trees in pointers.items()]
    place = {tree: (g, k) for g, group in enumerate(groups) for k, tree in enumerate(group.trees)}
    return Ensemble(scorer, is_small, tuple(groups), place)


def _is_shallow(shape: Shape, is_small: bool) -> bool:
    """Whether a heap is not much larger than pointers."""
    pointers = shape.nodes * (6 if is_small else 8) + 2 * (shape.nodes + 1) * shape.width
    heap = _heap_bytes(shape.depth, shape.width, is_small)
    return shape.depth == 0 or (shape.depth <= MAX_HEAP_DEPTH and heap <= HEAP_GROWTH * pointers)


def _by_depth(output: int, width: int, trees: Sequence[int], depths: Sequence[int], is_small: bool) -> list[Group]:
    own = sum(_heap_bytes(depths[k], width, is_small) for k in trees)
    deepest = max(depths[k] for k in trees)
    if len(trees) * _heap_bytes(deepest, width, is_small) <= PADDING_GROWTH * own:
        return [Group(True, output, width, deepest, tuple(trees))]
    found = sorted({depths[k] for k in trees})
    return [Group(True, output, width, d, tuple(k for k in trees if depths[k] == d)) for d in found]


def _heap_bytes(depth: int, width: int, is_small: bool) -> int:
    return ((2 if is_small else 4) + 2 * width) << depth


def _complete(tree: Tree, splits: Sequence[tuple[int, int]], depth: int) -> tuple[list[tuple[int, int]], list[Number]]:
    """Nodes 0 (unused) to 2^depth - 1 of the complete tree, and its leaves' values."""
    n, children = 1 << depth, children_of(tree)
    nodes = [(0, 0)] * n
    at = [0 if tree.splits else -1] * 2 * n  # the source's node, or -1-leaf, at each position
    for k in range(1, n):
        here = at[k]
        if here >= 0:
            nodes[k] = splits[here]
        at[2 * k], at[2 * k + 1] = children[here] if here >= 0 else (here, here)
    leaves = [v for here in at[n:] for v in tree.leaves[(-1 - here) * tree.width : -here * tree.width]]
    return nodes, leaves
