# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles in an image: grouped by layout, outputs and depth, so that the kernel walks trees together.

A shallow tree becomes a complete tree in heap order (the root is node 1, node i has the children 2i and 2i + 1), padded
where it has fewer levels. A deep tree, as leaf-wise growth makes them, keeps a pair of child indices per node. In both
layouts a row reaches a leaf with the same values as in the program, and the order of trees does not matter, because
sums of integers do not depend on it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from operator import add

from ..base.record import record
from ..program.definition import Number, Tree, Trees
from ..program.stored_trees import Outline, Shape, children_of
from .cells import Cells, Splits
from .layout import GROUP, LAYOUT, TREE
from .sections import Sections, packed

MAX_HEAP_DEPTH = 10
HEAP_GROWTH = 2.0  # a heap may be this many times larger than the same tree with pointers
PADDING_GROWTH = 1.25  # heaps padded to one depth may be this many times larger than heaps of the trees' own depths


@record(frozen=True, slots=True)
class Group:
    """Trees with one layout, first output and width, and one depth if they are heaps."""

    is_heap: bool
    output: int
    width: int
    depth: int  # 0 for trees with pointers
    trees: tuple[int, ...]  # their numbers in the ensemble


@record(frozen=True, slots=True)
class Ensemble:
    """An ensemble divided into groups. ``place`` maps a tree's number to its group and its number in the group."""

    scorer: Trees
    is_small: bool
    groups: tuple[Group, ...]
    place: dict[int, tuple[int, int]]

    def records(self, splits: Splits, out: Sections) -> list[int]:
        """The words of all groups; their trees are appended to ``out``."""
        words: list[int] = []
        for g in self.groups:
            layout = (LAYOUT.SMALL_HEAP if g.is_heap else LAYOUT.SMALL_POINTERS) + (not self.is_small)
            data = self._heaps(g, splits, out) if g.is_heap else self._pointers(g, splits, out)
            words += GROUP.words(
                layout=layout, output=g.output, width=g.width, trees=len(g.trees), depth=g.depth, data=data
            )
        return words

    def _heaps(self, group: Group, splits: Splits, out: Sections) -> int:
        data, unused = bytearray(), bytes(2 if self.is_small else 4)  # node 0
        for k in group.trees:
            tree = self.scorer.trees[k]
            if not group.depth:
                data += unused + packed(f"{group.width}h", tree.leaves)
                continue
            nodes, leaves = _complete(tree, self._splits(tree, splits), group.depth)
            code = "BB" if self.is_small else "Hh"
            for column, values in zip(code, zip(*nodes, strict=True), strict=True):
                data += packed(f"{len(values)}{column}", values)
            data += packed(f"{len(leaves)}h", leaves)
        return out.raw(bytes(data), 8)

    def _pointers(self, group: Group, splits: Splits, out: Sections) -> int:
        places: list[int] = []
        code = "BBhh" if self.is_small else "Hhhh"
        for k in group.trees:
            tree = self.scorer.trees[k]
            n = len(tree.splits)
            nodes = map(add, self._splits(tree, splits), children_of(tree))
            data = packed(code * n, chain.from_iterable(nodes))
            places += TREE.words(nodes=out.raw(data, 2), leaves=out.i16(tree.leaves), count=n)
        return out.i32(places)

    def _splits(self, tree: Tree, splits: Splits) -> list[tuple[int, int]]:
        columns = [self.scorer.columns[position] for position in tree.splits]
        return list(map(splits.__getitem__, zip(columns, tree.thresholds, tree.missing_left, strict=True)))


def plan_ensemble(scorer: Trees, outline: Outline, cells: Cells, keyed: Collection[int] = ()) -> Ensemble:
    """Group an ensemble's trees, and announce the cells that they read to ``cells``.

    Columns in ``keyed`` are read as keys of readings and need no cell.
    """
    shapes = outline.shapes
    columns = [(scorer.columns[position], left) for position, left in outline.splits]
    is_small = cells.want_trees({(column, not left) for column, left in columns if column not in keyed})
    heaps: dict[tuple[int, int], list[int]] = {}
    pointers: dict[tuple[int, int], list[int]] = {}
    for k, shape in enumerate(shapes):
        trees_by_output = heaps if _is_shallow(shape, is_small) else pointers
        trees_by_output.setdefault((shape.output, shape.width), []).append(k)
    depths = [shape.depth for shape in shapes]
    groups = [g for key, trees in heaps.items() for g in _by_depth(*key, trees, depths, is_small)]
    groups += [Group(False, *key, 0, tuple(trees)) for key, trees in pointers.items()]
    place = {tree: (g, k) for g, group in enumerate(groups) for k, tree in enumerate(group.trees)}
    return Ensemble(scorer, is_small, tuple(groups), place)


def _is_shallow(shape: Shape, is_small: bool) -> bool:
    """Whether the tree as a heap is not much larger than with pointers."""
    pointer_bytes = shape.nodes * (6 if is_small else 8) + 2 * (shape.nodes + 1) * shape.width
    heap_bytes = _heap_bytes(shape.depth, shape.width, is_small)
    return shape.depth == 0 or (shape.depth <= MAX_HEAP_DEPTH and heap_bytes <= HEAP_GROWTH * pointer_bytes)


def _by_depth(output: int, width: int, trees: Sequence[int], depths: Sequence[int], is_small: bool) -> list[Group]:
    """One group with all trees padded to the deepest, unless that takes too many bytes; else a group per depth."""
    unpadded_bytes = sum(_heap_bytes(depths[k], width, is_small) for k in trees)
    deepest = max(depths[k] for k in trees)
    if len(trees) * _heap_bytes(deepest, width, is_small) <= PADDING_GROWTH * unpadded_bytes:
        return [Group(True, output, width, deepest, tuple(trees))]
    distinct_depths = sorted({depths[k] for k in trees})
    return [Group(True, output, width, d, tuple(k for k in trees if depths[k] == d)) for d in distinct_depths]


def _heap_bytes(depth: int, width: int, is_small: bool) -> int:
    return ((2 if is_small else 4) + 2 * width) << depth


def _complete(tree: Tree, splits: Sequence[tuple[int, int]], depth: int) -> tuple[list[tuple[int, int]], list[Number]]:
    """Nodes 0 (unused) to 2^depth - 1 of the complete tree, and the values of its leaves."""
    n, children = 1 << depth, children_of(tree)
    nodes = [(0, 0)] * n
    sources = [0 if tree.splits else -1] * 2 * n  # at each position: a node of ``tree``, or -1 - k for its leaf k
    for k in range(1, n):
        source = sources[k]
        if source >= 0:
            nodes[k] = splits[source]
        sources[2 * k], sources[2 * k + 1] = children[source] if source >= 0 else (source, source)
    leaves = [v for leaf in sources[n:] for v in tree.leaves[(-1 - leaf) * tree.width : -leaf * tree.width]]
    return nodes, leaves
