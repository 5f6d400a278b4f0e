# SPDX-License-Identifier: Apache-2.0
"""The L1 baseline of Nan and Saligrama (2017): select sensors, then learn f1, then the gate, separately.

Section 5 of the paper. Three independent steps: a logistic regression with an L1 penalty on all rows selects the
sensors; f1 is a logistic regression on these; the gate is another one, whose target is whether f1 is wrong. Nothing is
learned jointly, so the baseline shows what joint learning gains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from ...data.problem import Problem
from ...estimator import MethodClassifier
from ...linear.part import GATE_RATES, LinearRows, judged, linear_rows, make_standard
from ...linear.proximal import Groups, minimise
from ...method import Method, Params
from ...policy.front import Point
from ...policy.kinds import learned
from ...policy.losses import AnswerLoss, ClassLoss
from ...policy.selection import Judge
from ...policy_estimator import Limits
from ...stages.subset_search import SubsetSearch
from .gate_thresholds import gated_points, path_points
from .linear_paths import Fitted, gamma_path


def weight_groups(problem: Problem, gamma: float, n_outputs: int) -> Groups:
    """One group per weight, priced at gamma times the cost of its sensor: the L1 norm."""
    n = len(problem.features)
    price = np.repeat(gamma * problem.sensor_costs()[problem.sensor_of], n_outputs)
    return Groups(np.arange(n * n_outputs).reshape(n, n_outputs), price)


@dataclass(eq=False, repr=False)
class L1Baseline(MethodClassifier):
    """A linear gate and a linear low-cost model, learned separately on sensors selected by an L1 penalty.

    The scores that answer come first, the gate's score (the log odds that f1 is wrong) last. A value is wrong if it is
    farther off than f0's root mean square error.

    Parameters
    ----------
    gamma : float >= 0
        Mean loss per unit of cost and of weight: the larger, the fewer sensors are selected.
    l2 : float >= 0
        Ridge penalty on f1 and the gate, which keeps weights finite if the classes are linearly separable.
    others : those of ``PolicyClassifier``, by keyword

    Attributes
    ----------
    those of ``PolicyClassifier`` after ``fit``; after ``learn``
    trained_ : Trained, the linear part and its scores on the judged rows
    sensors_ : list of int, the sensors with a nonzero weight in the first step
    selected_ : (n_features + 1, n_class_outputs) weights of the first step, and biases in the last row

    Examples
    --------
    >>> L1Baseline(gamma=0.1).get_params()["l2"]
    0.0001
    """

    gamma: float = 0.0
    l2: float = 1e-4
    method: ClassVar[Method] = Method(
        name="l1", maturity="research",
        against="the baseline of the paper on ADAPT: it selects one set of sensors for all cases", turn=3,
        colour="#a569bd", auto="raced", takes_values=True,
    )  # fmt: skip
    _limits: ClassVar[Limits] = {"gamma": (0, np.inf), "l2": (0, np.inf)}

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting: the whole regularisation path."""
        return [{}]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points of all models on the path."""
        models = list(cls._path(search.judge, gamma_path(search.problem)))
        return path_points(search.judge, cls.method.name, models, GATE_RATES)

    @classmethod
    def _path(cls, judge: Judge, gammas: list[float]) -> Iterator[Fitted]:
        model = None
        for gamma in gammas:
            model = cls(gamma=gamma).learn(judge, model)
            yield model, {"gamma": gamma}

    def points(self, judge: Judge) -> list[Point]:
        """Points over thresholds of the gate and the margin."""
        return gated_points(judge, "l1", self.learn(judge), {"gamma": self.gamma}, GATE_RATES)

    def learn(self, judge: Judge, start: Self | None = None) -> Self:
        """Learn from the training rows; f0 is not used.

        Parameters
        ----------
        start : a model fitted with a larger gamma, as a warm start of the first step
        """
        problem = judge.problem
        standard = make_standard(problem.train.X, problem.train.weight)
        rows = linear_rows(problem, standard.transform(problem.train.X))
        n_outputs = problem.n_outputs
        coef = np.zeros((len(problem.features) + 1, n_outputs)) if start is None else start.selected_
        groups = weight_groups(problem, self.gamma, n_outputs)
        self.selected_: np.ndarray = minimise(rows.classes, rows.Z, rows.total, groups, coef)
        used = np.flatnonzero(self.selected_[:-1].any(axis=1))
        self.sensors_ = sorted({int(s) for s in problem.sensor_of[used]})
        free = np.isin(problem.sensor_of, self.sensors_)
        self.trained_ = judged(
            judge,
            standard,
            rows.Z,
            self._two_steps(judge, rows, free),
            lambda subset: self._two_steps(judge, rows.take(subset), free),
        )
        return self

    def _two_steps(self, judge: Judge, rows: LinearRows, free: np.ndarray) -> np.ndarray:
        """Weights, and biases in the last row, of f1 and then of the gate."""
        kind = learned(judge.problem)
        f1 = self._fitted(rows, rows.classes, free)
        wrong = ~kind.is_right(kind.results(rows.scores(f1)), rows.classes.y, judge.tolerance)
        gate = ClassLoss(wrong.astype(np.int64), 2, rows.classes.weight)
        return np.hstack([f1, self._fitted(rows, gate, free)])

    def _fitted(self, rows: LinearRows, loss: AnswerLoss, free: np.ndarray) -> np.ndarray:
        start = np.zeros((len(free) + 1, loss.n_outputs))
        start[-1] = loss.base()
        if isinstance(loss, ClassLoss) and not loss.has_classes:  # f1 is right on every row, or wrong on every row
            return start
        groups = Groups(np.repeat(np.where(free, 0, 1)[:, None], loss.n_outputs, axis=1), np.array([0.0, np.inf]))
        return minimise(loss, rows.Z, rows.total, groups, start, l2=self.l2)
