# SPDX-License-Identifier: Apache-2.0
"""ADAPT-LIN: a linear gate and a linear low-cost model that share a sparse set of sensors.

Nan and Saligrama (2017), Algorithm 1.

Alternates the step over q with (OPT2), a convex problem in the weights of g and f1. Its L2,1 penalty treats all
weights of a sensor's features (for the gate and every class) as one group, priced at gamma times the sensor's cost, so
a sensor that is not worth its price gets weights of exactly zero. docs/math.md (1) to (9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.special import entr

from ...data.problem import Problem
from ...estimator import MethodClassifier
from ...linear.part import GATE_RATES, LinearRows, judged, linear_rows, make_standard
from ...linear.proximal import MAX_STEPS, Groups, SmoothLoss, minimise
from ...method import Method, Params
from ...policy.front import Point
from ...policy.losses import AdaptLoss
from ...policy.selection import Judge
from ...policy_estimator import Limits
from ...stages.subset_search import SubsetSearch
from .gate_thresholds import gated_points, path_points
from .linear_paths import gamma_path, models_from_nothing, models_from_single, path_grid, sensor_groups
from .q_step import q_step

SETTLED = 1e-5  # stop when an alternation lowers the objective by a smaller relative amount


@dataclass(eq=False, repr=False)
class AdaptLin(MethodClassifier):
    """Gate and low-cost model as one linear model: scores that answer first, the gate's score last.

    Parameters
    ----------
    p_full : float in [0, 1]
        Upper bound of the weighted fraction of training rows that q sends to f0.
    gamma : float >= 0
        Mean loss per unit of cost and of the norm of a sensor's weights: the larger, the fewer sensors are bought.
    n_rounds : int
        Largest number of alternations.
    n_steps : int
        Largest number of proximal steps in one alternation; (OPT2) is solved exactly after the last one.
    l2 : float >= 0
        Ridge penalty, not in the paper; it keeps weights finite if the classes are linearly separable.
    is_refitted : bool
        Whether to alternate again with the chosen sensors free and all others unavailable, so that the penalty that
        selected the sensors does not shrink their weights.
    others : those of ``PolicyClassifier``, by keyword

    Attributes
    ----------
    those of ``PolicyClassifier`` after ``fit``; after ``learn``
    trained_ : Trained, the linear part and its scores on the judged rows
    sensors_ : list of int, the sensors that the gate or the low-cost model uses
    coef_ : (n_features + 1, n_outputs) solution of (OPT2) before refitting: weights, and biases in the last row
    hidden_ : (n,) q of each training row; in subclasses a function of q
    objective_ : list of float, the objective after each half of each alternation; it never rises

    Examples
    --------
    >>> y = np.arange(100) % 2
    >>> X = np.column_stack([y + np.linspace(0, 0.5, 100), np.linspace(0, 1, 100)])
    >>> model = AdaptLin(gamma=0.05, costs=[1.0, 5.0], effort="quick", random_state=0).fit(X, y)
    >>> model.sensors_
    [0]
    """

    p_full: float = 0.1
    gamma: float = 0.0
    n_rounds: int = 50
    n_steps: int = 20
    l2: float = 1e-4
    is_refitted: bool = True
    method: ClassVar[Method] = Method(
        name="adapt-lin", maturity="research",
        against="linear gates and models: on tables that trees suit it cuts a small part of what they cut", turn=1,
        colour="#e67e22", auto="raced", runners=slice(1, 2), takes_values=True,
    )  # fmt: skip
    _limits: ClassVar[Limits] = {
        "p_full": (0, 1),
        "gamma": (0, np.inf),
        "n_rounds": (0, np.inf),
        "n_steps": (1, np.inf),
        "l2": (0, np.inf),
    }

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return (1 + problem.effort.n_linear_starts) * len(problem.effort.linear_p_fulls)

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting per regularisation path: its start, empty or a single sensor, and its bound of forwarded rows."""
        return path_grid(search.problem)

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points of all models on one path."""
        judge, gammas = search.judge, gamma_path(search.problem)
        models = models_from_single if "start" in params else models_from_nothing
        return path_points(judge, cls.method.name, list(models(cls, judge, gammas, **params)), GATE_RATES)

    def points(self, judge: Judge) -> list[Point]:
        """Points over thresholds of the gate and the margin."""
        params = {"gamma": self.gamma, "p_full": self.p_full}
        return gated_points(judge, self.method.name, self.learn(judge), params, GATE_RATES)

    def learn(self, judge: Judge, start: Self | None = None, only: Sequence[int] | None = None) -> Self:
        """Learn from the training rows and f0's out-of-fold probabilities on them.

        Parameters
        ----------
        start : a fitted model as a warm start; the alternation ends in a local optimum near it
        only : the sensors that may be used; None: all
        """
        problem = judge.problem
        standard = make_standard(problem.train.X, problem.train.weight)
        rows = linear_rows(problem, standard.transform(problem.train.X))
        n_outputs = problem.n_outputs + 1
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
        # a twin gets q and the sensors of the model, and starts from zero weights
        self.trained_ = judged(
            judge,
            standard,
            rows.Z,
            coef,
            lambda subset: self._weights(rows.take(subset), groups, np.zeros_like(coef), hidden[subset]),
        )
        return self

    def _alternate(
        self, rows: LinearRows, groups: Groups, coef: np.ndarray, hidden: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, list[float]]:
        """(OPT2) and (OPT1) alternately, until the objective settles; then (OPT2) exactly."""
        objective: list[float] = []
        for _ in range(self.n_rounds):
            coef = self._weights(rows, groups, coef, hidden, self.n_steps)
            objective.append(self._objective(rows, groups, coef, hidden))
            hidden = self._hidden(rows, coef, hidden)
            objective.append(self._objective(rows, groups, coef, hidden))
            if len(objective) > 2 and objective[-3] - objective[-1] <= SETTLED * abs(objective[-1]):
                break
        coef = self._weights(rows, groups, coef, hidden)
        return coef, hidden, [*objective, self._objective(rows, groups, coef, hidden)]

    def _weights(
        self, rows: LinearRows, groups: Groups, coef: np.ndarray, hidden: np.ndarray, n_steps: int = MAX_STEPS
    ) -> np.ndarray:
        """(OPT2): g and f1 for given q, starting from ``coef``."""
        loss = self._loss(rows, hidden)
        return minimise(loss, rows.Z, rows.total, groups, coef, l2=self.l2, max_steps=n_steps)

    def _objective(self, rows: LinearRows, groups: Groups, coef: np.ndarray, hidden: np.ndarray) -> float:
        """(OPT) plus the ridge penalty: docs/math.md (1)."""
        weights = coef[:-1]
        terms = self._row_terms(rows, rows.scores(coef), hidden)
        return terms / rows.total + 0.5 * self.l2 * float(np.square(weights).sum()) + groups.penalty(weights)

    # ------------------------------------------------------------ what depends on the distance between q and g

    def _first(self) -> float:
        """The initial value of ``hidden_``: the same q for all rows."""
        return self.p_full

    def _loss(self, rows: LinearRows, q: np.ndarray) -> SmoothLoss:
        """The smooth part of (OPT2), for given q."""
        return AdaptLoss(rows.classes, q)

    def _hidden(self, rows: LinearRows, coef: np.ndarray, q: np.ndarray) -> np.ndarray:
        """(OPT1): q for given g and f1; docs/math.md (3) and (4)."""
        scores = rows.scores(coef)
        g = scores[:, -1]
        answer = rows.classes.row_loss(scores[:, :-1]) + np.logaddexp(0.0, g)
        return q_step(answer, rows.forward + np.logaddexp(0.0, -g), self.p_full, rows.classes.weight)[0]

    def _row_terms(self, rows: LinearRows, scores: np.ndarray, q: np.ndarray) -> float:
        """The weighted sum over rows of (OPT1)."""
        of_q = q * rows.forward - entr(q) - entr(1 - q)  # the terms that depend on q alone
        return AdaptLoss(rows.classes, q).value_and_slope(scores)[0] + float(rows.classes.weight @ of_q)
