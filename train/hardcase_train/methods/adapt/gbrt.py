# SPDX-License-Identifier: Apache-2.0
"""ADAPT-GBRT: a gate and a low-cost model, one boosted ensemble, that approximate f0 at low sensor cost.

Nan and Saligrama (2017), Algorithm 2.

Alternates the step over q (closed form under the bound of the forward fraction) with boosting of g and f1 under a
penalty for sensors that are not used yet. For several classes, the logistic loss of f1 becomes the multinomial one.
Trees have vector leaves, with the scores of all classes and of the gate, so a device walks each tree once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from ...data.problem import Problem
from ...estimator import PolicyClassifier
from ...policy.front import Point
from ...policy.kinds import answer_loss, hpc_loss
from ...policy.losses import AdaptLoss, AnswerLoss
from ...policy.selection import Judge
from ...policy_estimator import Limits
from ...trees.binning import Bins, make_bins
from ...trees.boosting import Ensemble, TreeSettings, ensemble_scores, extend
from ...trees.grower import Grower
from ...trees.size import size_of
from .gate_thresholds import gated_points
from .q_step import q_step


@dataclass(eq=False, repr=False)
class AdaptGBRT(PolicyClassifier):
    """Gate and low-cost model as one ensemble: class scores first, the gate's score last.

    The step over q needs the loss of f1 on unseen rows: boosted trees soon fit their own training rows without error,
    and then no row looks hard. Therefore twins are boosted along with the model, each without one fold of the rows and
    on the sensors that the model uses. A row's loss A comes from the twin that was not trained on it, as f0's
    probabilities are out-of-fold too. The policy is also judged on the twins' scores.

    Parameters
    ----------
    p_full : float in [0, 1]
        Upper bound of the fraction of training rows that q sends to f0.
    gamma : float >= 0
        Mean loss per unit of cost: a sensor is bought if it lowers the mean loss by more than that (equation (1)).
    n_rounds, trees_per_round : int
        Alternations, and T of Algorithm 2. A first round, of f1 alone, initialises the model.
    settings : TreeSettings; None: by the problem's size
    others : those of ``PolicyClassifier``, by keyword

    Attributes
    ----------
    those of ``PolicyClassifier`` after ``fit``; after ``learn``
    trained_ : Trained, the ensemble and its scores on the judged rows
    sensors_ : list of int, the sensors that the gate or the low-cost model uses

    Examples
    --------
    >>> model = AdaptGBRT(p_full=0.2, gamma=0.1, costs=[1.0, 4.0], forward_cost=10.0)
    >>> model.n_rounds, model.trees_per_round
    (3, 20)
    """

    p_full: float = 0.1
    gamma: float = 0.0
    n_rounds: int = 3
    trees_per_round: int = 20
    settings: TreeSettings | None = None
    _limits: ClassVar[Limits] = {
        "p_full": (0, 1),
        "gamma": (0, np.inf),
        "n_rounds": (0, np.inf),
        "trees_per_round": (1, np.inf),
    }

    def points(self, judge: Judge) -> list[Point]:
        """Points over thresholds of the gate and the margin."""
        params = {"gamma": self.gamma, "p_full": self.p_full}
        return gated_points(judge, "adapt-gbrt", self.learn(judge), params)

    def learn(
        self,
        judge: Judge,
        bins: Bins | None = None,
        within: Sequence[int] | None = None,
        forward: np.ndarray | None = None,
    ) -> Self:
        """Learn from the training rows and f0's out-of-fold probabilities on them.

        Parameters
        ----------
        within : the sensors that may be used, free of charge; None: all, at their price
        forward : (n_train,) loss of forwarding each row; None: f0's log loss
        """
        problem = judge.problem
        rows, settings = problem.train, self.settings or size_of(judge.problem).model
        bins = bins or make_bins(rows.X, problem.dtypes, settings.max_bins)
        codes = bins.transform(rows.X)
        n = len(rows.y)
        if forward is None:
            forward = hpc_loss(problem)
        costs = problem.sensor_costs()
        model = Twin(problem, bins, codes, np.arange(n), self.gamma * costs)
        fold = judge.fold if judge.is_crossed else judge.fold % 2  # if not crossed, twins serve the step over q only
        twins = [
            Twin(problem, bins, codes, np.flatnonzero(fold != k), self.gamma * costs) for k in range(fold.max() + 1)
        ]
        if within is not None:
            model.allow(list(within))
        unseen = np.empty((n, len(model.ensemble.base)))
        q = None
        for _ in range(1 + self.n_rounds):
            model.boost(q, settings, self.trees_per_round)
            bought = model.sensors() if within is None else list(within)
            for k, twin in enumerate(twins):
                twin.allow(bought)
                twin.boost(q, settings, self.trees_per_round)
                unseen[fold == k] = twin.scores_of(codes[:, fold == k])
            q, _ = q_step(*_losses(model.classes, unseen, forward), self.p_full, rows.weight)
        valid = model.scores_of(bins.transform(problem.valid.X))
        self.trained_ = judge.trained(model.ensemble, valid, lambda rows, _: unseen[rows])
        self.sensors_ = model.sensors()
        self.unseen_ = unseen
        self.answer_loss_ = model.classes.row_loss(unseen[:, :-1])
        return self


def _losses(classes: AnswerLoss, scores: np.ndarray, forward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A_i and B_i of (OPT1)."""
    g = scores[:, -1]
    answer = classes.row_loss(scores[:, :-1]) + np.logaddexp(0.0, g)
    return answer, forward + np.logaddexp(0.0, -g)


class Twin:
    """An ensemble that is boosted on a subset of the training rows."""

    def __init__(self, problem: Problem, bins: Bins, codes: np.ndarray, rows: np.ndarray, prices: np.ndarray) -> None:
        self.rows = rows
        self.owner = problem.offered_of
        self.grower = Grower(codes[:, self.rows], bins.sizes, self.owner)
        self.classes = answer_loss(problem, self.rows)
        self.penalty = prices * self.classes.weight.sum()
        base = np.append(self.classes.base(), 0.0)
        self.ensemble = Ensemble(bins, np.arange(len(problem.features)), base)
        self.scores = np.tile(base, (len(self.rows), 1))

    def boost(self, q: np.ndarray | None, settings: TreeSettings, n_trees: int) -> None:
        """Add trees for f1 and g under q; without q, for f1 alone."""
        loss = self.classes if q is None else AdaptLoss(self.classes, q[self.rows])
        scores = self.scores if q is not None else self.scores[:, :-1]  # a view: f1 starts as if all rows were easy
        extend(self.ensemble, loss, self.grower, scores, self.penalty, settings, n_trees)

    def allow(self, sensors: list[int]) -> None:
        """Make these sensors free and all others unavailable."""
        self.penalty[:] = np.inf
        self.penalty[sensors] = 0.0

    def sensors(self) -> list[int]:
        """The sensors that its trees read."""
        used = {int(f) for tree in self.ensemble.trees for f in tree.features}
        return sorted({int(self.owner[f]) for f in used})

    def scores_of(self, codes: np.ndarray) -> np.ndarray:
        """Scores of rows given as bins, (n, n_outputs)."""
        return ensemble_scores(self.ensemble, np.ascontiguousarray(codes))
