# SPDX-License-Identifier: Apache-2.0
"""Base classes of the estimators: feature-acquisition policies with f0 as fallback, by scikit-learn's interface."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from hardcase_edge.more.batch.evaluate import Outcome
from hardcase_edge.more.batch.quality import Quality
from hardcase_edge.program.definition import Answer
from hardcase_edge.program.kinds import CLASS

from .data.error_costs import chosen_quality
from .data.from_arrays import group_names, row_weights
from .data.problem import MAX_CLASSES, MIN_ROWS, Problem
from .hpc.fit import probabilities
from .hpc.legacy import SUM_TOLERANCE
from .method import Method, Params
from .policy.batch import Batch
from .policy.front import Point
from .policy.losses import log_probability
from .policy.selection import Judge
from .policy_estimator import NUMBERS, PolicyEstimator
from .stages.subset_search import SubsetSearch


@dataclass(eq=False, repr=False, kw_only=True)
class PolicyClassifier(ClassifierMixin, PolicyEstimator):  # type: ignore[misc]
    """A classifier that buys sensors, answers the easy cases and forwards the hard ones to f0.

    Missing values are NaN. ``points`` returns the candidate policies. ``fit`` picks the cheapest one whose accuracy is
    at most ``max_loss`` below that of f0, plus one standard error; or, given a ``budget``, the most accurate one
    whose mean cost does not exceed it. If no policy qualifies, ``fit`` takes the closest one and warns. All choices are
    made on rows that the chosen models were not trained on (``policy.selection``).

    Parameters
    ----------
    sensors : sequence of column numbers per sensor. Each column that belongs to none of them becomes a sensor of its
        own, numbered after the named ones. None: one sensor per column
    costs : cost of each sensor, from 0 to 1e9, in a unit of your choice; None: 1 each
    forward_cost : cost of one request, in the same unit, without the sensors that f0 reads (all of them)
    per_decision : cost of waking up, once for each decision before it reads anything
    hpc : f0, an unfitted classifier with ``predict_proba``; None: ``HistGradientBoostingClassifier``. If it does not
        accept missing values, they are replaced by the training median; a ``random_state`` of None is replaced by a
        seed drawn from this estimator's ``random_state``
    max_loss : accuracy that may be lost against f0, from 0 to 1
    budget : largest mean cost of a decision, or None; if given, ``max_loss`` is ignored
    limits : limits that every candidate keeps, or None: {"budget": cost}, the most that any decision may cost;
        "max_ms", "max_bytes" and "max_forward" as in [policy] of hardcase.toml. If given, ``max_loss`` is ignored, and
        without a ``budget`` the best candidate is picked
    size : "small", "large" or "auto" (by the number of training rows): the size of boosted low-cost models; "ebm":
        additive ones on sensor sets
    quality : the measure of answers: "accuracy", "balanced", "macro-f1" or "log-loss"; {"f1": class}; or
        {"recall": class, "precision": share}
    errors : costs of errors, in the same unit: {"miss": {class: cost}, "false_alarm": {class: cost}, "other": cost}, or
        {"matrix": {class: {answer: cost}}}. ``quality`` and ``max_loss`` are then ignored: without a ``budget``,
        ``fit`` picks the policy of the least mean cost, errors included
    effort : "quick", "normal" or "thorough": how many settings are tried (``settings.effort``)
    random_state : int, RandomState or None

    Attributes
    ----------
    program_ : the draft program; features and sensors keep the numbers they have in X and ``sensors``
    hpc_ : f0, fitted to all rows and class numbers; None if ``fit`` was given its probabilities
    classes_ : (n_classes,) labels
    n_features_in_ : int
    sensors_ : list of int, the sensors that some training row buys before it is answered or forwarded
    figures_ : dict, ``quality``, ``cost``, ``forward_rate``, ``loss_se`` and ``cost_se`` on the judged rows
    """

    quality: Any = "accuracy"
    errors: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None, hpc_proba: Any = None, groups: Any = None) -> Self:
        """Fit f0, learn candidate policies, and keep the one picked on the judged rows.

        Parameters
        ----------
        X : (n, n_features), NaN for missing
        y : (n,) labels of 2 to 200 classes
        sample_weight : (n,) weights of at least 0; rows of weight 0 are ignored
        hpc_proba : (n, n_classes) f0's probabilities on rows that it was not trained on, classes sorted. f0 is then
            not fitted, and ``predict`` needs its probabilities as well
        groups : (n,) the group of each row, such as its machine: text or numbers, at least 5 groups. No choice is made
            on rows of a group that the model was trained on, and standard errors count groups

        Raises
        ------
        ValueError
            The data or a parameter is invalid.
        """
        X, y = validate_data(self, X, y, **NUMBERS, ensure_min_samples=MIN_ROWS)
        check_classification_targets(y)
        self._check_limits()
        weight = row_weights(sample_weight, len(X))
        used = np.flatnonzero(weight > 0)
        self.classes_, index = np.unique(y[used], return_inverse=True)
        if not 2 <= len(self.classes_) <= MAX_CLASSES:
            raise ValueError(f"y has {len(self.classes_)} class(es) of weight above 0; expected 2 to {MAX_CLASSES}")
        given = None if hpc_proba is None else self._given(hpc_proba, len(weight))[used]
        names = None if groups is None else group_names(groups, len(y))[used]
        self._fit(X[used], index, weight[used], given, names)
        return self

    def _quality(self, y: np.ndarray, weight: np.ndarray) -> Quality:
        classes = self.classes_.tolist()
        return chosen_quality(CLASS.name, self.quality, self.errors, classes, y, weight, "the parameter", "errors")

    @property
    def _n_classes(self) -> int:
        return len(self.classes_)

    def _new_hpc(self) -> Any:
        model = HistGradientBoostingClassifier() if self.hpc is None else clone(self.hpc)
        if not hasattr(model, "predict_proba"):
            raise ValueError(f"hpc is {model}, which has no predict_proba; use a classifier that has it")
        return model

    # ------------------------------------------------------------ decisions

    def decide(self, X: Any, hpc_proba: Any = None) -> Outcome:
        """Run the program on every row: class index, cost, and whether the row was forwarded.

        Parameters
        ----------
        X : (n, n_features), NaN for missing
        hpc_proba : (n, n_classes) f0's probabilities on these rows, if ``fit`` was given probabilities too

        Raises
        ------
        ValueError
            X differs in shape from that of ``fit``, or rows are forwarded to an f0 that was never fitted.
        """
        return self._decide(X, hpc_proba)[0]

    def predict(self, X: Any, hpc_proba: Any = None) -> np.ndarray:
        """Labels, (n,); parameters and errors as for ``decide``."""
        outcome = self.decide(X, hpc_proba)
        labels: np.ndarray = self.classes_[outcome.label]
        return labels

    def predict_proba(self, X: Any, hpc_proba: Any = None) -> np.ndarray:
        """(n, n_classes): f0's for forwarded rows, else the softmax of the answering scores; see ``decide``."""
        return self._decide(X, hpc_proba)[1]

    def _decide(self, X: Any, hpc_proba: Any) -> tuple[Outcome, np.ndarray]:
        X = self._rows(X)
        given = None if hpc_proba is None else self._given(hpc_proba, len(X))
        batch = Batch(self.program_, X)
        outcome, bought = batch.walk(np.zeros(len(X), dtype=np.int64))
        proba = np.zeros((len(X), len(self.classes_)))
        for k, node in enumerate(self.program_.nodes):
            rows = np.flatnonzero(outcome.node == k)
            if isinstance(node, Answer) and len(rows):
                scores = batch.scores(node.scores.scorer, rows, bought)[:, node.scores.start : node.scores.stop]
                proba[rows] = np.exp(log_probability(scores))
        forwarded = np.flatnonzero(outcome.forwarded)
        if len(forwarded):
            proba[forwarded] = self._ask(X[forwarded]) if given is None else given[forwarded]
            stakes = proba[forwarded] if self._targets is None else proba[forwarded] @ self._targets
            outcome.label[forwarded] = stakes.argmax(axis=1)
        return outcome, proba

    def _ask(self, X: np.ndarray) -> np.ndarray:
        """f0's probabilities on forwarded rows."""
        if self.hpc_ is None:
            raise ValueError("rows are forwarded, but f0 was given as probabilities; pass hpc_proba for these rows too")
        return probabilities(self.hpc_, X, len(self.classes_))

    def _given(self, hpc_proba: Any, n: int) -> np.ndarray:
        p: np.ndarray = check_array(hpc_proba, dtype=np.float64, input_name="hpc_proba")
        if p.shape != (n, len(self.classes_)) or (p < 0).any():
            raise ValueError(
                f"hpc_proba has shape {p.shape} and minimum {p.min():g}; "
                f"expected shape {(n, len(self.classes_))} and no negative value"
            )
        total = p.sum(axis=1)
        if (odd := np.flatnonzero(np.abs(total - 1) > SUM_TOLERANCE)).size:
            raise ValueError(f"hpc_proba adds up to {total[odd[0]]:.3g} in row {odd[0] + 1}; expected 1 in each row")
        return p


