# SPDX-License-Identifier: Apache-2.0
"""What classifiers and regressors by policies share: parameters, f0, the pick among points, and the cost of rows."""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.more.batch.quality import Quality
from hardcase_edge.more.fronts.front import HPC_METHOD, Candidates, Judged
from hardcase_edge.more.fronts.pick import NoPointError, Wish, pick
from hardcase_edge.program.definition import Forward, Program

from .data.canonical_order import content_groups, content_order
from .data.dtypes import rounded_to_dtypes
from .data.from_arrays import make_problem
from .hpc.fit import fit_hpc, imputed, out_of_fold
from .policy.batch import Batch
from .policy.front import Point
from .policy.selection import Judge
from .settings.amounts import MAX_COST
from .settings.config import limits_of
from .settings.effort import Effort
from .stages.kept import Keeper
from .tasks.target import in_target_unit

NUMBERS: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
Limits = dict[str, tuple[float, float]]  # least and largest value of numeric parameters; whole if the default is


@dataclass(eq=False, repr=False, kw_only=True)
class PolicyEstimator(BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]
    """A policy as an estimator: ``PolicyClassifier`` says what the parameters and the attributes are.

    Of a regressor, ``hpc`` is a regressor, and all answers are values in the unit of y.
    """

    sensors: Sequence[Sequence[int]] | None = None
    costs: Sequence[float] | None = None
    forward_cost: float = 0.0
    per_decision: float = 0.0
    hpc: Any = None
    max_loss: float = 0.01
    budget: float | None = None
    limits: Mapping[str, float] | None = None
    size: str = "auto"
    effort: str | Effort = "normal"
    random_state: Any = None
    _limits: ClassVar[Limits] = {"max_loss": (0, 1), "budget": (0, MAX_COST)}

    @abstractmethod
    def points(self, judge: Judge) -> list[Point]:
        """Candidate policies for a problem, with their figures on the judged rows."""

    @abstractmethod
    def decide(self, X: Any) -> Outcome:
        """Run the program on every row: answer, cost, and whether the row was forwarded."""

    @property
    @abstractmethod
    def _n_classes(self) -> int:
        """The number of classes that ``fit`` has found; 0 for values."""

    @abstractmethod
    def _quality(self, y: np.ndarray, weight: np.ndarray) -> Quality:
        """The measure by which policies are picked."""

    @abstractmethod
    def _new_hpc(self) -> Any:
        """The unfitted f0, or a clone of the user's."""

    def _check_limits(self) -> None:
        """Check parameters against the ``_limits`` of this class and its bases."""
        name = type(self).__name__
        for key, (low, high) in ((k, v) for c in type(self).__mro__ for k, v in vars(c).get("_limits", {}).items()):
            value, usual = getattr(self, key), getattr(type(self), key)
            if value is None and usual is None:
                continue
            is_whole = type(usual) is int
            if not (isinstance(value, Integral if is_whole else Real) and low <= value <= high):
                kind = "whole number" if is_whole else "number"
                raise ValueError(f"{key} of {name} is {value!r}; expected a {kind} from {low:g} to {high:g}")

    def _fit(
        self, X: np.ndarray, y: np.ndarray, weight: np.ndarray, given: np.ndarray | None, names: np.ndarray | None
    ) -> None:
        """Learn from rows of weight above 0; ``names`` (n,) of their groups; invalid data are a ValueError."""
        group = None
        if names is not None:
            group, order = content_groups(names.tolist(), np.column_stack([X, weight]), y)
            X, y, weight, group = X[order], y[order], weight[order], group[order]
            given = None if given is None else given[order]
        try:
            self._learn(X, y, weight, given, group)
        except InputError as error:
            raise ValueError(str(error)) from error

    def _learn(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        given: np.ndarray | None,
        group: np.ndarray | None,
    ) -> None:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        n_classes = self._n_classes
        problem = make_problem(
            X, y, weight, n_classes, self.sensors, self.costs, self.forward_cost, seed, self.size, self.effort, group,
            per_decision=self.per_decision,
        )  # fmt: skip
        problem = replace(problem, limits=limits_of(f"limits of {type(self).__name__}", self.limits))
        X = rounded_to_dtypes(X, problem.features)
        self.hpc_, answers = None, given
        if answers is None:
            model = self._unfitted(seed)
            answers = out_of_fold(model, X, y, n_classes, seed, weight=weight, group=group)
            self.hpc_ = fit_hpc(model, X, y, weight)
        answers = (answers - problem.value_unit[0]) / problem.value_unit[1]  # of classes, as they are
        order = content_order(problem.with_hpc(answers).with_quality(self._quality(y, weight)))
        judge = Judge(order.ordered())
        if judge.warning() is not None:
            warnings.warn(str(judge.warning()), UserWarning, stacklevel=4)
        keeper = Keeper(judge.problem)
        points = keeper.kept(clone(self).points(judge))
        keeper.check(points)
        point = self._pick(points, judge)
        program = point.program
        assert program is not None
        program = order.restored(program)
        self.program_ = in_target_unit(program, problem.value_unit)
        self._targets, self._measure = judge.problem.targets, judge.problem.quality
        self.figures_ = point.valid
        self.sensors_ = _bought(self.program_, X)

    def _unfitted(self, seed: int) -> Any:
        """The unfitted f0: it accepts missing values, and its seed is fixed."""
        model = self._new_hpc()
        if model.get_params().get("random_state", 0) is None:
            model.set_params(random_state=seed)
        return model if get_tags(model).input_tags.allow_nan else imputed(model)

    def _pick(self, points: Sequence[Point], judge: Judge) -> Point:
        """The point that ``max_loss`` or ``budget`` asks for, or the closest one, with a warning."""
        quality, limits = judge.problem.quality, judge.problem.limits
        best = quality(judge.y, judge.hpc_answers, judge.weight)
        f0 = Point(HPC_METHOD, {}, Judged(best, 0.0, 1.0), None, None)
        front = Candidates("", (f0, *points), quality, limits.given)
        is_lossless = self.budget is not None or quality.kind == "errors" or bool(limits)
        wish = Wish(max_loss=None if is_lossless else self.max_loss, budget=self.budget)
        try:
            return pick(front, wish)
        except NoPointError as error:
            point: Point = error.nearest
        if self.budget is not None:
            said, closest = f"budget={self.budget:g}", f"mean cost {point.valid.cost:g}"
        else:
            said = f"max_loss={self.max_loss:g} (f0 {quality.name} {best:.4f})"
            closest = f"loss {best - point.valid.quality + point.valid.loss_se:.4f}"
        name = type(self).__name__
        warnings.warn(f"No policy of {name} meets {said}. Using the closest: {closest}.", UserWarning, stacklevel=5)
        return point

    def cost(self, X: Any) -> np.ndarray:
        """The cost of each decision, (n,), in the unit of ``costs``; f0 is not called."""
        X = self._rows(X)
        return Batch(self.program_, X).run(np.zeros(len(X), dtype=np.int64)).cost

    def _rows(self, X: Any) -> np.ndarray:
        """Rows, rounded to the program's declared types."""
        check_is_fitted(self)
        X = validate_data(self, X, **NUMBERS, reset=False)
        return rounded_to_dtypes(X, self.program_.features)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _bought(program: Program, X: np.ndarray) -> list[int]:
    """The sensors that some row buys before it is answered or forwarded."""
    nodes = [program.nodes[n.fallback] if isinstance(n, Forward) else n for n in program.nodes]
    _, bought = Batch(program, X).walk(np.zeros(len(X), dtype=np.int64), nodes)
    return np.flatnonzero(bought.any(axis=1)).tolist()
