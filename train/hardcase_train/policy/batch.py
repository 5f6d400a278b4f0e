# SPDX-License-Identifier: Apache-2.0
"""Vectorised evaluation of a program on many rows, with tree ensembles scored by compiled code.

Training uses it wherever it needs the outcome of a policy, so that every figure comes from the program itself and from
the one cost meter. A test compares it with ``hardcase_edge.session.session`` on every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hardcase_edge.more.batch import evaluate
from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.more.batch.streams import walk
from hardcase_edge.program.definition import Node, Program, Trees
from hardcase_edge.stream.layout import Layout

from ..data.problem import Rows, widened
from .tree_scores import Arrays, as_arrays, score_trees


class Batch(evaluate.Batch):
    """Rows prepared for programs that share columns and scorers."""

    def score_trees(self, s: Trees, codes: np.ndarray) -> np.ndarray:
        """Scores of an ensemble, (n, n_outputs) float64, for codes (n_columns, n)."""
        return score_trees(s, codes)


class Batches:
    """Makes the batches of a walk, which scores few rows many times: ensembles become arrays once."""

    def __init__(self) -> None:
        self._arrays: dict[int, list[Arrays]] = {}

    def __call__(self, *args: Any) -> Batch:
        batch = Batch(*args)
        batch.score_trees = self._score  # type: ignore[method-assign]
        return batch

    def _score(self, s: Trees, codes: np.ndarray) -> np.ndarray:
        if id(s) not in self._arrays:
            self._arrays[id(s)] = list(as_arrays(s))
        return score_trees(s, codes, self._arrays[id(s)])


def walked(program: Program, memory: Layout, rows: Rows, nodes: Sequence[Node] | None = None) -> Outcome:
    """The outcome of rows in the order of their time; rows without an order are each a stream of their own."""
    sequence = np.arange(len(rows.y)) if rows.sequence is None else rows.sequence
    X = widened(rows.X, program)
    return walk(program, memory, X, sequence, rows.hpc_label, nodes, sizes=rows.sizes, make=Batches())[1]
