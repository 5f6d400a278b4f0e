"""The rows that choices are made on: validation rows, and training rows seen by models not trained on them.

A rare error needs many rows to be seen. Every learner therefore also fits copies of itself without one fold of the
training rows each, and what a policy would have done on those rows is judged beside the validation rows. Test rows
are never here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardcase_edge.program import Node, Program

from .batch import Batch, Outcome
from .compiler import Part
from .problem import Problem

__all__ = ["N_FOLDS", "Judge", "Trained"]

N_FOLDS = 4  # f0's out-of-fold probabilities use as many: both sides see the same share of the rows


@dataclass(frozen=True)
class Trained:
    """A part and its scores on the judged rows, (n, n_outputs), each by a copy that had not seen the row."""

    part: Part
    scores: np.ndarray


class Judge:
    """Out-of-fold training rows, then validation rows."""

    def __init__(self, problem: Problem) -> None:
        train, valid = problem.train, problem.valid
        self.problem = problem
        self.X = np.vstack([train.X, valid.X])
        self.y = np.concatenate([train.y, valid.y])
        self.hpc_label = np.concatenate([train.hpc_label, valid.hpc_label])
        self.fold = np.random.default_rng(problem.seed).permutation(len(train.y)) % N_FOLDS

    def batch(self, program: Program, trained: Sequence[Trained]) -> Batch:
        """The judged rows ready for this program, scorer k scored as ``trained[k]`` says."""
        return Batch(program, self.X, [t.scores for t in trained])

    def summary(self, outcome: Outcome) -> dict[str, float]:
        """Accuracy, mean cost, forward rate, and the standard error of the loss of accuracy against f0."""
        lost = (self.hpc_label == self.y).astype(float) - (outcome.label == self.y)
        return {**outcome.summary(self.y), "loss_se": float(lost.std() / np.sqrt(len(lost)))}

    def run(self, program: Program, trained: Sequence[Trained], nodes: Sequence[Node] | None = None) -> Outcome:
        """What becomes of the judged rows."""
        return self.batch(program, trained).run(self.hpc_label, nodes)

    def run_each(self, programs: Sequence[Program]) -> Outcome:
        """What becomes of the judged rows where copies walk differently.

        Parameters
        ----------
        programs : one per fold, of a copy that has not seen that fold; last the program itself, for validation rows
        """
        n = len(self.fold)
        parts = [*(np.flatnonzero(self.fold == k) for k in range(N_FOLDS)), np.arange(n, len(self.y))]
        outcomes = [
            Batch(program, self.X[rows]).run(self.hpc_label[rows])
            for program, rows in zip(programs, parts, strict=True)
        ]
        return Outcome.joined(outcomes, np.argsort(np.concatenate(parts)))
