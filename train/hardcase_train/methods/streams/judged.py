# SPDX-License-Identifier: Apache-2.0
"""The judged rows in the order of their time: walks of policies that remember, by copies that have not seen them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hardcase_edge.more.batch.streams import walk
from hardcase_edge.program.definition import Node, Program
from hardcase_edge.stream.layout import Layout

from ...data.memory import widened
from ...data.problem import N_FOLDS
from ...policy.batch import Batch, Batches, Outcome
from ...policy.selection import Judge

__all__ = ["Corrected", "judged_walk", "runs"]


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
