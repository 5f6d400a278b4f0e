# SPDX-License-Identifier: Apache-2.0
"""Nodes of a policy that holds its label: read the memory, and answer what it holds, or buy and answer anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hardcase_edge.program.definition import THRESHOLD, Acquire, Branch, Node, Program, Slice
from hardcase_edge.stream.layout import Layout

from ...data.problem import Problem, Subset
from ...policy.acquire import buy
from ...policy.answers import bare_answer, with_confidences
from ...policy.batch import Batches
from ...policy.compile import Part, Policy
from ...policy.front import Point
from ...policy.selection import Judge, Trained
from .judged import Corrected, judged_walk

__all__ = ["CASE", "Holding", "hold_nodes"]

CASE = 0  # the scorer of the model that answers anew: the first, because its scores on judged rows are given


def hold_nodes(
    problem: Problem, memory: int, cheap: Subset, bought: Subset, asks: Sequence[tuple[int, float]], held: int
) -> list[Node]:
    """Buy ``cheap`` and read the memory; if no ask is above its threshold, answer what is held, else buy and answer.

    Whatever fails leads to the purchase: it needs no memory.

    Parameters
    ----------
    asks : scorers, each with the threshold above which the window is bought
    held : the scorer that answers the held label
    """
    first = buy(cheap, 0)
    at = len(first)
    n_ahead = at + 1 + len(asks) + 1  # the purchase comes behind the memory, the asks and the held answer
    nodes: list[Node] = [*first, Acquire((memory,), at + 1, n_ahead)]
    for scorer, threshold in asks:
        nodes.append(Branch(Slice(scorer, 0, 1), THRESHOLD, (len(nodes) + 1, n_ahead), threshold))
    nodes.append(bare_answer(problem, held))
    return [*nodes, *buy(bought, n_ahead), bare_answer(problem, CASE)]


@dataclass(frozen=True)
class Holding:
    """What a method that holds labels has trained, and the judged rows that it is judged on.

    whole : the model that answers anew
    bare, memory : of ``data.memory.with_memory``
    programs : without nodes, by fold and last for validation rows, whose first scorer is that of ``whole``
    parts : of the policy itself, in the order of the scorers
    is_corrected : the last scorer of each program is added to its first; the policy's first part has them together
    """

    judge: Judge
    whole: Trained
    bare: Program
    memory: Layout
    programs: Sequence[Program]
    parts: tuple[Part, ...]
    is_corrected: bool = False

    def point(self, method: str, params: dict[str, Any], nodes: list[Node]) -> Point:
        """The point of the policy of these nodes, with confidences fitted to the judged rows."""
        judge = self.judge
        make = Corrected if self.is_corrected else Batches
        outcome = judged_walk(judge, self.programs, self.memory, [self.whole.scores], nodes, make)
        policy = Policy(self.bare, self.parts, tuple(with_confidences(judge, nodes, outcome)))
        return Point(method, params, judge.summary(outcome), None, policy, self.memory)
