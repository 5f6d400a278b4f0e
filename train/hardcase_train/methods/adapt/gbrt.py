"""ADAPT-GBRT: a gate and a low-cost model that approximate f0 where that is cheap.

Nan and Saligrama (2017), Algorithm 2.

Alternates the step over q (closed form under the forward fraction's bound) with boosting of g and f1 under a
penalty for sensors not bought yet. Multi-class: the logistic loss of f1 becomes the multinomial one, all else stays.
Here one tree serves all classes and the gate at once (vector leaves), so a device walks each tree once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from ...data.problem import Problem
from ...estimator import Limits, PolicyClassifier
from ...policy.front import Point
from ...policy.losses import FLOOR, AdaptLoss, ClassLoss
from ...policy.selection import Judge
from ...trees.binning import Bins, make_bins
from ...trees.boosting import Ensemble, TreeSettings, ensemble_scores, extend
from ...trees.grower import Grower
from ...trees.size import size_of
from .gate_thresholds import gated_points
from .q_step import q_step

__all__ = ["AdaptGBRT", "Twin"]


@dataclass(eq=False, repr=False)
class AdaptGBRT(PolicyClassifier):
    """Gate and low-cost model as one ensemble: class scores first, the gate's score last.

    The q-step needs the loss of f1 as it will be on rows it has not seen: boosted trees soon fit their own rows
    without error, and then nothing looks hard. So twins are boosted beside the model, each without one fold of the
    rows and on the sensors that the model has bought, and a row's A comes from the twin that has not seen it (as
    f0's probabilities are out-of-fold too). The twins' scores are also what the policy is judged on.

    Parameters
    ----------
    p_full : float in [0, 1]
        Bound of the fraction of training rows that q sends to f0.
    gamma : float >= 0
        Loss per unit of cost: what a sensor must lower the mean loss by, per unit, to be bought (equation (1)).
    n_rounds, trees_per_round : int
        Alternations, and T of Algorithm 2. One more round of f1 alone comes first: the initialisation.
    settings : TreeSettings, the problem's size unless given
    others : those of ``PolicyClassifier``, by name

    Attributes
    ----------
    those of ``PolicyClassifier`` after ``fit``; after ``learn``
    trained_ : Trained, the ensemble and its scores on the judged rows
    sensors_ : list of int, those that gate or low-cost model use
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
        """Thresholds of gate and margin, swept."""
        said = {"gamma": self.gamma, "p_full": self.p_full}
        return gated_points(judge, "adapt-gbrt", self.learn(judge), said)

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
        within : the sensors within reach, then free; None: all, at their price
        forward : (n_train,) loss of forwarding each row; None: f0's log loss
        """
        problem = judge.problem
        rows, settings = problem.train, self.settings or size_of(judge.problem).model
        bins = bins or make_bins(rows.X, problem.dtypes, settings.max_bins)
        codes = bins.transform(rows.X)
        n = len(rows.y)
        if forward is None:
            forward = -np.log(np.maximum(rows.hpc[np.arange(n), rows.y], FLOOR))
        costs = problem.sensor_costs()
        model = Twin(problem, bins, codes, np.arange(n), self.gamma * costs)
        fold = judge.fold if judge.is_crossed else judge.fold % 2  # twins then serve the q-step alone
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


def _losses(classes: ClassLoss, scores: np.ndarray, forward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A_i and B_i of (OPT1)."""
    g = scores[:, -1]
    answer = classes.row_loss(scores[:, :-1]) + np.logaddexp(0.0, g)
    return answer, forward + np.logaddexp(0.0, -g)


class Twin:
    """One ensemble that boosts on some of the training rows."""

    def __init__(self, problem: Problem, bins: Bins, codes: np.ndarray, mine: np.ndarray, prices: np.ndarray) -> None:
        y, weight = problem.train.y, problem.train.weight
        self.mine = mine
        self.owner = problem.sensor_of
        self.grower = Grower(codes[:, self.mine], bins.sizes, self.owner)
        self.classes = ClassLoss(y[self.mine], problem.n_classes, weight[self.mine])
        self.penalty = prices * weight[self.mine].sum()
        base = np.append(self.classes.base(), 0.0)
        self.ensemble = Ensemble(bins, np.arange(len(problem.features)), base)
        self.scores = np.tile(base, (len(self.mine), 1))

    def boost(self, q: np.ndarray | None, settings: TreeSettings, n_trees: int) -> None:
        """T trees for f1 and g under q; for f1 alone without one."""
        loss = self.classes if q is None else AdaptLoss(self.classes, q[self.mine])
        scores = self.scores if q is not None else self.scores[:, :-1]  # a view: f1 starts as if all rows were easy
        extend(self.ensemble, loss, self.grower, scores, self.penalty, settings, n_trees)

    def allow(self, sensors: list[int]) -> None:
        """These sensors are free, all others out of reach."""
        self.penalty[:] = np.inf
        self.penalty[sensors] = 0.0

    def sensors(self) -> list[int]:
        """The sensors that its trees read."""
        used = {int(f) for tree in self.ensemble.trees for f in tree.features}
        return sorted({int(self.owner[f]) for f in used})

    def scores_of(self, codes: np.ndarray) -> np.ndarray:
        """Scores of rows given as bins, (n, n_outputs)."""
        return ensemble_scores(self.ensemble, np.ascontiguousarray(codes))
