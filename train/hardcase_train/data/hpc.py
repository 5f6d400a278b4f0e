"""f0, the high-cost model: any classifier of scikit-learn's own list, out-of-fold where it judges training rows."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.utils import all_estimators
from sklearn.utils.validation import has_fit_parameter

from hardcase_edge.errors import InputError, one_line

from .problem import N_FOLDS

__all__ = ["fit_hpc", "imputed", "make_hpc", "out_of_fold", "probabilities"]


TAKES_MISSING = ("HistGradientBoostingClassifier",)  # natively, and converts to ONNX exactly so


def make_hpc(name: str, params: dict[str, Any], seed: int) -> ClassifierMixin:
    """An unfitted f0; what cannot take missing values gets the training median in front.

    Raises
    ------
    InputError
        No such classifier (the nearest name is said), a parameter it does not have, or no probabilities.
    """
    known = dict(all_estimators(type_filter="classifier"))
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "name a classifier of scikit-learn"
        raise InputError(f"[hpc] estimator {name!r} is no classifier of scikit-learn; {hint}")
    try:
        model = known[name](**params)
    except TypeError as error:
        raise InputError(f"[hpc] {name} cannot be made with these params: {error}") from error
    if "random_state" in model.get_params() and "random_state" not in params:
        model.set_params(random_state=seed)
    if not hasattr(model, "predict_proba"):
        raise InputError(f"[hpc] {name} gives no probabilities, which gates need; choose one with predict_proba")
    if name in TAKES_MISSING:
        return model
    return imputed(model)


def imputed(model: ClassifierMixin) -> Pipeline:
    """The model with the training median in front, for rows with missing values."""
    return Pipeline([("impute", SimpleImputer(strategy="median", keep_empty_features=True)), ("model", model)])


def fit_hpc(model: ClassifierMixin, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> ClassifierMixin:
    """Fit a copy of f0; ``weight`` (n,) of the rows counts where the model knows ``sample_weight``.

    Raises
    ------
    InputError
        scikit-learn refuses the parameters or the data.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # what overflows shows in the probabilities
        warnings.simplefilter("ignore", ConvergenceWarning)  # the user's choice of iterations
        model = clone(model)
        if getattr(model, "early_stopping", None) == "auto" and np.unique(y, return_counts=True)[1].min() < 2:
            model.set_params(early_stopping=False)  # it would set rows of every class apart, and one has a single row
        try:
            return model.fit(X, y, **_weights(model, weight))
        except Exception as error:  # estimators raise all kinds
            raise InputError(f"[hpc] the estimator cannot be fitted: {one_line(error)}") from error


def probabilities(model: ClassifierMixin, X: np.ndarray, n_classes: int) -> np.ndarray:
    """(n, n_classes), zero for a class that f0 has not seen.

    Raises
    ------
    InputError
        scikit-learn refuses the rows (more neighbours asked for than it was fitted to, for one), or loses itself.
    """
    out = np.zeros((len(X), n_classes))
    try:
        with np.errstate(all="ignore"):
            out[:, model.classes_] = model.predict_proba(X)
    except Exception as error:  # as above
        raise InputError(f"[hpc] the estimator cannot judge rows: {one_line(error)}") from error
    if not np.isfinite(out).all():
        raise InputError("[hpc] the estimator gives probabilities that are no numbers; scale the data or name another")
    return out


def _weights(model: ClassifierMixin, weight: np.ndarray | None) -> dict[str, np.ndarray]:
    """What ``fit`` is told of the weights: nothing where all rows count alike, or the model cannot know."""
    name, last = model.steps[-1] if isinstance(model, Pipeline) else ("", model)
    if weight is None or (weight == weight[0]).all() or not has_fit_parameter(last, "sample_weight"):
        return {}
    return {f"{name}__sample_weight" if name else "sample_weight": weight}


def out_of_fold(
    model: ClassifierMixin,
    X: np.ndarray,
    y: np.ndarray,
    n_classes: int,
    seed: int,
    progress: Callable[[int], Any] = lambda n: None,
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Probabilities of training rows from copies of f0 that have not seen them: 4 folds, stratified.

    A class with a single row is seen by no copy that judges it; its probability there is zero.
    """
    rng = np.random.default_rng(seed)
    fold = np.empty(len(y), dtype=np.int64)
    for c in range(n_classes):
        rows = np.flatnonzero(y == c)
        fold[rows] = (rng.permutation(len(rows)) + rng.integers(N_FOLDS)) % N_FOLDS
    out = np.zeros((len(y), n_classes))
    for k in range(N_FOLDS):
        held = fold == k
        if held.any() and len(np.unique(y[~held])) > 1:
            part = None if weight is None else weight[~held]
            out[held] = probabilities(fit_hpc(model, X[~held], y[~held], part), X[held], n_classes)
        progress(1)
    return out
