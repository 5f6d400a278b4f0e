# SPDX-License-Identifier: Apache-2.0
"""Compile a tree ensemble into a program that acquires sensors lazily, only those on a row's own paths.

The trees are walked one after another; a sensor is bought immediately before the first split that reads it. A subtree
that needs no further sensor is not walked: one Answer at the end scores all trees, and by then every sensor on the
row's own paths has been bought.
"""

from __future__ import annotations

from dataclasses import replace

from hardcase_edge.program.definition import (
    CODE_MAX,
    THRESHOLD,
    Acquire,
    Answer,
    Branch,
    Node,
    Polynomial,
    Program,
    Slice,
    Tree,
)
from hardcase_edge.program.definition import Trees as TreesScorer

from ...data.problem import Problem
from ...policy.compile import compile_program
from ...trees.boosting import Ensemble

__all__ = ["lazy_program"]

JOIN = -1  # placeholder of a target: the first node of the next tree


def lazy_program(problem: Problem, ensemble: Ensemble) -> Program:
    """The draft that walks these trees and answers by their sum; its last node is its only Answer."""
    program = compile_program(problem, [ensemble], ())
    trees = program.scorers[0]
    assert isinstance(trees, TreesScorer)
    sensor_of = problem.sensor_of
    walk = _Walk([int(sensor_of[program.columns[c].feature]) for c in trees.columns])
    for tree in trees.trees:
        walk.add(tree)
    nodes = (*walk.nodes, Answer(Slice(0, 0, len(trees.base))))
    readings = [_reading(trees.columns[c], is_left) for c, is_left in walk.readings]
    return replace(program, scorers=(trees, *readings), nodes=nodes)


def _reading(column: int, missing_left: bool) -> Polynomial:
    """A column's code as a score; a missing code is replaced by one that goes the split's way for missing values."""
    substitute = -CODE_MAX if missing_left else CODE_MAX
    return Polynomial((column,), (substitute,), 0, ((0,),), ((1.0,),), (0.0,), weight_bits=8)


class _Walk:
    """The nodes so far, and the sensors (a bit mask) that every path through them has tried."""

    def __init__(self, sensor_of: list[int]) -> None:
        self.sensor_of = sensor_of  # for each column of the trees
        self.nodes: list[Node] = []
        self.readings: dict[tuple[int, bool], int] = {}  # (column, whether missing goes left): its scorer
        self.tried = 0

    def add(self, tree: Tree) -> None:
        """Append the nodes of one tree."""
        if not tree.splits:
            return
        below = self._below(tree)
        first = len(self.nodes)
        ends: list[int] = []
        self._split(tree, 0, self.tried, below, ends)
        self.tried = ends[0]
        for end in ends:
            self.tried &= end
        for k in range(first, len(self.nodes)):
            self.nodes[k] = _joined(self.nodes[k], len(self.nodes))

    def _below(self, tree: Tree) -> list[int]:
        """The sensors, as a bit mask, that each split and its subtree read."""
        below = [1 << self.sensor_of[c] for c in tree.splits]
        for h in range(len(below) - 1, -1, -1):
            for child in tree.children[h]:
                below[h] |= below[child] if child > 0 else 0
        return below

    def _split(self, tree: Tree, h: int, tried: int, below: list[int], ends: list[int]) -> int:
        """Append nodes of split h and its subtree; their start. ``ends`` collects the sensors tried on each path."""
        if h < 0 or not below[h] & ~tried:
            ends.append(tried)
            return JOIN
        at = len(self.nodes)
        sensor = self.sensor_of[tree.splits[h]]
        after = tried | 1 << sensor
        ends_here = not any(c > 0 and below[c] & ~after for c in tree.children[h])
        if after != tried:
            then = JOIN if ends_here else at + 1
            self.nodes.append(Acquire((sensor,), then, then))
        if ends_here:
            ends.append(after)
            return at
        branch = len(self.nodes)
        scores = self._slice(tree.splits[h], tree.missing_left[h])
        self.nodes.append(Branch(scores, THRESHOLD, ()))  # its targets are set below
        left, right = (self._split(tree, c, after, below, ends) for c in tree.children[h])
        self.nodes[branch] = Branch(scores, THRESHOLD, (left, right), tree.thresholds[h])
        return at

    def _slice(self, column: int, missing_left: bool) -> Slice:
        scorer = self.readings.setdefault((column, missing_left), 1 + len(self.readings))
        return Slice(scorer, 0, 1)


def _joined(node: Node, end: int) -> Node:
    """The node, with JOIN replaced by ``end``."""
    if isinstance(node, Acquire):
        return replace(node, then=end, otherwise=end) if node.then == JOIN else node
    assert isinstance(node, Branch)
    return replace(node, targets=tuple(end if t == JOIN else t for t in node.targets))
