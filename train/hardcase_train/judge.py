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
        """Accuracy, mean cost, forward rate, and the standard error of the loss of accuracy against f0.

        And shares of the rows answered locally, 0 where there are none: ``local_error``, ``local_worse`` (wrong where
        f0 is right), ``local_better`` (right where f0 is wrong).
        """
        right, f0_right = outcome.label == self.y, self.hpc_label == self.y
        lost = f0_right.astype(float) - right
        local = ~outcome.forwarded
        shares = {"local_error": ~right, "local_worse": f0_right & ~right, "local_better": right & ~f0_right}
        return {
            **outcome.summary(self.y),
            "loss_se": float(lost.std() / np.sqrt(len(lost))),
            **{name: float(which[local].mean()) if local.any() else 0.0 for name, which in shares.items()},
        }

    def run(self, program: Program, trained: Sequence[Trained], nodes: Sequence[Node] | None = None) -> Outcome:
        """What becomes of the judged rows."""
        return self.batch(program, trained).run(self.hpc_label, nodes)
