# SPDX-License-Identifier: Apache-2.0
"""Judged rows, for model selection: validation rows and out-of-fold predictions on training rows.

Rare errors need many validation rows. Therefore every learner also fits copies of itself, each without one fold of the
training rows, and the policy's outcome on that fold is added to the validation rows. If there are enough validation
rows, only they are judged. Test rows are never among the judged rows.

Where rows come in groups, no fold divides one, and standard errors take the group as the unit (cluster-robust).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.more.batch.per_class import Gap, gaps_between
from hardcase_edge.more.batch.quality import figures_of
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.program.definition import Node, Program

from ..data.problem import N_FOLDS, Problem, Rows, answers_of
from ..data.split import blocks, group_folds, strata
from .batch import Batch
from .compile import Part
from .confidences import confidence_at, confidence_table
from .kinds import learned

ENOUGH_ROWS = 3000  # of validation: enough to see errors of one row in a thousand, so no copies are trained
ENOUGH_GROUPS = 30  # and so many groups, if rows come in groups: fewer say little about other groups
ENOUGH_RANKED = 1000  # and so many groups of ranks, each of which is one figure, as a row of classes is
FEW_GROUPS = 10  # fewer judged groups than these are worth a warning


@dataclass(frozen=True)
class Trained:
    """A part and its scores on the judged rows, (n, n_outputs), each from a copy that has not seen the row."""

    part: Part
    scores: np.ndarray


class Judge:
    """The judged rows: out-of-fold training rows, then validation rows.

    Only validation rows are judged if there are at least ``ENOUGH_ROWS`` of them (of ``ENOUGH_GROUPS`` groups, or
    ``ENOUGH_RANKED`` of ranks), or if ``is_alone``.

    Attributes
    ----------
    is_rough : only figures are needed, so points may lack programs
    is_crossed : training rows are judged too
    fold : (n_train,) fold of each training row
    group : (n,) number of each judged row's group, None if each row stands for itself
    sizes : (n,) item size of each judged row, None if all are 1
    sequence : (n,) number of the stream of each judged row, None if rows have no order; a part of the rows begins
        streams of its own
    """

    def __init__(self, problem: Problem, is_rough: bool = False, is_alone: bool = False) -> None:
        self.problem, self.is_rough = problem, is_rough
        self.is_crossed = not (is_alone or _is_enough(problem))
        parts = (problem.train, problem.valid) if self.is_crossed else (problem.valid,)
        self.X = np.vstack([p.X for p in parts])
        self.y = np.concatenate([p.y for p in parts])
        self.stakes = np.vstack([p.stakes for p in parts])
        self.hpc_label = answers_of(self.stakes)
        self.weight = np.concatenate([p.weight for p in parts])
        sizes = [p.sizes for p in parts if p.sizes is not None]
        self.sizes = np.concatenate(sizes) if sizes else None
        train = problem.train
        self.group: np.ndarray | None = None
        self.sequence = _sequences(parts)
        if train.group is None and train.sequence is not None:
            self.fold = group_folds(blocks(len(train.y)), strata(train.y, problem.n_classes), problem.seed)
        elif train.group is None:
            self.fold = np.random.default_rng(problem.seed).permutation(len(train.y)) % N_FOLDS
        else:
            self.group = np.concatenate([p.group for p in parts if p.group is not None])
            self.fold = group_folds(train.group, strata(train.y, problem.n_classes), problem.seed)

    def trained(
        self, part: Part, valid: np.ndarray, score_fold: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> Trained:
        """A part with its scores on the judged rows.

        Parameters
        ----------
        valid : (n_valid, n_outputs) its scores on the validation rows
        score_fold : function of the row numbers of a fold and of all other training rows; returns the fold's scores
            from a copy fitted to the others. Not called if only validation rows are judged
        """
        if not self.is_crossed:
            return Trained(part, valid)
        out_of_fold = np.empty((len(self.fold), valid.shape[1]))
        for k in range(N_FOLDS):
            in_fold = self.fold == k
            out_of_fold[in_fold] = score_fold(np.flatnonzero(in_fold), np.flatnonzero(~in_fold))
        return Trained(part, np.vstack([out_of_fold, valid]))

    def as_sure(self, trained: Trained, copies: Sequence[np.ndarray]) -> Trained:
        """``trained`` with its out-of-fold scores scaled: on validation rows copies are as sure as the whole, in mean.

        A copy sees fewer rows and may be surer, and then a cut lets fewer judged rows through than rows of a device.

        Parameters
        ----------
        copies : (n_valid, n_outputs) each, scores of the folds' copies on the validation rows; none: as it is
        """
        kind, n = learned(self.problem), len(self.fold)
        if not copies or not kind.has_margins:
            return trained
        weight = self.problem.valid.weight
        of_copies = np.average([np.average(kind.margins(scores), weights=weight) for scores in copies])
        of_whole = np.average(kind.margins(trained.scores[n:]), weights=weight)
        scale = of_whole / of_copies if min(of_whole, of_copies) > 0 else 1.0
        return Trained(trained.part, np.vstack([scale * trained.scores[:n], trained.scores[n:]]))

    def right(self, answers: np.ndarray, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Whether answers (n,) to these judged rows are right: the class, or within f0's root mean square error."""
        return learned(self.problem).is_right(answers, self.y[rows], self.tolerance)

    @cached_property
    def tolerance(self) -> float:
        """f0's root mean square error on the judged rows; of classes, of their numbers, and then it says nothing."""
        return float(np.sqrt(np.average(np.square(self.hpc_label - self.y), weights=self.weight)))

    @cached_property
    def most_forwarded(self) -> float:
        """The largest share of judged rows that [policy] max_forward lets be forwarded; 1 without that limit.

        The share and one standard error are then within the limit: the smaller root of a quadratic equation.
        """
        most, n = self.problem.limits.max_forward, len(self.y)
        if most is None:
            return 1.0
        half = most + 0.5 / n
        return float((half - np.sqrt(max(0.0, half**2 - (1 + 1 / n) * most**2))) / (1 + 1 / n))

    def batch(self, program: Program, trained: Sequence[Trained]) -> Batch:
        """The judged rows prepared for this program, with the scores of ``trained[k]`` for scorer k."""
        return Batch(program, self.X, [t.scores for t in trained], self.sizes)

    def summary(self, outcome: Outcome) -> Judged:
        """Weighted quality, mean cost, forward rate, standard errors of the loss relative to f0's and of the cost.

        Also shares of the rows answered locally, 0 if there are none: ``local_error``, ``local_worse`` (wrong where
        f0 is right), ``local_better`` (right where f0 is wrong). ``gaps``: of each class that is found far less often
        than by f0, the values of a ``per_class.Gap``.
        """
        right, f0_right = self.right(outcome.label), self.right(self.hpc_label)
        losses, confidence = self.problem.quality.row_losses, self.confidences(outcome)
        answers = (self.problem.quality.answers(outcome.label, confidence), self.hpc_answers)
        own, f0 = (losses(self.y, answer, self.weight, self.group) for answer in answers)
        excess = own - f0
        local = self.weight * ~outcome.forwarded
        wrong = {"error": ~right, "worse": f0_right & ~right, "better": right & ~f0_right}
        of_local = {k: float(np.average(is_in, weights=local)) if local.any() else 0.0 for k, is_in in wrong.items()}
        figures = figures_of(outcome, self.y, self.weight, self.problem.quality, self.group, confidence)
        return Judged(
            figures.quality,
            figures.cost,
            figures.forward_rate,
            loss_se=self.paired(excess)[1],
            local_error=of_local["error"],
            local_worse=of_local["worse"],
            local_better=of_local["better"],
            cost_se=self.paired(outcome.cost, unknown=float(outcome.cost.max(initial=0.0)))[1],
            gaps=self._gaps(outcome),
        )

    def _gaps(self, outcome: Outcome) -> tuple[Gap, ...]:
        n_classes = self.problem.n_classes
        if not n_classes:
            return ()
        return tuple(gaps_between(self.y, outcome.label, self.hpc_label, n_classes, self.group))

    @cached_property
    def hpc_answers(self) -> np.ndarray:
        """What the quality measure reads of f0's answers."""
        quality = self.problem.quality
        return quality.answers(self.hpc_label, self.hpc_confidence if quality.reads_confidences else None)

    def confidences(self, outcome: Outcome) -> np.ndarray | None:
        """The confidences that the answers will state, (n,) from 0 to 1, if the quality measure reads it; else None.

        It is f0's where a row is forwarded; elsewhere it comes from the table that the rows with an end in common give.
        """
        if not self.problem.quality.reads_confidences:
            return None
        stated, right = self.hpc_confidence.copy(), self.right(outcome.label)
        for node in np.unique(outcome.node[~outcome.forwarded]):
            rows = (outcome.node == node) & ~outcome.forwarded
            table = confidence_table(outcome.margin[rows], right[rows], self.weight[rows])
            stated[rows] = confidence_at(table, outcome.margin[rows])
        return stated

    @cached_property
    def hpc_confidence(self) -> np.ndarray:
        """f0's confidence in its answers, (n,) from 0 to 1; of classes."""
        parts = (self.problem.train, self.problem.valid) if self.is_crossed else (self.problem.valid,)
        return np.concatenate([p.hpc_confidence for p in parts])

    def paired(
        self, excess: np.ndarray, rows: np.ndarray | slice = slice(None), unknown: float = 1.0
    ) -> tuple[float, float]:
        """Weighted mean of a difference on these judged rows, and its standard error; docs/math.md (77).

        ``unknown``: the standard error where all rows are of one group, which says nothing of others; as much as
        quality ranges over.
        """
        weight = self.weight[rows]
        mean = float(np.average(excess, weights=weight))
        deviations = weight * (excess - mean)
        if self.group is None:
            return mean, float(np.sqrt(np.square(deviations).sum()) / weight.sum())
        sums = np.bincount(np.unique(self.group[rows], return_inverse=True)[1], weights=deviations)
        if len(sums) < 2:
            return mean, unknown
        between = np.square(sums).sum() * len(sums) / (len(sums) - 1)
        return mean, float(np.sqrt(between) / weight.sum())

    def warning(self) -> str | None:
        """One line if the judged groups are so few that figures say little about others; None if not."""
        n_groups = ENOUGH_GROUPS if self.group is None else len(np.unique(self.group))
        if n_groups >= FEW_GROUPS:
            return None
        return f"choices are made on {n_groups} groups, which say little about others; add groups, {FEW_GROUPS} or more"

    def run(self, program: Program, trained: Sequence[Trained], nodes: Sequence[Node] | None = None) -> Outcome:
        """The outcome of the judged rows."""
        return self.batch(program, trained).run(self.hpc_label, nodes)

    def run_each(self, programs: Sequence[Program]) -> Outcome:
        """The outcome of the judged rows, if copies differ in their nodes and not only in their scores.

        Parameters
        ----------
        programs : for each fold the program of a copy that has not seen it; last the program itself, for validation
            rows. If only those are judged, only the last program is used
        """
        if not self.is_crossed:
            return Batch(programs[-1], self.X, sizes=self.sizes).run(self.hpc_label)
        n = len(self.fold)
        parts = [*(np.flatnonzero(self.fold == k) for k in range(N_FOLDS)), np.arange(n, len(self.y))]
        outcomes = [
            Batch(program, self.X[rows], sizes=self._sizes_of(rows)).run(self.hpc_label[rows])
            for program, rows in zip(programs, parts, strict=True)
        ]
        return Outcome.joined(outcomes, np.argsort(np.concatenate(parts)))

    def _sizes_of(self, rows: np.ndarray) -> np.ndarray | None:
        return None if self.sizes is None else self.sizes[rows]


def _sequences(parts: Sequence[Rows]) -> np.ndarray | None:
    """The streams of several parts, those of the later ones numbered onwards."""
    numbers, first = [], 0
    for part in parts:
        if part.sequence is None:
            return None
        numbers.append(part.sequence + first)
        first = int(numbers[-1].max(initial=first - 1)) + 1
    return np.concatenate(numbers)


def _is_enough(problem: Problem) -> bool:
    """Whether validation rows are enough to be judged alone."""
    valid = problem.valid
    if len(valid.y) < ENOUGH_ROWS:
        return False
    least = ENOUGH_RANKED if learned(problem).counts_groups else ENOUGH_GROUPS
    return valid.group is None or len(np.unique(valid.group)) >= least
