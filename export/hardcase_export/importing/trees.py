"""From the trees of a source to those of a program: cuts become ranks, parts nodes, and every row keeps its leaf.

``x <= cut`` must hold for exactly the readings for which it holds in the source. So a cut is moved down to the largest
number of the reading's type that the source still sends left; then the rank of a reading says on which side it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import CODE_MAX, Column, Number, Rank
from hardcase_edge.program.readings import I32_MAX, I32_MIN
from hardcase_edge.program.stored_trees import longest_way
from hardcase_edge.verifier.scorers import MAX_TREE_NODES

from ..sources.source import MAX_NODES, Source, SourceTree, Split

__all__ = ["Laid", "Shape", "hold", "lay"]

MAX_RANKS = 65_534
MAX_F32 = float(np.finfo(np.float32).max)
MAX_F64 = float(np.finfo(np.float64).max)
LARGEST: dict[str, float] = {"i32": I32_MAX, "f32": MAX_F32, "f64": MAX_F64}
SMALLEST: dict[str, float] = {"i32": I32_MIN + 1, "f32": -MAX_F32, "f64": -MAX_F64}
HEAP_DEPTH = 12  # deeper trees are never laid out in full


@dataclass(frozen=True, slots=True)
class Shape:
    """A tree of a program without its leaves' numbers: fields as in ``program.Tree``.

    ``leaf_of``: (n_leaves,) the source's leaf that each of ours is.
    """

    splits: tuple[int, ...]
    thresholds: tuple[int, ...]
    missing_left: tuple[bool, ...]
    children: tuple[tuple[int, int], ...]
    leaf_of: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Laid:
    """Columns, and per source tree its shape; splits are positions in ``columns``."""

    columns: tuple[Column, ...]
    shapes: tuple[Shape, ...]


def lay(source: Source, dtypes: Sequence[str], nullable: Sequence[bool]) -> Laid:
    """Shapes and columns of a checked source whose readings have these types, per feature.

    Raises
    ------
    InputError
        A feature has too many thresholds, or a tree too many nodes.
    """
    parted: dict[tuple[int, tuple[float, ...], tuple[bool, ...]], Split] = {}
    grown, n_nodes = [], 0
    for k, tree in enumerate(source.trees):
        splits = []
        for s in tree.splits:
            key = (s.feature, s.cuts, s.sides)
            if key not in parted:
                parted[key] = _held(s, dtypes[s.feature], source.dtype)
            splits.append(parted[key]._replace(missing_left=s.missing_left))
        grown.append(_grow(tree, splits, dtypes, nullable, f"{source.name}, tree {k}"))
        n_nodes += len(grown[-1][0])
        if n_nodes > MAX_NODES:
            raise InputError(f"{source.name} has more than {MAX_NODES} nodes when its sets are written as thresholds")
    cuts: dict[int, set[Number]] = {}
    for nodes, _ in grown:
        for feature, cut, *_ in nodes:
            cuts.setdefault(feature, set()).add(cut)
    ranks = {f: sorted(found) for f, found in sorted(cuts.items())}
    for f, found in ranks.items():
        if len(found) > MAX_RANKS:
            raise InputError(
                f"{source.name} has {len(found)} thresholds on feature {f}, a column holds {MAX_RANKS}; "
                "train fewer trees or with fewer bins"
            )
    place = {f: k for k, f in enumerate(ranks)}
    code = {(f, cut): k - CODE_MAX for f, found in ranks.items() for k, cut in enumerate(found)}
    shapes = tuple(
        _shape(*made, place, code, tree.leaves.shape[1]) for made, tree in zip(grown, source.trees, strict=True)
    )
    return Laid(tuple(Column(f, Rank(tuple(found))) for f, found in ranks.items()), shapes)


# ---------------------------------------------------------------- thresholds


def hold(cut: float, dtype: str, source: str) -> Number | None:
    """The largest reading of type ``dtype`` that a source comparing in type ``source`` finds at most ``cut``.

    None where there is no such reading.
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
    whole = math.floor(cut)
    if source == "f64" or abs(whole) < 2**24:
        return whole
    above = float(np.nextafter(np.float32(cut), np.float32(np.inf)))  # integers up to half-way round down to the cut
    whole = math.floor((cut + above) / 2)
    while float(np.float32(whole)) > cut:
        whole -= 1
    return min(whole, I32_MAX)


