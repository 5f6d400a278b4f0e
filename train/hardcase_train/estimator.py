"""What every learner is to scikit-learn: arrays and costs in, a policy that decides, with f0 behind it, out."""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils import check_array, check_random_state, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Answer, Forward, Program

from .data.canonical_order import content_order
from .data.dtypes import held
from .data.effort import Effort
from .data.from_arrays import make_problem, row_weights
from .data.hpc import fit_hpc, imputed, out_of_fold, probabilities
from .data.problem import MAX_CLASSES, MIN_ROWS
from .method import Method, Params
from .policy.batch import Batch, Outcome
from .policy.front import Point
from .policy.losses import log_probability
from .policy.selection import Judge
from .stages.subset_search import SubsetSearch

__all__ = ["Limits", "MethodClassifier", "PolicyClassifier"]

NUMBERS: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
SLACK = 1e-12  # a float's last bit decides nothing
Limits = dict[str, tuple[float, float]]  # of parameters that are numbers; whole ones where the default is


@dataclass(eq=False, repr=False, kw_only=True)
class PolicyClassifier(ClassifierMixin, BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]
    """A classifier that buys sensors, answers the easy cases and forwards the hard ones to f0.

    Missing values are NaN. ``points`` are the policies that an estimator would offer. ``fit`` takes the cheapest whose
    accuracy is at most ``max_loss`` below f0's with one standard error to spare, or, given a ``budget``, the most
    accurate whose mean cost is at most that; where none is, the nearest, with a warning. Choices are made on rows that
    the chosen models have not seen (``policy.selection``).

    Parameters
    ----------
    sensors : column numbers of each sensor; columns that none names are sensors of their own, behind those named.
        None: a sensor per column
    costs : of each sensor, from 0 to 1e9, in one unit of yours; None: 1 each
    forward_cost : of one request, beside the sensors that f0 reads (all of them)
    hpc : f0, an unfitted classifier with ``predict_proba``; None: ``HistGradientBoostingClassifier``. What cannot
        take missing values gets the training median in front; a ``random_state`` of None becomes a number
    max_loss : share of 1
    budget : mean cost of a decision, or None; ``max_loss`` then says nothing
    size : "small", "large" or "auto" (by the number of training rows): of boosted low-cost models
    effort : "quick", "normal" or "thorough": how much is tried (``data.effort``)
    random_state : int, RandomState or None

    Attributes
    ----------
    program_ : the draft program; features and sensors numbered as given
    hpc_ : f0, fitted to all rows and class numbers; None where its probabilities were given
    classes_ : (n_classes,) labels
    n_features_in_ : int
    sensors_ : list of int, those that some row buys before it is answered or forwarded, all sensors working
    figures_ : dict, ``quality`` (accuracy), ``cost``, ``forward_rate`` and ``loss_se`` on the judged rows
    """

    sensors: Sequence[Sequence[int]] | None = None
    costs: Sequence[float] | None = None
    forward_cost: float = 0.0
    hpc: Any = None
    max_loss: float = 0.01
    budget: float | None = None
    size: str = "auto"
    effort: str | Effort = "normal"
    random_state: Any = None
    _limits: ClassVar[Limits] = {"max_loss": (0, 1), "budget": (0, np.inf)}

    @abstractmethod
    def points(self, judge: Judge) -> list[Point]:
        """The policies that this estimator makes of a problem, with their figures on the judged rows."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, hpc_proba: Any = None) -> Self:
        """Fit f0, learn, and keep the policy that the judged rows pick.

        Parameters
        ----------
        X : (n, n_features), NaN for missing
        y : (n,) labels of 2 to 200 classes
        sample_weight : (n,) from 0; a row of weight 0 is as if it were not there
        hpc_proba : (n, n_classes) f0's probabilities of rows it was not trained on, classes sorted; f0 is then not
            fitted, and whoever predicts gives its probabilities too

        Raises
        ------
        ValueError
            The data or a parameter cannot be used.
        """
        X, y = validate_data(self, X, y, **NUMBERS, ensure_min_samples=MIN_ROWS)
        check_classification_targets(y)
        self._check_limits()
        weight = row_weights(sample_weight, len(X))
        kept = weight > 0
        X, y, weight = X[kept], y[kept], weight[kept]
        self.classes_, index = np.unique(y, return_inverse=True)
        if not 2 <= len(self.classes_) <= MAX_CLASSES:
            raise ValueError(f"y has {len(self.classes_)} class(es) of weight above 0; 2 to {MAX_CLASSES} are expected")
        given = None if hpc_proba is None else self._given(hpc_proba, len(kept))[kept]
        try:
            self._learn(X, index, weight, given)
        except InputError as error:
            raise ValueError(str(error)) from error
        return self

    def _check_limits(self) -> None:
        """Parameters against the limits of every class they come from."""
        name = type(self).__name__
        for key, (low, high) in ((k, v) for c in type(self).__mro__ for k, v in vars(c).get("_limits", {}).items()):
            value, is_whole = getattr(self, key), type(getattr(type(self), key)) is int
            if value is not None and not (isinstance(value, Integral if is_whole else Real) and low <= value <= high):
                kind = "whole number" if is_whole else "number"
                raise ValueError(f"{key} of {name} is {value!r}, a {kind} from {low:g} to {high:g} is expected")

    def _learn(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray, given: np.ndarray | None) -> None:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        n_classes = len(self.classes_)
        problem = make_problem(
            X, y, weight, n_classes, self.sensors, self.costs, self.forward_cost, seed, self.size, self.effort
        )
        X = held(X, problem.features)
        self.hpc_, said = None, given
        if said is None:
            model = self._unfitted(seed)
            said = out_of_fold(model, X, y, n_classes, seed, weight=weight)
            self.hpc_ = fit_hpc(model, X, y, weight)
        order = content_order(problem.with_hpc(said))
        judge = Judge(order.ordered())
        point = self._pick(clone(self).points(judge), judge)
        program = point.program
        assert program is not None
        self.program_ = order.restored(program)
        self.figures_ = point.valid
        self.sensors_ = _bought(self.program_, X)

    def _unfitted(self, seed: int) -> Any:
        """f0 as it is to be fitted."""
        model = HistGradientBoostingClassifier() if self.hpc is None else clone(self.hpc)
        if not hasattr(model, "predict_proba"):
            raise ValueError(f"hpc is {model}, which gives no probabilities; name one with predict_proba")
        if model.get_params().get("random_state", 0) is None:
            model.set_params(random_state=seed)
        return model if get_tags(model).input_tags.allow_nan else imputed(model)

    def _pick(self, points: Sequence[Point], judge: Judge) -> Point:
        """The point that ``max_loss`` or ``budget`` asks for, or the nearest."""
        if self.budget is not None:
            near = [p for p in points if p.valid["cost"] <= self.budget * (1 + SLACK)]
            if near:
                return max(near, key=lambda p: (p.valid["quality"], -p.valid["cost"]))
            point = min(points, key=lambda p: (p.valid["cost"], -p.valid["quality"]))
            what = f"costs at most {self.budget:g}; the cheapest costs {point.valid['cost']:g}"
        else:
            f0 = float(np.average(judge.hpc_label == judge.y, weights=judge.weight))
            lost = [f0 - p.valid["quality"] + p.valid["loss_se"] for p in points]
            fit = [p for p, loss in zip(points, lost, strict=True) if loss <= self.max_loss + SLACK]
            if fit:
                return min(fit, key=lambda p: (p.valid["cost"], -p.valid["quality"]))
            point = points[int(np.argmin(lost))]
            what = f"is within {self.max_loss:g} of f0's accuracy {f0:.4f}; the nearest needs {min(lost):.4f}"
        warnings.warn(f"no policy of {type(self).__name__} {what}, and is taken", UserWarning, stacklevel=4)
        return point

    # ------------------------------------------------------------ decisions

    def decide(self, X: Any, hpc_proba: Any = None) -> Outcome:
        """What becomes of each row: class index, cost, whether it was forwarded, by the program and its meter.

        Parameters
        ----------
        X : (n, n_features), NaN for missing
        hpc_proba : (n, n_classes) of f0 on these rows, where ``fit`` was given them too

        Raises
        ------
        ValueError
            The rows are not like those of ``fit``, or f0 is needed and was never fitted.
        """
        return self._decide(X, hpc_proba)[0]

    def predict(self, X: Any, hpc_proba: Any = None) -> np.ndarray:
        """Labels, (n,); parameters and errors as of ``decide``."""
        outcome = self.decide(X, hpc_proba)
        return self.classes_[outcome.label]

    def predict_proba(self, X: Any, hpc_proba: Any = None) -> np.ndarray:
        """(n, n_classes): of f0 where it was asked, else the softmax of the scores that answered; as ``decide``."""
        return self._decide(X, hpc_proba)[1]

    def cost(self, X: Any) -> np.ndarray:
        """What each decision costs, (n,), in the unit of ``costs``; f0 is not asked."""
        X = self._rows(X)
        return Batch(self.program_, X).run(np.zeros(len(X), dtype=np.int64)).cost

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
        there = np.flatnonzero(outcome.forwarded)
        if len(there):
            proba[there] = self._ask(X[there]) if given is None else given[there]
            outcome.label[there] = proba[there].argmax(axis=1)
        return outcome, proba

    def _ask(self, X: np.ndarray) -> np.ndarray:
        """f0's probabilities of rows that are forwarded."""
        if self.hpc_ is None:
            raise ValueError("rows are forwarded to an f0 that was given as probabilities; give hpc_proba here too")
        return probabilities(self.hpc_, X, len(self.classes_))

    def _rows(self, X: Any) -> np.ndarray:
        """Rows as the program's declared types hold them."""
        check_is_fitted(self)
        X = validate_data(self, X, **NUMBERS, reset=False)
        return held(X, self.program_.features)

    def _given(self, hpc_proba: Any, n: int) -> np.ndarray:
        p = check_array(hpc_proba, dtype=np.float64, input_name="hpc_proba")
        if p.shape != (n, len(self.classes_)) or (p < 0).any():
            raise ValueError(
                f"hpc_proba has the shape {p.shape} and least value {p.min():g}; "
                f"{(n, len(self.classes_))}, none negative, is expected"
            )
        return p

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class MethodClassifier(PolicyClassifier):
    """A method: settings for any problem, and points from each of them; ``fit`` tries all of its grid.

    A new method is a subclass in a folder of its own below ``methods/``, and one line in ``methods/__init__.py``.
    """

    method: ClassVar[Method]

    @classmethod
    @abstractmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """The method's settings for a problem, those that take longest first."""

    @classmethod
    @abstractmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points that the judged rows keep of one setting.

        They depend on the setting and the rows alone, so settings may run in any order, in threads or elsewhere.
        """

    def points(self, judge: Judge) -> list[Point]:
        """The points of every setting that the estimator's own parameters leave."""
        search = SubsetSearch(judge, getattr(self, "n_jobs", None) or 1)
        return [point for params in self._settings(search) for point in self.run(search, params)]

    def _settings(self, search: SubsetSearch) -> list[Params]:
        return self.grid(search)


def _bought(program: Program, X: np.ndarray) -> list[int]:
    """Sensors that some of the rows buy before they are answered or forwarded."""
    nodes = [program.nodes[n.fallback] if isinstance(n, Forward) else n for n in program.nodes]
    _, bought = Batch(program, X).walk(np.zeros(len(X), dtype=np.int64), nodes)
    return np.flatnonzero(bought.any(axis=1)).tolist()
