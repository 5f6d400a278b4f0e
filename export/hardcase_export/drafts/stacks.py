# SPDX-License-Identifier: Apache-2.0
"""The smaller form of stacks in a draft: as they are, or as ensembles of their own with the weights in the leaves.

Many stacks on one ensemble store its trees once; a single one is smaller, and faster, as trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hardcase_edge.program.definition import Answer, Branch, Program, Scorer, Stack, Tree, Trees
from hardcase_edge.program.encode import encode


def smaller(draft: Program) -> Program:
    """A draft that decides as this one, with the stacks of each ensemble in the form that takes fewer bytes.

    Scorers keep their numbers. The draft's indices have been checked (``integers.quantise.check_shape``).
    """
    read = {n.scores.scorer for n in draft.nodes if isinstance(n, Branch | Answer)}
    for k in sorted({s.trees for s in draft.scorers if isinstance(s, Stack)}):
        ensemble = draft.scorers[k]
        assert isinstance(ensemble, Trees)
        stacks = {j: s for j, s in enumerate(draft.scorers) if isinstance(s, Stack) and s.trees == k}
        folded: dict[int, Scorer] = {j: _folded(ensemble, s) for j, s in stacks.items()}
        pruned: dict[int, Scorer] = {}
        if k not in read:
            folded[k] = Trees((), ensemble.base, ())
            pruned = _pruned(k, ensemble, stacks)
        draft = min((_with(draft, scorers) for scorers in (folded, pruned)), key=_n_bytes)
    return draft


def _with(draft: Program, scorers: Mapping[int, Scorer]) -> Program:
    return replace(draft, scorers=tuple(scorers.get(k, s) for k, s in enumerate(draft.scorers)))


def _n_bytes(draft: Program) -> int:
    return sum(len(values) * values.itemsize for values in encode(draft, is_draft=True).values())


def _folded(below: Trees, stack: Stack) -> Trees:
    """The stack as an ensemble: each member with leaves as wide as the stack's outputs."""
    n = len(stack.bias)
    trees = [
        replace(t, output=0, width=n, leaves=tuple(row[j] * leaf for leaf in t.leaves for row in stack.weights))
        for j, t in enumerate(below.trees[m] for m in stack.members)
    ]
    return _compact(Trees(below.columns, stack.bias, tuple(trees)))


def _pruned(k: int, below: Trees, stacks: Mapping[int, Stack]) -> dict[int, Scorer]:
    """The ensemble with the trees that stacks name, and the stacks with these trees' new numbers."""
    used = sorted({m for s in stacks.values() for m in s.members})
    place = {m: i for i, m in enumerate(used)}
    changed: dict[int, Scorer] = {k: _compact(replace(below, trees=tuple(below.trees[m] for m in used)))}
    return changed | {j: replace(s, members=tuple(place[m] for m in s.members)) for j, s in stacks.items()}


def _compact(s: Trees) -> Trees:
    """The ensemble with the columns that its splits name, and no others."""
    used = sorted({c for t in s.trees for c in t.splits})
    place = {c: i for i, c in enumerate(used)}

    def moved(t: Tree) -> Tree:
        return replace(t, splits=tuple(place[c] for c in t.splits))

    return Trees(tuple(s.columns[c] for c in used), s.base, tuple(moved(t) for t in s.trees))
