# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles as comparisons of readings with thresholds, so that no runtime needs to compute ranks.

``code <= t`` on a rank column holds exactly if ``reading <= thresholds[t + 32767]``. The feature's type holds both
numbers, so a target that compares in that type decides equally. A ``t`` beyond the last threshold sends every reading
left, so its bound is infinite. An affine column is compared by its code, as in the program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hardcase_edge.program.definition import CODE_MAX, Column, Number, Program, Rank, Slice, Stack, Tree, Trees
from hardcase_edge.program.stored_trees import children_of, longest_way


@dataclass(frozen=True, slots=True)
class Splits:
    """One tree: node i goes left if column ``columns[i]`` is at most ``bounds[i]``, or missing and ``missing_left[i]``.

    ``columns`` are numbered as in the program. ``children[i]`` is (left, right): a later node, or -1-k for leaf k; a
    tree without nodes is leaf 0. ``leaves``, (n_leaves, width), are added to the outputs from ``output`` on.
    """

    output: int
    columns: tuple[int, ...]
    bounds: tuple[Number, ...]
    missing_left: tuple[bool, ...]
    children: tuple[tuple[int, int], ...]
    leaves: tuple[tuple[int, ...], ...]

    @property
    def width(self) -> int:
        """The number of outputs that the tree adds to."""
        return len(self.leaves[0])

    @property
    def depth(self) -> int:
        """The number of comparisons on the longest path."""
        return longest_way(self.children)


def splits_of(program: Program, part: Slice) -> list[Splits]:
    """The trees that add to these outputs of an ensemble; output 0 is the slice's first."""
    scorer = program.scorers[part.scorer]
    assert isinstance(scorer, Trees)
    touching = [t for t in scorer.trees if t.output < part.stop and t.output + t.width > part.start]
    return _split(program, scorer, touching, part)


def stacked_splits(program: Program, stack: Stack) -> list[Splits]:
    """A stack's trees, in the order of its weights."""
    scorer = program.scorers[stack.trees]
    assert isinstance(scorer, Trees)
    return _split(program, scorer, [scorer.trees[m] for m in stack.members], Slice(stack.trees, 0, len(scorer.base)))


def _split(program: Program, scorer: Trees, trees: Iterable[Tree], part: Slice) -> list[Splits]:
    return [_one(tree, [(c, program.columns[c]) for c in scorer.columns], part) for tree in trees]


def _one(tree: Tree, columns: list[tuple[int, Column]], part: Slice) -> Splits:
    first, last = max(tree.output, part.start), min(tree.output + tree.width, part.stop)
    return Splits(
        output=first - part.start,
        columns=tuple(columns[s][0] for s in tree.splits),
        bounds=tuple(_bound(columns[s][1], t) for s, t in zip(tree.splits, tree.thresholds, strict=True)),
        missing_left=tree.missing_left,
        children=tuple(children_of(tree)),
        leaves=tuple(
            tuple(int(v) for v in tree.leaves[k + first - tree.output : k + last - tree.output])
            for k in range(0, len(tree.leaves), tree.width)
        ),
    )


def _bound(column: Column, code: int) -> Number:
    if not isinstance(column.rule, Rank):
        return code
    place = code + CODE_MAX
    return column.rule.thresholds[place] if place < len(column.rule.thresholds) else math.inf
