# SPDX-License-Identifier: Apache-2.0
"""Compiles trained parts into a draft program: each part becomes a scorer over columns that all parts share.

A draft holds floats where a bundle holds integers; everything else (columns, sensors, costs, nodes) is final. A program
holds its models as tuples, which need more memory than arrays, so policies that share parts stay ``Policy`` objects
until their programs are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from hardcase_edge.program.definition import (
    Acquire,
    Affine,
    Answer,
    Branch,
    Column,
    Node,
    Number,
    Opaque,
    Polynomial,
    Program,
    Rank,
    Stack,
    Trees,
)

from ..data.problem import Problem


class Part(Protocol):
    """The interface of a trained scorer that can be compiled; ``Ensemble`` and ``Linear`` have it.

    Rank columns of one feature are merged over all parts, so the columns passed to ``scorer`` may be finer than those
    that ``columns`` returned.
    """

    def columns(self, dtypes: Sequence[str]) -> list[Column]: ...

    def scorer(self, dtypes: Sequence[str], columns: Sequence[Column]) -> Trees | Polynomial | Opaque | Stack: ...


@runtime_checkable
class OnPart(Protocol):
    """A part whose scorer is a stack on another part, ``below``, which comes before it in the list of parts."""

    @property
    def below(self) -> Part: ...


@dataclass(frozen=True)
class Policy:
    """Nodes over trained parts, where scorer k is ``parts[k]``; it compiles to a program of the parts that it uses.

    bare : the problem's features, sensors and costs, as a program without nodes
    parts : one tuple, shared by all policies over the same parts; None in place of one that none of them uses
    """

    bare: Program
    parts: tuple[Part | None, ...]
    nodes: tuple[Node, ...]

    @property
    def used(self) -> tuple[int, ...]:
        """The parts that nodes read, and those on which these stand, by number."""
        read = {n.scores.scorer for n in self.nodes if isinstance(n, Answer | Branch)}
        below = {id(part.below) for part in _known(self.parts[k] for k in read) if isinstance(part, OnPart)}
        return tuple(sorted(read | {k for k, part in enumerate(self.parts) if id(part) in below}))

    @property
    def least_bytes(self) -> int:
        """Length that its draft in a file has at least, known without compiling it."""
        parts = (self.parts[k] for k in self.used)
        leaves = (
            np.ascontiguousarray(tree.leaves, np.float64) for part in parts for tree in getattr(part, "trees", ())
        )
        return sum({hash(one.tobytes()): one.nbytes for one in leaves}.values())  # a file has equal ones once

    def program(self, like: Program | None = None) -> Program:
        """The draft program; ``like``: that of a policy that uses the same parts, whose scorers then serve again."""
        used = self.used
        place = {scorer: k for k, scorer in enumerate(used)}
        nodes = [_renumbered(n, place) for n in self.nodes]
        if like is not None:
            return replace(like, nodes=tuple(nodes))
        return _compiled(self.bare, _known(self.parts[k] for k in used), nodes)


def joint(policies: Sequence[Policy]) -> tuple[Program, list[tuple[Node, ...]]]:
    """A draft program of the parts that any of these policies uses, which share theirs, and each one's nodes on it."""
    used = sorted({k for policy in policies for k in policy.used})
    place = {scorer: k for k, scorer in enumerate(used)}
    first = policies[0]
    program = _compiled(first.bare, _known(first.parts[k] for k in used), ())
    return program, [tuple(_renumbered(n, place) for n in policy.nodes) for policy in policies]


def _known(parts: Iterable[Part | None]) -> list[Part]:
    return [part for part in parts if part is not None]


def n_numbers(part: Part | None) -> int:
    """How many numbers the leaves of a part have; 0 for a part without trees, which is small."""
    return sum(np.size(tree.leaves) for tree in getattr(part, "trees", ()))


def policy_of(problem: Problem, parts: Sequence[Part], nodes: Sequence[Node]) -> Policy:
    """A policy for this problem."""
    bare = Program(
        problem.features, problem.sensors, problem.uplink, (), (), (), problem.n_classes, problem.max_item_size,
        problem.costs,
    )  # fmt: skip
    return Policy(bare, tuple(parts), tuple(nodes))


def compile_program(problem: Problem, parts: Sequence[Part], nodes: Sequence[Node]) -> Program:
    """A draft program whose scorer k is ``parts[k]``."""
    return _compiled(policy_of(problem, parts, nodes).bare, parts, nodes)


def compile_bare(bare: Program, parts: Sequence[Part]) -> Program:
    """A draft program without nodes, whose scorer k is ``parts[k]``, with the features and sensors of ``bare``."""
    return _compiled(bare, parts, ())


def _compiled(bare: Program, parts: Sequence[Part], nodes: Sequence[Node]) -> Program:
    dtypes = [f.dtype for f in bare.features]
    columns = _merged(c for part in parts for c in part.columns(dtypes))
    place = {id(part): k for k, part in enumerate(parts)}
    scorers = []
    for part in parts:
        scorer = part.scorer(dtypes, columns)
        if isinstance(scorer, Stack) and isinstance(part, OnPart):
            scorer = replace(scorer, trees=place[id(part.below)])
        scorers.append(scorer)
    return replace(bare, columns=columns, scorers=tuple(scorers), nodes=tuple(nodes))


def _renumbered(node: Node, place: dict[int, int]) -> Node:
    if not isinstance(node, Answer | Branch):
        return node
    return replace(node, scores=replace(node.scores, scorer=place[node.scores.scorer]))


def _merged(columns: Iterable[Column]) -> tuple[Column, ...]:
    """One rank column for each feature with the thresholds of all parts, and each affine column once; by feature."""
    thresholds: dict[int, set[Number]] = {}
    affine: dict[Column, None] = {}
    for column in columns:
        if isinstance(column.rule, Affine):
            affine[column] = None
        else:
            thresholds.setdefault(column.feature, set()).update(column.rule.thresholds)
    ranks = [Column(f, Rank(tuple(sorted(values)))) for f, values in thresholds.items()]
    return tuple(sorted([*ranks, *affine], key=lambda c: c.feature))


# Nodes that acquire a set of sensors: all at once, or one at a time if the whole set cannot be acquired.


def n_nodes(sensors: Sequence[int]) -> int:
    """The number of nodes that ``buy`` makes."""
    return len(sensors) + 1 if len(sensors) > 1 else len(sensors)


def buy(sensors: Sequence[int], at: int, then: int | None = None) -> list[Node]:
    """Nodes from index ``at`` on that acquire these sensors and continue at ``then`` (None: at the node after them).

    One Acquire takes the whole set, so that a device reads its sensors in parallel. If a sensor fails or the set would
    exceed the budget, the sensors are acquired one at a time as far as possible: scorers that work without a sensor
    still see the others.

    >>> [node.sensors for node in buy([0, 2], at=0)]
    [(0, 2), (0,), (2,)]
    """
    end = at + n_nodes(sensors) if then is None else then
    if len(sensors) < 2:
        return [Acquire((s,), end, end) for s in sensors]
    singles = [Acquire((s,), at + 2 + k, at + 2 + k) for k, s in enumerate(sensors[:-1])]
    return [Acquire(tuple(sensors), end, at + 1), *singles, Acquire((sensors[-1],), end, end)]
