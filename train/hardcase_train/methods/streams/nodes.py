# SPDX-License-Identifier: Apache-2.0
"""Nodes of a policy that holds its label: read the memory, and answer what it holds, or buy and answer anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.more.batch.streams import walk
from hardcase_edge.program.definition import THRESHOLD, Acquire, Branch, Node, Program, Slice
from hardcase_edge.stream.layout import Layout

from ...data.problem import N_FOLDS, Problem, Subset, widened
from ...policy.answers import bare_answer, with_confidences
from ...policy.batch import Batch, Batches
from ...policy.compile import Part, Policy, buy
from ...policy.front import Point
from ...policy.selection import Judge, Trained

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
    bare, memory : of ``data.problem.with_memory``
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


# The judged rows in the order of their time: walks of policies that remember, by copies that have not seen them.


class Corrected(Batches):
    """Makes batches in which the last scorer's scores are added to the first's."""

    def __call__(self, *args: Any) -> Batch:
        batch = super().__call__(*args)
        of_scorer, last = batch.scores, len(batch.program.scorers) - 1

        def scores(scorer: int, *where: Any) -> np.ndarray:
            own = of_scorer(scorer, *where)
            return own + of_scorer(last, *where) if scorer == 0 else own

        batch.scores = scores  # type: ignore[assignment, method-assign]
        return batch


def runs(sequence: np.ndarray, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows in order, stream by stream, (n,), and the number of the run of each of them, (n,).

    A run is a piece of one stream within one fold; the next piece begins with an empty memory.
    """
    order = np.argsort(sequence, kind="stable")
    parts = np.column_stack([sequence[order], fold[order]])
    return order, np.cumsum(np.append(False, (parts[1:] != parts[:-1]).any(axis=1)))


def judged_walk(
    judge: Judge,
    programs: Sequence[Program],
    memory: Layout,
    scores: Sequence[np.ndarray],
    nodes: Sequence[Node],
    make: Callable[[], Batches] = Batches,
) -> Outcome:
    """The outcome of the judged rows, in the order of their time within each fold.

    Parameters
    ----------
    programs : for each fold that of a copy that has not seen it; last the one itself, for validation rows
    scores : of the first scorers on the judged rows, (n, n_outputs) each, from copies that have not seen them
    nodes : of the walk
    make : what makes the batches of one program
    """
    assert judge.sequence is not None
    n_valid = len(judge.y) - (len(judge.fold) if judge.is_crossed else 0)
    crossed = judge.fold if judge.is_crossed else np.zeros(0, dtype=np.int64)
    fold = np.concatenate([crossed, np.full(n_valid, N_FOLDS)])
    order, run = runs(judge.sequence, fold)
    outcomes, places = [], []
    makes = {id(program): make() for program in programs}
    if len({id(program) for program in programs}) == 1:
        fold = np.zeros_like(fold)  # one program walks all runs side by side
    for k in np.unique(fold).tolist():
        own = fold[order] == k
        rows = order[own]
        sizes = None if judge.sizes is None else judge.sizes[rows]
        program = programs[min(k, len(programs) - 1)]  # only the last if only validation rows are judged
        X, known, hpc = widened(judge.X[rows], program), [s[rows] for s in scores], judge.hpc_label[rows]
        outcomes.append(walk(program, memory, X, run[own], hpc, nodes, known, sizes=sizes, make=makes[id(program)])[1])
        places.append(rows)
    return Outcome.joined(outcomes, np.argsort(np.concatenate(places)))
