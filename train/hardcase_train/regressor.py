# SPDX-License-Identifier: Apache-2.0
"""``PolicyRegressor``: policies of values by scikit-learn's interface, by any method that learns values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.more.batch.quality import Quality
from hardcase_edge.program.kinds import VALUE

from .data.error_costs import chosen_quality
from .data.from_arrays import group_names, row_weights
from .data.problem import MIN_ROWS
from .estimator import MethodClassifier
from .hpc.fit import answers_to
from .methods.baselines.cascade import ConfidenceCascade
from .policy.batch import Batch
from .policy.front import Point
from .policy.selection import Judge
from .policy_estimator import NUMBERS, PolicyEstimator


@dataclass(eq=False, repr=False, kw_only=True)
class PolicyRegressor(RegressorMixin, PolicyEstimator):  # type: ignore[misc]
    """A regressor that buys sensors, answers the rows that it is sure of and forwards the others to f0.

    ``fit`` picks the cheapest policy whose R2 is at most ``max_loss`` below that of f0, plus one standard error; or,
    given a ``budget``, the best one whose mean cost does not exceed it.

    Parameters
    ----------
    policy : the method, an estimator of ``hardcase_train`` that learns values, such as ``StaticSubset()``; its own
        parameters that are named here do not count. None: ``ConfidenceCascade()``
    hpc : f0, an unfitted regressor; None: ``HistGradientBoostingRegressor``
    others : those of ``PolicyClassifier``, by keyword; there is no ``quality``, and errors have no costs

    Attributes
    ----------
    those of ``PolicyClassifier``, ``classes_`` left out; all values are in the unit of y

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> model = PolicyRegressor(costs=[1.0, 1.0, 9.0], forward_cost=20.0, effort="quick", max_loss=0.05, random_state=0)
    >>> model.fit(X, 100 + 5 * X[:, 0]).sensors_
    [0]
    """

    policy: Any = None

    def points(self, judge: Judge) -> list[Point]:
        """The method's points, over all its settings if it is as its class makes it."""
        policy = ConfidenceCascade() if self.policy is None else clone(self.policy)
        method = getattr(policy, "method", None)
        if not isinstance(policy, MethodClassifier) or method is None or not method.takes_values:
            raise ValueError(f"policy of PolicyRegressor is {policy!r}; name a method that learns values")
        return policy.points(judge)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, hpc_values: Any = None, groups: Any = None) -> Self:
        """Fit f0, learn candidate policies, and keep the one picked on the judged rows.

        Parameters
        ----------
        X : (n, n_features), NaN for missing
        y : (n,) finite values that are not all the same
        sample_weight : (n,) weights of at least 0; rows of weight 0 are ignored
        hpc_values : (n,) f0's values on rows that it was not trained on. f0 is then not fitted, and ``predict`` needs
            its values as well
        groups : (n,) the group of each row, as for ``PolicyClassifier``

        Raises
        ------
        ValueError
            The data or a parameter is invalid.
        """
        X, y = validate_data(self, X, y, **NUMBERS, ensure_min_samples=MIN_ROWS, y_numeric=True)
        self._check_limits()
        weight = row_weights(sample_weight, len(X))
        used = np.flatnonzero(weight > 0)
        given = None if hpc_values is None else _values(hpc_values, len(X))[used, None]
        names = None if groups is None else group_names(groups, len(y))[used]
        self._fit(X[used], np.asarray(y, dtype=np.float64)[used], weight[used], given, names)
        return self

    def decide(self, X: Any, hpc_values: Any = None) -> Outcome:
        """Run the program on every row: value, cost, and whether the row was forwarded.

        Parameters
        ----------
        X : (n, n_features), NaN for missing
        hpc_values : (n,) f0's values on these rows, if ``fit`` was given values too

        Raises
        ------
        ValueError
            X differs in shape from that of ``fit``, or rows are forwarded to an f0 that was never fitted.
        """
        X = self._rows(X)
        given = None if hpc_values is None else _values(hpc_values, len(X))
        outcome = Batch(self.program_, X).run(np.zeros(len(X)))
        forwarded = np.flatnonzero(outcome.forwarded)
        if len(forwarded):
            answers = outcome.label.astype(np.float64)
            answers[forwarded] = self._ask(X[forwarded]) if given is None else given[forwarded]
            outcome = Outcome(answers, outcome.cost, outcome.forwarded, outcome.margin, outcome.node)
        return outcome

    def predict(self, X: Any, hpc_values: Any = None) -> np.ndarray:
        """Values, (n,); parameters and errors as for ``decide``."""
        return np.asarray(self.decide(X, hpc_values).label, dtype=np.float64)

    def _ask(self, X: np.ndarray) -> np.ndarray:
        """f0's values of forwarded rows."""
        if self.hpc_ is None:
            raise ValueError("rows are forwarded, but f0 was given as values; pass hpc_values for these rows too")
        return answers_to(self.hpc_, X, 0)[:, 0]

    @property
    def _n_classes(self) -> int:
        return 0

    def _quality(self, y: np.ndarray, weight: np.ndarray) -> Quality:
        return chosen_quality(VALUE.name, None, None, (), y, weight, "the parameter", "errors")

    def _new_hpc(self) -> Any:
        return HistGradientBoostingRegressor() if self.hpc is None else clone(self.hpc)


def _values(given: Any, n: int) -> np.ndarray:
    """f0's values, (n,)."""
    values: np.ndarray = check_array(given, ensure_2d=False, dtype=np.float64, input_name="hpc_values")
    if values.shape != (n,):
        raise ValueError(f"hpc_values has shape {values.shape}; expected shape {(n,)}")
    return values
