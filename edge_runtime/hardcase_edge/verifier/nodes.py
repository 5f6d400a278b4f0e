# SPDX-License-Identifier: Apache-2.0
"""Proves rules V21 to V27: nodes lead ahead, name what exists, and have the shapes of their rules."""

from __future__ import annotations

from itertools import chain
from operator import lt
from typing import assert_never

from ..errors import ProgramError
from ..program.cost import evaluate_polynomial
from ..program.definition import (
    ARGMAX,
    MARGIN,
    THRESHOLD,
    TOURNAMENT,
    Acquire,
    Answer,
    Branch,
    Forward,
    Program,
    Select,
    Slice,
    shifted,
    targets_of,
)
from ..program.kinds import CLASS, VALUE
from ..program.limits import MAX_ITEM_SIZE, MAX_SHIFT, MAX_TARGETS, SAFE
from .require import check_cost, in_range, integers, need


def check_nodes(p: Program, bounds: list[tuple[int, ...]]) -> None:
    """Check all nodes. ``bounds``: the largest absolute score of each output of each scorer.

    Raises
    ------
    ProgramError
        A rule does not hold.
    """
    widths = [len(outputs) for outputs in bounds]
    n = len(p.nodes)
    reached = {0}
    for k, node in enumerate(p.nodes):
        what = f"node {k}"
        need(k in reached, f"{what} cannot be reached")
        for t in targets_of(node):
            need(k < t < n, f"{what} leads to {t}: targets must lie in {k + 1} to {n - 1}")
            reached.add(t)
        if isinstance(node, Acquire | Forward):
            in_range(node.sensors, len(p.sensors), f"{what}: sensor")
            need(len(set(node.sensors)) == len(node.sensors), f"{what} names a sensor twice")
        if isinstance(node, Acquire):
            need(len(node.sensors) >= 1, f"{what} buys nothing; it must name a sensor")
        elif isinstance(node, Forward):
            need(len(p.uplink.features) >= 1, f"{what} forwards, but the uplink carries no feature")
        elif isinstance(node, Branch):
            _check_branch(node, _width(node.scores, widths, what), what)
        elif isinstance(node, Answer):
            width = _width(node.scores, widths, what)
            _check_answer(p, node, width, bounds[node.scores.scorer][node.scores.start], what)
        elif isinstance(node, Select):
            _check_select(p, node, what)
        else:
            assert_never(node)
    _check_fallbacks(p)


def _width(s: Slice, widths: list[int], what: str) -> int:
    in_range([s.scorer], len(widths), f"{what}: scorer")
    need(0 <= s.start < s.stop <= widths[s.scorer], f"{what}: outputs {s.start} to {s.stop} of {widths[s.scorer]}")
    return s.stop - s.start


def _check_branch(node: Branch, width: int, what: str) -> None:
    n = len(node.targets)
    need(n <= MAX_TARGETS, f"{what} has {n} targets, at most {MAX_TARGETS} are allowed")
    integers([node.threshold], f"{what}: the threshold")
    shape = f"{what}: rule {node.rule} with {width} scores, {n} targets and {len(node.bracket)} matches"
    if node.rule == TOURNAMENT:
        need(n >= 2 and width == n - 1 == len(node.bracket), shape)
        for m, (a, b) in enumerate(node.bracket):
            if not (0 <= a < n + m and 0 <= b < n + m):
                in_range((a, b), n + m, f"{what}: match {m}: entrant")
        played = sorted(chain.from_iterable(node.bracket))
        need(played == [*range(2 * n - 2)], f"{what}: every entrant except the winner must play exactly once")
        return
    need(not node.bracket, shape)
    if node.rule == THRESHOLD:
        need(width == 1 and n == 2, shape)
    elif node.rule == MARGIN:
        need(n == 2, shape)
    else:
        need(node.rule == ARGMAX and (n == width >= 2 or (width == 1 and n == 2)), shape)


def _check_answer(p: Program, node: Answer, width: int, bound: int, what: str) -> None:
    integers([node.shift], f"{what}: the shift", MAX_SHIFT if node.kind == VALUE.answer else 0)
    if node.kind == CLASS.answer:
        ok = width == p.n_classes or (width == 1 and p.n_classes == 2)
        need(ok and p.n_classes >= 2, f"{what} answers with {width} scores for {p.n_classes} classes")
    else:
        ok = node.kind == VALUE.answer and width == 1 and p.n_classes == 0
        need(ok, f"{what} answers a {node.kind} with {width} scores in a program of {p.n_classes} classes")
    need(shifted(bound, node.shift) < SAFE, f"{what}: a value of {bound} times 2^{node.shift} overflows 64 bits")
    integers(node.margins, f"{what}: a margin")
    need(all(map(lt, node.margins, node.margins[1:])), f"{what}: margins do not increase")
    need(len(node.confidences) == len(node.margins) + 1, f"{what}: one confidence more than margins is needed")
    need(all(0 <= c <= 10_000 for c in node.confidences), f"{what}: a confidence is outside 0 to 10000")


def _check_select(p: Program, node: Select, what: str) -> None:
    need(len(node.candidates) >= 1, f"{what} has no candidate")
    for c in node.candidates:
        if not 1 <= c.max_size <= MAX_ITEM_SIZE:
            raise ProgramError(f"{what}: a candidate is for items of at most {c.max_size}")
        check_cost(c.cost, f"{what}: the cost of a candidate")
        total = evaluate_polynomial(c.cost, p.max_item_size)
        if total >= SAFE:
            raise ProgramError(f"{what}: a candidate may cost {total}, too large to add safely")


def _check_fallbacks(p: Program) -> None:
    forwards = [False] * len(p.nodes)  # whether a path from this node may reach a Forward
    for k in range(len(p.nodes) - 1, -1, -1):
        node = p.nodes[k]
        later = any(forwards[t] for t in targets_of(node))
        if isinstance(node, Forward):
            need(not later, f"node {k}: its fallback forwards again")
        forwards[k] = later or isinstance(node, Forward)