def _held(split: Split, dtype: str, source: str) -> Split:
    """The split over readings of this type: empty parts dropped, equal neighbours joined."""
    cuts: list[Number] = []
    sides: list[bool] = []
    for cut, side in zip(split.cuts, split.sides, strict=False):
        held = hold(cut, dtype, source)
        if held is None or (cuts and held <= cuts[-1]):
            continue  # no reading lies in this part
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

Node = tuple[int, Number, bool, int, int]  # feature, cut, missing goes left, left, right


def _grow(
    tree: SourceTree, splits: Sequence[Split], dtypes: Sequence[str], nullable: Sequence[bool], where: str
) -> tuple[list[Node], list[int]]:
    """Nodes in order from the root, children behind parents, and the source's leaf of each leaf.

    A split of many parts becomes a search among its cuts, with a copy of a side's subtree under each part.
    """
    made: list[list[int | Number | bool]] = []
    leaf_of: list[int] = []
    ahead: list[tuple[int, int, int, int, int]] = [(0 if splits else -1, -1, -1, -1, 0)]  # node, first, last, parent
    while ahead:
        node, first, last, parent, side = ahead.pop()
        while True:  # until it is a node or a leaf of ours
            if node < 0:
                leaf_of.append(-1 - node)
                here = -len(leaf_of)
                break
            split = splits[node]
            if first < 0:
                first, last = 0, len(split.cuts)
            inside = split.sides[first : last + 1]
            if len(set(inside)) > 1:
                here = len(made)
                middle = (first + last - 1) // 2
                made.append([split.feature, split.cuts[middle], _says(split, first, middle), 0, 0])
                ahead += [(node, middle + 1, last, here, 4), (node, first, middle, here, 3)]
                break
            child = tree.children[node][0 if inside[0] else 1]
            other = tree.children[node][0 if split.missing_left else 1]
            if len(split.sides) == 1 and child != other and nullable[split.feature]:
                here = len(made)  # all readings go one way, a missing one the other
                made.append([split.feature, _largest(dtypes[split.feature]), False, 0, 0])
                ahead += [(other, -1, -1, here, 4), (child, -1, -1, here, 3)]
                break
            node, first = child, -1
        if parent >= 0:
            made[parent][side] = here
        if len(made) > MAX_TREE_NODES:
            raise InputError(
                f"{where} has more than {MAX_TREE_NODES} nodes when its sets are written as thresholds; "
                "train a smaller tree, or code its categories as numbers in a meaningful order"
            )
    return [tuple(n) for n in made], leaf_of  # type: ignore[misc]


def _says(split: Split, first: int, last: int) -> bool:
    """Does one of these parts go where a missing reading goes?"""
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
    """Complete in heap order where that takes no more bytes, else with pointers."""
    made = [(place[f], code[f, cut], missing_left) for f, cut, missing_left, _, _ in nodes]
    children = [(left, right) for *_, left, right in nodes]
    n, depth = len(nodes), longest_way(children)
    if depth <= HEAP_DEPTH and 2 * (2**depth - 1) + 2**depth * width <= 4 * n + (n + 1) * width:
        made, leaf_of, children = _heap(made, leaf_of, children, depth)
    splits, thresholds, missing_left = zip(*made, strict=True) if made else ((), (), ())
    return Shape(splits, thresholds, missing_left, tuple(children), np.array(leaf_of, dtype=np.int64))


def _heap(
    made: Sequence[tuple[int, int, bool]], leaf_of: Sequence[int], children: Sequence[tuple[int, int]], depth: int
) -> tuple[list[tuple[int, int, bool]], list[int], list[tuple[int, int]]]:
    """The complete tree: below a leaf that lies higher, nodes that ask anything lead to copies of it."""
    n = 2**depth - 1
    at = [0 if made else -1] * (2 * n + 1)
    full = []
    for k in range(n):
        here = at[k]
        full.append(made[here] if here >= 0 else (0, 0, True))
        at[2 * k + 1], at[2 * k + 2] = children[here] if here >= 0 else (here, here)
    return full, [leaf_of[-1 - k] for k in at[n:]], []
