# SPDX-License-Identifier: Apache-2.0
"""What a kind is in training: classes, or numbers (values and ranks). Learners ask; no other module tells them apart.

A learner asks for the loss of answers, for the answers that scores give, for what a cut sorts rows by, and for the
expected loss of a row's answer. How good answers are together, with its standard error over rows or groups, is the
problem's measure (``batch.quality``, ``selection.Judge.paired``); each kind has its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardcase_edge.more.batch.choices import classes_of, margins_of
from hardcase_edge.program.definition import MARGIN, THRESHOLD, Branch, Slice

from ..data.problem import Problem, answers_of
from ..method import Method
from .confidences import MAX_MET, cloud_loss, expected_loss, expected_square, met_margins
from .losses import FLOOR, AnswerLoss, ClassLoss, SquaredLoss


@dataclass(frozen=True)
class Learned(ABC):
    """A problem's kind of answers, as learners need it.

    has_margins : an answer's own scores say how sure it is; otherwise a model beside them learns it
    """

    problem: Problem
    has_margins = True

    @property
    def counts_groups(self) -> bool:
        """Whether a whole group is one figure of the measure, as a row is elsewhere: of ranks."""
        return self.problem.kind.needs_groups

    def takes(self, method: Method) -> bool:
        """Whether the method learns such answers."""
        return self.has_margins or method.takes_values

    @abstractmethod
    def loss(self, y: np.ndarray, weight: np.ndarray) -> AnswerLoss:
        """The loss of answers to rows ``y`` (n,)."""

    @abstractmethod
    def hpc_loss(self) -> np.ndarray:
        """f0's loss on training rows, (n_train,), of its out-of-fold answers."""

    @abstractmethod
    def targets(self, y: np.ndarray) -> np.ndarray:
        """What the scores of rows ``y`` (n,) are to be by least squares, (n, n_outputs)."""

    @abstractmethod
    def results(self, scores: np.ndarray) -> np.ndarray:
        """The answers that scores (n, n_outputs) give, (n,)."""

    @abstractmethod
    def row_losses(self, answers: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The loss of answers (n,) to rows ``y`` (n,), as it is counted: of errors, or squared."""

    @abstractmethod
    def is_right(self, answers: np.ndarray, y: np.ndarray, tolerance: float) -> np.ndarray:
        """Whether answers (n,) are right; ``tolerance``: f0's root mean square error."""

    @abstractmethod
    def margins(self, scores: np.ndarray) -> np.ndarray:
        """How sure the scores (n, n_outputs) of answers are by themselves, (n,); the same for all without margins."""

    @abstractmethod
    def sureness(self, margin: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """What a cut sorts rows by, (n,): high where the answer is sure.

        Parameters
        ----------
        margin : (n,) of the answer
        scores : (n, n_outputs or more) of the model
        """

    @abstractmethod
    def gate(self, scores: np.ndarray) -> np.ndarray | None:
        """The gate's scores (n,), if scores (n, n_outputs or more) have them; None if not."""

    @abstractmethod
    def cut_node(self, scorer: int, cut: float, answer: int, onward: int) -> Branch:
        """The node that sends rows that are sure by at least ``cut`` to node ``answer``, others to ``onward``."""

    @abstractmethod
    def expected(
        self,
        sure: np.ndarray,
        gate: np.ndarray | None,
        met: Sequence[np.ndarray],
        answers: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
    ) -> np.ndarray:
        """Expected loss of each row's answer, (n,), as ``error_model`` has it.

        Parameters
        ----------
        sure, gate : (n,) what a cut sorts by, and the gate's score
        met : what the cuts of earlier stages sorted by, (n,) each
        answers, y, weight : (n,)
        """

    @abstractmethod
    def cloud(self, stakes: np.ndarray, met: Sequence[np.ndarray], y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Expected loss of f0's answer, (n,); ``stakes`` as of ``data.problem.Rows``, others as of ``expected``."""


class Classes(Learned):
    """Classes: their scores are logits, an error is a wrong class, and cuts go by the margin."""

    def loss(self, y: np.ndarray, weight: np.ndarray) -> ClassLoss:
        return ClassLoss(y, self.problem.n_classes, weight, self.problem.targets)

    def hpc_loss(self) -> np.ndarray:
        train, targets = self.problem.train, self.problem.targets
        p = train.stakes if targets is None else train.stakes / train.stakes.sum(axis=1, keepdims=True)
        return self.loss(train.y, train.weight).loss_of(np.log(np.maximum(p, FLOOR)))

    def targets(self, y: np.ndarray) -> np.ndarray:
        """A class's worth, or of two classes the difference."""
        worth = (np.eye(self.problem.n_classes) if self.problem.targets is None else self.problem.targets)[y]
        return np.asarray(worth if self.problem.n_outputs > 1 else worth[:, 1:] - worth[:, :1])

    def results(self, scores: np.ndarray) -> np.ndarray:
        return classes_of(scores)

    def row_losses(self, answers: np.ndarray, y: np.ndarray) -> np.ndarray:
        errors = self.problem.errors
        return np.asarray((answers != y).astype(np.float64) if errors is None else errors[y, answers])

    def is_right(self, answers: np.ndarray, y: np.ndarray, tolerance: float) -> np.ndarray:
        return np.asarray(answers == y)

    def margins(self, scores: np.ndarray) -> np.ndarray:
        return margins_of(scores)

    def sureness(self, margin: np.ndarray, scores: np.ndarray) -> np.ndarray:
        return margin

    def gate(self, scores: np.ndarray) -> np.ndarray | None:
        width = self.problem.n_outputs
        return np.asarray(scores[:, width]) if scores.shape[1] > width else None

    def cut_node(self, scorer: int, cut: float, answer: int, onward: int) -> Branch:
        return Branch(Slice(scorer, 0, self.problem.n_outputs), MARGIN, (onward, answer), cut)

    def expected(
        self,
        sure: np.ndarray,
        gate: np.ndarray | None,
        met: Sequence[np.ndarray],
        answers: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
    ) -> np.ndarray:
        """By the margin, the gate and the margins of earlier stages."""
        features = [part for part in (gate, met_margins(met, int((answers != y).sum()))) if part is not None]
        more = np.column_stack(features) if features else None
        return expected_loss(sure, more, answers, y, weight, self.problem.errors)

    def cloud(self, stakes: np.ndarray, met: Sequence[np.ndarray], y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        more = met_margins(met, int((answers_of(stakes) != y).sum()))
        return cloud_loss(stakes, y, weight, self.problem.errors, more)


class Numbers(Learned):
    """Values and ranks: one score with squared error, and a score of uncertainty beside it, by which cuts go."""

    has_margins = False

    def loss(self, y: np.ndarray, weight: np.ndarray) -> SquaredLoss:
        return SquaredLoss(y, weight)

    def hpc_loss(self) -> np.ndarray:
        train = self.problem.train
        return self.loss(train.y, train.weight).row_loss(train.hpc)

    def targets(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y[:, None], dtype=np.float64)

    def results(self, scores: np.ndarray) -> np.ndarray:
        return scores[:, 0]

    def row_losses(self, answers: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(answers - y))

    def is_right(self, answers: np.ndarray, y: np.ndarray, tolerance: float) -> np.ndarray:
        """Whether they are within f0's root mean square error."""
        return np.asarray(np.abs(answers - y) <= tolerance)

    def margins(self, scores: np.ndarray) -> np.ndarray:
        return np.zeros(len(scores))

    def sureness(self, margin: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Minus the score of uncertainty."""
        return -scores[:, self.problem.n_outputs]

    def gate(self, scores: np.ndarray) -> np.ndarray | None:
        """None: the second score is the uncertainty."""

    def cut_node(self, scorer: int, cut: float, answer: int, onward: int) -> Branch:
        width = self.problem.n_outputs
        return Branch(Slice(scorer, width, width + 1), THRESHOLD, (answer, onward), -cut)

    def expected(
        self,
        sure: np.ndarray,
        gate: np.ndarray | None,
        met: Sequence[np.ndarray],
        answers: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
    ) -> np.ndarray:
        """Expected squared errors, by the uncertainty of the stage and of earlier ones."""
        return expected_square([-sure, *_unsure(met)], answers, y, weight)

    def cloud(self, stakes: np.ndarray, met: Sequence[np.ndarray], y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return expected_square(_unsure(met), answers_of(stakes), y, weight)


def _unsure(met: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [-sure for sure in met[-MAX_MET:]]


def learned(problem: Problem) -> Learned:
    """The kind of a problem."""
    return Classes(problem) if problem.kind.has_classes else Numbers(problem)


def loss_of(problem: Problem, y: np.ndarray, weight: np.ndarray) -> AnswerLoss:
    """The loss of answers to rows of classes or values ``y`` (n,)."""
    return learned(problem).loss(y, weight)


def answer_loss(problem: Problem, rows: np.ndarray | None = None) -> AnswerLoss:
    """The loss of answers to a problem's training rows; ``rows``: to some of them, by number."""
    loss = loss_of(problem, problem.train.y, problem.train.weight)
    return loss if rows is None else loss.take(rows)


def hpc_loss(problem: Problem) -> np.ndarray:
    """f0's loss on training rows, (n_train,), of its out-of-fold probabilities or values."""
    return learned(problem).hpc_loss()
