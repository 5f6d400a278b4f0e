# SPDX-License-Identifier: Apache-2.0
"""Trees of a source model as trees of a program: thresholds become ranks, and every row reaches the same leaf.

``x <= cut`` must hold for exactly the readings for which it holds in the source. A cut is therefore moved down to the
largest number of the reading's type that the source still sends left; the rank of a reading among these cuts then says
on which side of each it lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import CODE_MAX, Column, Number, Rank
from hardcase_edge.program.limits import MAX_TREE_NODES
from hardcase_edge.program.readings import I32_MAX, I32_MIN
from hardcase_edge.program.stored_trees import longest_way

from ..sources.source import MAX_NODES, Source, SourceTree, Split

MAX_RANKS = 65_534  # thresholds of a column
MAX_F32 = float(np.finfo(np.float32).max)
MAX_F64 = float(np.finfo(np.float64).max)
LARGEST: dict[str, float] = {"i32": I32_MAX, "f32": MAX_F32, "f64": MAX_F64}
SMALLEST: dict[str, float] = {"i32": I32_MIN + 1, "f32": -MAX_F32, "f64": -MAX_F64}
HEAP_DEPTH = 12  # deeper trees are never stored as complete trees

Node = tuple[int, Number, bool, int, int]  # feature, cut, whether missing goes left, left child, right child


@dataclass(frozen=True, slots=True)
class Shape:
    """A tree of a program without the values of its leaves; fields as in ``program.definition.Tree``.

    ``leaf_of``: (n_leaves,) for each leaf, the number of the source's leaf.
    """

    splits: tuple[int, ...]
    thresholds: tuple[int, ...]
    missing_left: tuple[bool, ...]
    children: tuple[tuple[int, int], ...]
    leaf_of: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankedTrees:
    """Rank columns, and the shape of each source tree; its splits are positions in ``columns``."""

    columns: tuple[Column, ...]
    shapes: tuple[Shape, ...]


def rank_trees(source: Source, dtypes: Sequence[str], nullable: Sequence[bool]) -> RankedTrees:
    """Rank columns and tree shapes of a checked source.

    Parameters
    ----------
    dtypes, nullable : type of the readings, and whether one may be missing, per feature

    Raises
    ------
    InputError
        A feature has too many thresholds, or a tree has too many nodes.
    """
    grown = grow_trees(source, dtypes, nullable)
    cuts: dict[int, set[Number]] = {}
    for nodes, _ in grown:
        for feature, cut, *_ in nodes:
            cuts.setdefault(feature, set()).add(cut)
    ranks = {f: sorted(thresholds) for f, thresholds in sorted(cuts.items())}
    for f, thresholds in ranks.items():
        if len(thresholds) > MAX_RANKS:
            raise InputError(
                f"{source.name} has {len(thresholds)} thresholds on feature {f}, but a column holds {MAX_RANKS}; "
                "train fewer trees or use fewer bins"
            )
    position = {f: k for k, f in enumerate(ranks)}
    code = {(f, cut): k - CODE_MAX for f, thresholds in ranks.items() for k, cut in enumerate(thresholds)}
    shapes = tuple(
        _shape(*tree_nodes, position, code, tree.leaves.shape[1])
        for tree_nodes, tree in zip(grown, source.trees, strict=True)
    )
    return RankedTrees(tuple(Column(f, Rank(tuple(thresholds))) for f, thresholds in ranks.items()), shapes)


def grow_trees(source: Source, dtypes: Sequence[str], nullable: Sequence[bool]) -> list[tuple[list[Node], list[int]]]:
    """For each tree, its nodes with one threshold each, and for each leaf the number of the source's leaf.

    Parameters
    ----------
    dtypes, nullable : as of ``rank_trees``; a node sends the readings left that are at most its threshold

    Raises
    ------
    InputError
        A tree, or all of them, have too many nodes.
    """
    typed: dict[tuple[int, tuple[float, ...], tuple[bool, ...]], Split] = {}
    grown, n_nodes = [], 0
    for k, tree in enumerate(source.trees):
        splits = []
        for s in tree.splits:
            key = (s.feature, s.cuts, s.sides)
            if key not in typed:
                typed[key] = _in_type(s, dtypes[s.feature], source.dtype)
            splits.append(typed[key]._replace(missing_left=s.missing_left))
        grown.append(_grow(tree, splits, dtypes, nullable, f"{source.name}, tree {k}"))
        n_nodes += len(grown[-1][0])
        if n_nodes > MAX_NODES:
            raise InputError(
                f"{source.name} has more than {MAX_NODES} nodes once its sets are thresholds; train fewer trees"
            )
    return grown


# ---------------------------------------------------------------- thresholds


def hold(cut: float, dtype: str, source: str) -> Number | None:
    """The largest reading of type ``dtype`` that a source comparing in type ``source`` sends left at ``cut``.

    None if there is no such reading.
    """
    if source == "f32":
        cut = _down_to_f32(cut)
    if dtype == "i32":
        held: Number = _down_to_i32(cut, source)
    else:
        held = _down_to_f32(cut) if dtype == "f32" else min(cut, MAX_F64) + 0.0
    return None if held < SMALLEST[dtype] else held


def _down_to_f32(cut: float) -> float:
    if cut >= MAX_F32:
        return MAX_F32
    if cut < -MAX_F32:
        return -math.inf
    near = np.float32(cut)
    return float(near if float(near) <= cut else np.nextafter(near, np.float32(-np.inf))) + 0.0


def _down_to_i32(cut: float, source: str) -> int:
    if cut >= I32_MAX:
        return I32_MAX
    if cut < I32_MIN:
        return I32_MIN
    integer = math.floor(cut)
    if source == "f64" or abs(integer) < 2**24:
        return integer
    above = float(
        np.nextafter(np.float32(cut), np.float32(np.inf))
    )  # integers up to the midpoint round down to the cut
    integer = math.floor((cut + above) / 2)
    while float(np.float32(integer)) > cut:
        integer -= 1
    return min(integer, I32_MAX)


def _in_type(split: Split, dtype: str, source: str) -> Split:
    """The split for readings of this type, without empty intervals; neighbours on the same side are joined."""
    cuts: list[Number] = []
    sides: list[bool] = []
    for cut, side in zip(split.cuts, split.sides, strict=False):
        held = hold(cut, dtype, source)
        if held is None or (cuts and held <= cuts[-1]):
            continue  # no reading lies in this interval
        if sides and sides[-1] == side:
            cuts[-1] = held
        else:
            cuts.append(held)
            sides.append(side)
    last = split.sides[-1]
    if cuts and (cuts[-1] >= LARGEST[dtype] or sides[-1] == last):
        last = sides.pop()
        cuts.pop()
    return Split(split.feature, tuple(cuts), (*sides, last), split.missing_left)


# ---------------------------------------------------------------- nodes


def _grow(
    tree: SourceTree, splits: Sequence[Split], dtypes: Sequence[str], nullable: Sequence[bool], where: str
) -> tuple[list[Node], list[int]]:
    """Nodes in order from the root, children behind parents; and for each leaf, the number of the source's leaf.

    A split of several intervals becomes a binary search among its cuts, with a copy of a side's subtree under each
    interval.
    """
    nodes: list[list[int | Number | bool]] = []
    leaf_of: list[int] = []
    pending: list[tuple[int, int, int, int, int]] = [(0 if splits else -1, -1, -1, -1, 0)]  # node, first, last, parent
    while pending:
        node, first, last, parent, side = pending.pop()
        while True:  # until a node or a leaf is appended
            if node < 0:
                leaf_of.append(-1 - node)
                place = -len(leaf_of)
                break
            split = splits[node]
            if first < 0:
                first, last = 0, len(split.cuts)
            sides = split.sides[first : last + 1]
            if len(set(sides)) > 1:
                place = len(nodes)
                middle = (first + last - 1) // 2
                nodes.append([split.feature, split.cuts[middle], _has_missing_side(split, first, middle), 0, 0])
                pending += [(node, middle + 1, last, place, 4), (node, first, middle, place, 3)]
                break
            child = tree.children[node][0 if sides[0] else 1]
            missing_child = tree.children[node][0 if split.missing_left else 1]
            if len(split.sides) == 1 and child != missing_child and nullable[split.feature]:
                place = len(nodes)  # all readings go one way, a missing reading the other
                nodes.append([split.feature, _largest(dtypes[split.feature]), False, 0, 0])
                pending += [(missing_child, -1, -1, place, 4), (child, -1, -1, place, 3)]
                break
            node, first = child, -1
        if parent >= 0:
            nodes[parent][side] = place
        if len(nodes) > MAX_TREE_NODES:
            raise InputError(
                f"{where} has more than {MAX_TREE_NODES} nodes once its sets are thresholds; train a smaller tree, or "
                "number its categories in a meaningful order"
            )
    return [tuple(n) for n in nodes], leaf_of  # type: ignore[misc]


def _has_missing_side(split: Split, first: int, last: int) -> bool:
    """Whether one of these intervals goes where a missing reading goes."""
    return split.missing_left in split.sides[first : last + 1]


def _largest(dtype: str) -> Number:
    return I32_MAX if dtype == "i32" else LARGEST[dtype]


# ---------------------------------------------------------------- shapes


def _shape(
    nodes: Sequence[Node],
    leaf_of: Sequence[int],
    place: dict[int, int],
    code: dict[tuple[int, Number], int],
    width: int,
) -> Shape:
    """The shape: a complete tree in heap order if that takes no more bytes, otherwise with pointers."""
    heap = [(place[f], code[f, cut], missing_left) for f, cut, missing_left, _, _ in nodes]
    children = [(left, right) for *_, left, right in nodes]
    n, depth = len(nodes), longest_way(children)
    if depth <= HEAP_DEPTH and 2 * (2**depth - 1) + 2**depth * width <= 4 * n + (n + 1) * width:
        heap, leaf_of, children = _heap(heap, leaf_of, children, depth)
    splits, thresholds, missing_left = zip(*heap, strict=True) if heap else ((), (), ())
    return Shape(splits, thresholds, missing_left, tuple(children), np.array(leaf_of, dtype=np.int64))


def _heap(
    tests: Sequence[tuple[int, int, bool]], leaf_of: Sequence[int], children: Sequence[tuple[int, int]], depth: int
) -> tuple[list[tuple[int, int, bool]], list[int], list[tuple[int, int]]]:
    """The complete tree; below a leaf that lies higher, arbitrary nodes lead to copies of that leaf."""
    n = 2**depth - 1
    at = [0 if tests else -1] * (2 * n + 1)
    complete = []
    for k in range(n):
        node = at[k]
        complete.append(tests[node] if node >= 0 else (0, 0, True))
        at[2 * k + 1], at[2 * k + 2] = children[node] if node >= 0 else (node, node)
    return complete, [leaf_of[-1 - k] for k in at[n:]], []
