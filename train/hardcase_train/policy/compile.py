"""Trained parts to a draft program: every part becomes a scorer over columns shared by the whole program.

A draft holds floats where a bundle holds integers; everything else (columns, sensors, costs, nodes) is final. As tuples
large models are larger still, so policies that share parts stay ``Policy`` until their programs are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hardcase_edge.program.definition import (
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
    Trees,
)

from ..data.problem import Problem

__all__ = ["Part", "Policy", "compile_program", "policy_of"]


class Part(Protocol):
    """What a trained scorer must offer to become one of a program's: ``Ensemble`` and ``Linear`` do.

    Rank columns of one feature are merged over all parts, so the columns a part is given may be finer than those it
    asked for.
    """

    def columns(self, dtypes: Sequence[str]) -> list[Column]: ...

    def scorer(self, dtypes: Sequence[str], columns: Sequence[Column]) -> Trees | Polynomial | Opaque: ...


@dataclass(frozen=True)
class Policy:
    """Nodes over parts, scorer k being ``parts[k]``: a program to be, of those parts that its nodes name.

    bare : the problem's features, sensors and costs, as a program without nodes
    parts : the same tuple in all policies that share them
    """

    bare: Program
    parts: tuple[Part, ...]
    nodes: tuple[Node, ...]

    def program(self) -> Program:
        """The draft program."""
        used = sorted({n.scores.scorer for n in self.nodes if isinstance(n, Answer | Branch)})
        place = {scorer: k for k, scorer in enumerate(used)}
        return _compiled(self.bare, [self.parts[k] for k in used], [_renumbered(n, place) for n in self.nodes])

    def with_all_parts(self) -> Program:
        """A draft that runs the nodes of every policy with these parts."""
        return _compiled(self.bare, self.parts, self.nodes)


def policy_of(problem: Problem, parts: Sequence[Part], nodes: Sequence[Node]) -> Policy:
    """A policy for this problem."""
    bare = Program(problem.features, problem.sensors, problem.uplink, (), (), (), problem.n_classes)
    return Policy(bare, tuple(parts), tuple(nodes))


def compile_program(problem: Problem, parts: Sequence[Part], nodes: Sequence[Node]) -> Program:
    """A draft program whose scorer k is ``parts[k]``."""
    return policy_of(problem, parts, nodes).with_all_parts()


def _compiled(bare: Program, parts: Sequence[Part], nodes: Sequence[Node]) -> Program:
    dtypes = [f.dtype for f in bare.features]
    columns = _merged(c for part in parts for c in part.columns(dtypes))
    scorers = tuple(part.scorer(dtypes, columns) for part in parts)
    return replace(bare, columns=columns, scorers=scorers, nodes=tuple(nodes))


def _renumbered(node: Node, place: dict[int, int]) -> Node:
    if not isinstance(node, Answer | Branch):
        return node
    return replace(node, scores=replace(node.scores, scorer=place[node.scores.scorer]))


def _merged(columns: Iterable[Column]) -> tuple[Column, ...]:
    """By feature: one rank column with all thresholds, then each affine column once."""
    thresholds: dict[int, set[Number]] = {}
    affine: dict[Column, None] = {}
    for column in columns:
        if isinstance(column.rule, Affine):
            affine[column] = None
        else:
            thresholds.setdefault(column.feature, set()).update(column.rule.thresholds)
    ranks = [Column(f, Rank(tuple(sorted(values)))) for f, values in thresholds.items()]
    return tuple(sorted([*ranks, *affine], key=lambda c: c.feature))