class MethodClassifier(PolicyClassifier):
    """A training method that sweeps can run: a grid of settings, and the points of each; ``fit`` tries the whole grid.

    A method of this package is a subclass in its own folder below ``methods/`` and an entry point
    of ``hardcase.methods``, as one of any other package is; ``methods.register_method`` adds one for this process.

    Examples
    --------
    >>> from hardcase_train.method import Method
    >>> from hardcase_train.methods import ESTIMATORS, METHODS, register_method
    >>> from hardcase_train.policy.answers import answer_point
    >>> class EverySensor(MethodClassifier):
    ...     "Buy every sensor, then answer by boosted trees."
    ...     method = Method(name="every-sensor", colour="#555555")
    ...     @classmethod
    ...     def grid(cls, search):
    ...         return [{"sensors": list(range(len(search.problem.sensors)))}]
    ...     @classmethod
    ...     def run(cls, search, params):
    ...         sensors = tuple(params["sensors"])
    ...         return [answer_point(search.judge, cls.method.name, params, sensors, search.models([sensors])[0])]
    >>> y = np.arange(200) % 2
    >>> EverySensor(effort="quick", random_state=0).fit(np.column_stack([y, y, 1 - y]), y).sensors_
    [0, 1, 2]
    >>> register_method(EverySensor).method.name in METHODS
    True
    >>> del METHODS["every-sensor"], ESTIMATORS["EverySensor"]
    """

    method: ClassVar[Method]

    @classmethod
    @abstractmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """The method's settings for a problem, the slowest first."""

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        """About how many settings ``grid`` will have, known before the search over sensor subsets."""
        return 1

    @classmethod
    @abstractmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points of one setting that are best on the judged rows.

        The result depends on the setting and the rows alone, so settings may run in any order, thread or process.
        """

    def points(self, judge: Judge) -> list[Point]:
        """The points of every setting that the estimator's parameters allow."""
        search = SubsetSearch(judge, getattr(self, "n_jobs", None) or 1)
        return [point for params in self._settings(search) for point in self.run(search, params)]

    def _settings(self, search: SubsetSearch) -> list[Params]:
        return self.grid(search)
