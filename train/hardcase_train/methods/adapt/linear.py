"""ADAPT-LIN: a linear gate and a linear low-cost model that buy the same few sensors.

Nan and Saligrama (2017), Algorithm 1.

Alternates the step over q with (OPT2), a convex problem in the weights of g and f1. Its L2,1 penalty takes all weights
on a sensor's features (the gate's and every class's) as one group, priced at gamma times the sensor's cost, so a
sensor that does not pay has weights of exactly zero. docs/math.md (1) to (9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.special import entr

from ...estimator import Limits, MethodClassifier
from ...linear.part import GATE_RATES, LinearRows, judged, linear_rows
from ...linear.proximal import MAX_STEPS, Groups, SmoothLoss, minimise
from ...linear.standardise import make_standard
from ...method import Method, Params
from ...policy.front import Point
from ...policy.losses import AdaptLoss, class_outputs
from ...policy.selection import Judge
from ...stages.subset_search import SubsetSearch
from .gate_thresholds import gated_points, path_points
from .linear_paths import gamma_path, models_from_nothing, models_from_single, path_grid, sensor_groups
from .q_step import q_step

__all__ = ["AdaptLin"]

SETTLED = 1e-5  # an alternation that lowers the objective by less, relatively, is the last


@dataclass(eq=False, repr=False)
class AdaptLin(MethodClassifier):
    """Gate and low-cost model as one linear model: class scores first, the gate's score last.

    Parameters
    ----------
    p_full : float in [0, 1]
        Bound of the (weighted) fraction of training rows that q sends to f0.
    gamma : float >= 0
        Mean loss per unit of cost and of the norm of a sensor's weights: the larger, the fewer sensors are bought.
    n_rounds : int
        Alternations at most.
    n_steps : int
        Steps of the proximal method in one alternation, at most; the last solution of (OPT2) is exact.
    l2 : float >= 0
        A ridge that the paper does not have: it keeps weights finite where a line parts the classes without error.
    is_refitted : bool
        Alternate once more with the bought sensors free and all others out of reach, so that the penalty that chose
        the sensors does not shorten their weights.
    others : those of ``PolicyClassifier``, by name

    Attributes
    ----------
    those of ``PolicyClassifier`` after ``fit``; after ``learn``
    trained_ : Trained, the linear part and its scores on the judged rows
    sensors_ : list of int, those that gate or low-cost model use
    coef_ : (n_features + 1, n_outputs) weights above biases as (OPT2) leaves them, before they are refitted
    hidden_ : (n,) what stands for q, per training row: here q itself
    objective_ : list of float, after each half of each alternation; never rises
    """

    p_full: float = 0.1
    gamma: float = 0.0
    n_rounds: int = 50
    n_steps: int = 20
    l2: float = 1e-4
    is_refitted: bool = True
    method: ClassVar[Method] = Method(name="adapt-lin", work=8, colour="#e67e22", auto="raced", runners=slice(1, 2))
    _limits: ClassVar[Limits] = {
        "p_full": (0, 1),
        "gamma": (0, np.inf),
        "n_rounds": (0, np.inf),
        "n_steps": (1, np.inf),
        "l2": (0, np.inf),
    }

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """A setting per path: from nothing and from single sensors, for every bound of the share that is forwarded."""
        return path_grid(search.problem)

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points of all models on one path."""
        judge, gammas = search.judge, gamma_path(search.problem)
        models = models_from_single if "start" in params else models_from_nothing
        return path_points(judge, cls.method.name, list(models(cls, judge, gammas, **params)), GATE_RATES)

    def points(self, judge: Judge) -> list[Point]:
        """Thresholds of gate and margin, swept."""
        said = {"gamma": self.gamma, "p_full": self.p_full}
        return gated_points(judge, self.method.name, self.learn(judge), said, GATE_RATES)

    def learn(self, judge: Judge, start: Self | None = None, only: Sequence[int] | None = None) -> Self:
        """Learn from the training rows and f0's out-of-fold probabilities on them.

        Parameters
        ----------
        start : a fitted model to go on from; the alternation finds a corner near it, and there may be better ones
        only : the sensors within reach, all unless given
        """
        problem = judge.problem
        standard = make_standard(problem.train.X, problem.train.weight)
        rows = linear_rows(problem, standard.transform(problem.train.X))
        n_outputs = class_outputs(problem.n_classes) + 1
        groups = sensor_groups(problem, self.gamma, n_outputs)
        groups = groups if only is None else groups.within(only)
        coef = np.zeros((len(problem.features) + 1, n_outputs)) if start is None else start.coef_
        hidden = np.full(len(problem.train.y), self._first()) if start is None else start.hidden_
        coef, hidden, self.objective_ = self._alternate(rows, groups, coef, hidden)
        self.coef_: np.ndarray = coef
        self.hidden_: np.ndarray = hidden
        self.sensors_ = np.flatnonzero(groups.norms(coef[:-1])).tolist()
        if self.is_refitted:
            groups = groups.within(self.sensors_).freed()
            coef, hidden, _ = self._alternate(rows, groups, coef, hidden)
        # a twin is given q and the sensors, and starts from nothing
        self.trained_ = judged(
            judge,
            standard,
            rows.Z,
            coef,
            lambda mine: self._weights(rows.take(mine), groups, np.zeros_like(coef), hidden[mine]),
        )
        return self

    def _alternate(
        self, rows: LinearRows, groups: Groups, coef: np.ndarray, hidden: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, list[float]]:
        """(OPT2) and (OPT1) in turn, until they lower the objective no more; then (OPT2) to its end."""
        said: list[float] = []
        for _ in range(self.n_rounds):
            coef = self._weights(rows, groups, coef, hidden, self.n_steps)
            said.append(self._objective(rows, groups, coef, hidden))
            hidden = self._hidden(rows, coef, hidden)
            said.append(self._objective(rows, groups, coef, hidden))
            if len(said) > 2 and said[-3] - said[-1] <= SETTLED * abs(said[-1]):
                break
        coef = self._weights(rows, groups, coef, hidden)
        return coef, hidden, [*said, self._objective(rows, groups, coef, hidden)]

    def _weights(
        self, rows: LinearRows, groups: Groups, coef: np.ndarray, hidden: np.ndarray, n_steps: int = MAX_STEPS
    ) -> np.ndarray:
        """(OPT2): g and f1 for given q, from ``coef`` on."""
        loss = self._loss(rows, hidden)
        return minimise(loss, rows.Z, rows.total, groups, coef, l2=self.l2, max_steps=n_steps)

    def _objective(self, rows: LinearRows, groups: Groups, coef: np.ndarray, hidden: np.ndarray) -> float:
        """(OPT) and the ridge: docs/math.md (1)."""
        weights = coef[:-1]
        terms = self._row_terms(rows, rows.scores(coef), hidden)
        return terms / rows.total + 0.5 * self.l2 * float(np.square(weights).sum()) + groups.penalty(weights)

    # ------------------------------------------------------------ what the distance between q and g decides

    def _first(self) -> float:
        """To begin with, hard rows are spread evenly."""
        return self.p_full

    def _loss(self, rows: LinearRows, q: np.ndarray) -> SmoothLoss:
        """What (OPT2) lowers, for given q."""
        return AdaptLoss(rows.classes, q)

    def _hidden(self, rows: LinearRows, coef: np.ndarray, q: np.ndarray) -> np.ndarray:
        """(OPT1): q for given g and f1; docs/math.md (3) and (4)."""
        scores = rows.scores(coef)
        g = scores[:, -1]
        answer = rows.classes.row_loss(scores[:, :-1]) + np.logaddexp(0.0, g)
        return q_step(answer, rows.forward + np.logaddexp(0.0, -g), self.p_full, rows.classes.weight)[0]

    def _row_terms(self, rows: LinearRows, scores: np.ndarray, q: np.ndarray) -> float:
        """(OPT1)'s sum over rows, weights included."""
        own = q * rows.forward - entr(q) - entr(1 - q)  # what is q's alone
        return AdaptLoss(rows.classes, q).value_and_slope(scores)[0] + float(rows.classes.weight @ own)
