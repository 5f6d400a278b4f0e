# SPDX-License-Identifier: Apache-2.0
"""Polynomials of a draft split by the nodes that read them, with the rows that reach each node.

A scorer that holds both a state's answer and its matches becomes two, so each can have its own terms, width and scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.more.batch.choices import choose, classes_of
from hardcase_edge.program.definition import Answer, Branch, Node, Polynomial, Program, Scorer, Slice

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Use:
    """A node that reads a scorer, and the numbers of the rows that reach it, (n,)."""

    number: int
    node: Branch | Answer
    rows: NDArray[np.int64]


def split(draft: Program) -> Program:
    """An equal program, with each polynomial of products split into runs of outputs that are read together."""
    scorers: list[Scorer] = []
    places: dict[tuple[int, int], tuple[int, int]] = {}  # (scorer, output) of the draft -> of the result
    for k, s in enumerate(draft.scorers):
        runs = _runs(draft, k) if isinstance(s, Polynomial) and _is_product(s) else []
        if not runs:
            places |= {(k, o): (len(scorers), o) for o in range(_n_outputs(draft, k))}
            scorers.append(s)
            continue
        assert isinstance(s, Polynomial)
        for first, last in runs:
            places |= {(k, o): (len(scorers), o - first) for o in range(first, last)}
            scorers.append(replace(s, weights=s.weights[first:last], bias=s.bias[first:last]))
    nodes: list[Node] = []
    for node in draft.nodes:
        if isinstance(node, Branch | Answer):
            scorer, start = places[node.scores.scorer, node.scores.start]
            width = node.scores.stop - node.scores.start
            node = replace(node, scores=Slice(scorer, start, start + width))
        nodes.append(node)
    return replace(draft, scorers=tuple(scorers), nodes=tuple(nodes))


def _is_product(s: Polynomial) -> bool:
    return bool(s.terms) and len(s.terms[0]) > 1


def _n_outputs(draft: Program, k: int) -> int:
    return max((n.scores.stop for n in _readers(draft, k)), default=0)


def _readers(draft: Program, k: int) -> list[Branch | Answer]:
    return [n for n in draft.nodes if isinstance(n, Branch | Answer) and n.scores.scorer == k]


def _runs(draft: Program, k: int) -> list[tuple[int, int]]:
    """Runs of outputs that slices hold together, in order; outputs that no node reads are left out."""
    runs: list[tuple[int, int]] = []
    for first, last in sorted({(n.scores.start, n.scores.stop) for n in _readers(draft, k)}):
        if runs and first < runs[-1][1]:
            runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
        else:
            runs.append((first, last))
    return runs


# ---------------------------------------------------------------- rows


def uses_of(draft: Program, traces: Sequence[Sequence[int]]) -> dict[int, list[Use]]:
    """For each polynomial of products, the nodes that read it and the rows that reach them."""
    rows_at: dict[int, list[int]] = {}
    for row, trace in enumerate(traces):
        for k in trace:
            rows_at.setdefault(k, []).append(row)
    uses: dict[int, list[Use]] = {}
    for k, node in enumerate(draft.nodes):
        if isinstance(node, Branch | Answer):
            scorer = draft.scorers[node.scores.scorer]
            if isinstance(scorer, Polynomial) and _is_product(scorer):
                use = Use(k, node, np.array(rows_at.get(k, []), dtype=np.int64))
                uses.setdefault(node.scores.scorer, []).append(use)
    return uses


def outcome(node: Branch | Answer, scores: Array, threshold: float) -> NDArray[np.int64]:
    """The node's choice for each row, (n,), with every target available: a class, or the index of a target."""
    part = scores[:, node.scores.start : node.scores.stop]
    return classes_of(part) if isinstance(node, Answer) else choose(replace(node, threshold=threshold), part)
