"""Trained parts to a draft program: every part becomes a scorer over columns shared by the whole program.

A draft holds floats where a bundle holds integers; everything else (columns, sensors, costs, nodes) is final.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from hardcase_edge.program import Affine, Column, Node, Number, Opaque, Polynomial, Program, Rank, Trees

from .problem import Problem

__all__ = ["Part", "compile_program"]


class Part(Protocol):
    """What a trained scorer must offer to become one of a program's: ``Ensemble`` and ``Linear`` do.

    Rank columns of one feature are merged over all parts, so the columns a part is given may be finer than those it
    asked for.
    """

    def columns(self, dtypes: Sequence[str]) -> list[Column]: ...

    def scorer(self, dtypes: Sequence[str], columns: Sequence[Column]) -> Trees | Polynomial | Opaque: ...


def compile_program(problem: Problem, parts: Sequence[Part], nodes: Sequence[Node]) -> Program:
    """A draft program whose scorer k is ``parts[k]``."""
    dtypes = problem.dtypes
    columns = _merged(c for part in parts for c in part.columns(dtypes))
    return Program(
        features=problem.features,
        sensors=problem.sensors,
        uplink=problem.uplink,
        columns=columns,
        scorers=tuple(part.scorer(dtypes, columns) for part in parts),
        nodes=tuple(nodes),
        n_classes=problem.n_classes,
    )


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
