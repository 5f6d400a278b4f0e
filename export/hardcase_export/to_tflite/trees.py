# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles in TFLite, which has no tree operator: all trees are walked at once, level by level.

A reading has two *slots*: in one a missing reading is the least number, in the other the greatest, so a step is one
comparison whichever way a missing reading goes. Shallow trees are completed, and each level has its own tables: place
p leads to 2p, or to 2p + 1 if its slot is above its bound. Otherwise nodes and leaves share one table in which the two
children of a node are adjacent, and a leaf leads to itself. ``walk`` takes the form with fewer bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.program.definition import Number

from ..scorers.comparisons import Splits
from .graph import Tensor, TfliteGraph

__all__ = ["walk"]

MAX_COMPLETE = 10  # levels

Slot = Callable[[int, bool], int]  # from a column, and whether a missing reading goes left, to the number of a slot
Bound = Callable[[int, Number], Number]  # from a column and a threshold to a number of the slots' type
Walked = tuple[Tensor, list[list[int]]]


def walk(g: TfliteGraph, slots: Tensor, trees: Sequence[Splits], slot: Slot, bound: Bound) -> Walked:
    """The place at which each tree ends, and the leaf that each place stands for.

    Parameters
    ----------
    slots : (k,) float32 or int64
    slot : the number of a column's slot
    bound : a column's threshold as a number of the slots' type

    Returns
    -------
    places : (n_trees,) int32, rows of a table
    rows : per tree, the leaf of each of its rows, in the table's order
    """
    depth = max(t.depth for t in trees)
    size = 4 + np.dtype(slots.dtype).itemsize
    n_nodes = sum(len(t.children) for t in trees)
    complete = len(trees) * (2**depth - 1) * size if depth <= MAX_COMPLETE else math.inf
    if complete + len(trees) * 2**depth * 2 <= (2 * n_nodes + len(trees)) * (size + 4 + 2):
        return _complete(g, slots, trees, depth, slot, bound)
    return _linked(g, slots, trees, depth, slot, bound)


def _complete(g: TfliteGraph, slots: Tensor, trees: Sequence[Splits], depth: int, slot: Slot, bound: Bound) -> Walked:
    place: Tensor | None = None
    at = [[0 if t.children else -1] for t in trees]  # per tree and place, a node or -1 - leaf
    for _ in range(depth):
        slot_numbers, own_bounds, below = [], [], []
        for t, nodes in zip(trees, at, strict=True):
            below.append([c for i in nodes for c in (t.children[i] if i >= 0 else (i, i))])
            slot_numbers += [slot(t.columns[i], t.missing_left[i]) if i >= 0 else 0 for i in nodes]
            own_bounds += [bound(t.columns[i], t.bounds[i]) if i >= 0 else 0 for i in nodes]
        if place is None:  # all trees at their roots
            value, limit = g.gather(slots, slot_numbers), g.const(own_bounds, slots.dtype)
            place = g.const(2 * np.arange(len(trees)), "i4")
        else:
            value = g.gather(slots, g.gather(g.const(slot_numbers, "i4"), place))
            limit = g.gather(g.const(own_bounds, slots.dtype), place)
            place = g.op("ADD", place, place)
        place = g.op("ADD", place, g.cast(g.compare("GREATER", value, limit), "i4"))
        at = below
    if place is None:
        place = g.const(np.arange(len(trees)), "i4")
    return place, [[-1 - i for i in nodes] for nodes in at]


def _linked(g: TfliteGraph, slots: Tensor, trees: Sequence[Splits], depth: int, slot: Slot, bound: Bound) -> Walked:
    """As ``walk``, with one table; a leaf's bound is above every value, so the leaf leads to its own ``left``."""
    dtype = slots.dtype
    top: Number = math.inf if dtype == "f4" else 2**63 - 1
    slot_numbers: list[int] = []
    bounds: list[Number] = []
    left: list[int] = []
    roots, rows = [], []
    for t in trees:
        roots.append(len(slot_numbers))
        order = [0 if t.children else -1]
        for i in order:  # the loop appends to the list
            left.append(roots[-1] + len(order) if i >= 0 else len(left))
            slot_numbers.append(slot(t.columns[i], t.missing_left[i]) if i >= 0 else 0)
            bounds.append(bound(t.columns[i], t.bounds[i]) if i >= 0 else top)
            order += t.children[i] if i >= 0 else ()
        rows.append([-1 - i if i < 0 else 0 for i in order])
    tables: list[NDArray[np.int32]] = [np.array(slot_numbers, np.int32), np.array(left, np.int32)]
    slot_of, left_of = (g.const(table, "i4") for table in tables)
    bound_of, place = g.const(bounds, dtype), g.const(roots, "i4")
    for _ in range(depth):
        above = g.compare("GREATER", g.gather(slots, g.gather(slot_of, place)), g.gather(bound_of, place))
        place = g.op("ADD", g.gather(left_of, place), g.cast(above, "i4"))
    return place, rows
