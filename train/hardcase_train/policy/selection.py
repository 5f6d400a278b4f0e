"""The rows that choices are made on: validation rows, and training rows seen by models not trained on them.

A rare error needs many rows to be seen. Every learner therefore also fits copies of itself without one fold of the
training rows each, and what a policy would have done on those rows is judged beside the validation rows; where
there are validation rows enough, they are judged alone. Test rows are never here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hardcase_edge.program.definition import Node, Program

from ..data.problem import N_FOLDS, Problem
from .batch import Batch, Outcome
from .compile import Part
from .quality import ACCURACY, figures_of

__all__ = ["Judge", "Trained"]

ENOUGH_ROWS = 3000  # of validation: one row in a thousand is then seen, and copies need not be trained


@dataclass(frozen=True)
class Trained:
    """A part and its scores on the judged rows, (n, n_outputs), each by a copy that had not seen the row."""

    part: Part
    scores: np.ndarray


class Judge:
    """Out-of-fold training rows, then validation rows; or the latter alone where they are enough, or ``is_alone``.

    Attributes
    ----------
    is_rough : only figures are asked for: points may do without programs
    is_crossed : whether training rows are judged too
    fold : (n_train,) fold of each training row
    """

    def __init__(self, problem: Problem, is_rough: bool = False, is_alone: bool = False) -> None:
        self.problem, self.is_rough = problem, is_rough
        self.is_crossed = len(problem.valid.y) < ENOUGH_ROWS and not is_alone
        parts = (problem.train, problem.valid) if self.is_crossed else (problem.valid,)
        self.X = np.vstack([p.X for p in parts])
        self.y = np.concatenate([p.y for p in parts])
        self.hpc = np.vstack([p.hpc for p in parts])
        self.hpc_label = self.hpc.argmax(axis=1)
        self.weight = np.concatenate([p.weight for p in parts])
        self.fold = np.random.default_rng(problem.seed).permutation(len(problem.train.y)) % N_FOLDS

    def trained(self, part: Part, valid: np.ndarray, held: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Trained:
        """A part with its scores on the judged rows.

        Parameters
        ----------
        valid : (n_valid, n_outputs) its scores of the validation rows
        held : from a fold's training rows and all others, by number, to the fold's scores by a copy that was fitted
            to the others; not called where validation rows are judged alone
        """
        if not self.is_crossed:
            return Trained(part, valid)
        unseen = np.empty((len(self.fold), valid.shape[1]))
        for k in range(N_FOLDS):
            out = self.fold == k
            unseen[out] = held(np.flatnonzero(out), np.flatnonzero(~out))
        return Trained(part, np.vstack([unseen, valid]))

    def batch(self, program: Program, trained: Sequence[Trained]) -> Batch:
        """The judged rows ready for this program, scorer k scored as ``trained[k]`` says."""
        return Batch(program, self.X, [t.scores for t in trained])

    def summary(self, outcome: Outcome) -> dict[str, float]:
        """Weighted quality, mean cost, forward rate, and the standard error of the loss against f0's.

        And shares of the rows answered locally, 0 where there are none: ``local_error``, ``local_worse`` (wrong where
        f0 is right), ``local_better`` (right where f0 is wrong).
        """
        right, f0_right = outcome.label == self.y, self.hpc_label == self.y
        lost = ACCURACY.loss(self.y, outcome.label) - ACCURACY.loss(self.y, self.hpc_label)
        away = self.weight * (lost - np.average(lost, weights=self.weight))
        local = self.weight * ~outcome.forwarded
        shares = {"local_error": ~right, "local_worse": f0_right & ~right, "local_better": right & ~f0_right}
        return {
            **figures_of(outcome, self.y, self.weight),
            "loss_se": float(np.sqrt(np.square(away).sum()) / self.weight.sum()),
            **{name: float(np.average(which, weights=local)) if local.any() else 0.0 for name, which in shares.items()},
        }

    def run(self, program: Program, trained: Sequence[Trained], nodes: Sequence[Node] | None = None) -> Outcome:
        """What becomes of the judged rows."""
        return self.batch(program, trained).run(self.hpc_label, nodes)

    def run_each(self, programs: Sequence[Program]) -> Outcome:
        """What becomes of the judged rows where copies walk differently.

        Parameters
        ----------
        programs : one per fold, of a copy that has not seen that fold; last the program itself, for validation rows.
            Where those are judged alone, the last is enough
        """
        if not self.is_crossed:
            return Batch(programs[-1], self.X).run(self.hpc_label)
        n = len(self.fold)
        parts = [*(np.flatnonzero(self.fold == k) for k in range(N_FOLDS)), np.arange(n, len(self.y))]
        outcomes = [
            Batch(program, self.X[rows]).run(self.hpc_label[rows])
            for program, rows in zip(programs, parts, strict=True)
        ]
        return Outcome.joined(outcomes, np.argsort(np.concatenate(parts)))
