# SPDX-License-Identifier: Apache-2.0
"""f0, the high-cost model: any classifier of scikit-learn, with out-of-fold probabilities on training rows."""

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
from .split import group_folds

__all__ = ["fit_hpc", "imputed", "make_hpc", "out_of_fold", "probabilities"]


TAKES_MISSING = ("HistGradientBoostingClassifier",)  # natively, and its ONNX conversion does too


def make_hpc(name: str, params: dict[str, Any], seed: int) -> ClassifierMixin:
    """An unfitted f0; a model that cannot take missing values gets an imputer (training median) in front.

    Raises
    ------
    InputError
        scikit-learn has no such classifier (the message has the nearest name), the classifier does not take these
        parameters, or it gives no probabilities.
    """
    classifiers = dict(all_estimators(type_filter="classifier"))
    if name not in classifiers:
        near = difflib.get_close_matches(name, classifiers, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "name a classifier of scikit-learn"
        raise InputError(f"[hpc] estimator {name!r} is not a classifier of scikit-learn; {hint}")
    try:
        model = classifiers[name](**params)
    except TypeError as error:
        raise InputError(f"[hpc] {name} does not take these params: {error}") from error
    if "random_state" in model.get_params() and "random_state" not in params:
        model.set_params(random_state=seed)
    if not hasattr(model, "predict_proba"):
        raise InputError(
            f"[hpc] {name} gives no probabilities, which gates need; choose a classifier with predict_proba"
        )
    if name in TAKES_MISSING:
        return model
    return imputed(model)


def imputed(model: ClassifierMixin) -> Pipeline:
    """The model with the training median in front, for rows with missing values."""
    return Pipeline([("impute", SimpleImputer(strategy="median", keep_empty_features=True)), ("model", model)])


def fit_hpc(model: ClassifierMixin, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> ClassifierMixin:
    """Fit a copy of f0; ``weight`` (n,) is used if the model takes ``sample_weight``.

    Raises
    ------
    InputError
        scikit-learn refuses the parameters or the data.
    """
    with (
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
    ):  # an overflow shows in the probabilities, which are checked
        warnings.simplefilter("ignore", ConvergenceWarning)  # the user's choice of iterations
        model = clone(model)
        if getattr(model, "early_stopping", None) == "auto" and np.unique(y, return_counts=True)[1].min() < 2:
            model.set_params(
                early_stopping=False
            )  # it would hold out rows of every class, and one class has a single row
        try:
            return model.fit(X, y, **_weights(model, weight))
        except Exception as error:  # estimators raise exceptions of any kind
            raise InputError(f"[hpc] the estimator cannot be fitted: {one_line(error)}") from error


def probabilities(model: ClassifierMixin, X: np.ndarray, n_classes: int) -> np.ndarray:
    """f0's probabilities, (n, n_classes); zero for a class that f0 has not seen.

    Raises
    ------
    InputError
        scikit-learn refuses the rows (a k-neighbours model fitted to fewer than k rows, for example), or a probability
        is not finite.
    """
    proba = np.zeros((len(X), n_classes))
    try:
        with np.errstate(all="ignore"):
            proba[:, model.classes_] = model.predict_proba(X)
    except Exception as error:  # estimators raise exceptions of any kind
        raise InputError(f"[hpc] the estimator cannot predict: {one_line(error)}") from error
    if not np.isfinite(proba).all():
        raise InputError(
            "[hpc] the estimator gives probabilities that are not numbers; scale the data or choose another estimator"
        )
    return proba


def _weights(model: ClassifierMixin, weight: np.ndarray | None) -> dict[str, np.ndarray]:
    """The keyword for ``fit`` that passes the weights; empty if all are equal or the model does not take weights."""
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
    group: np.ndarray | None = None,
) -> np.ndarray:
    """Out-of-fold probabilities of training rows, (n, n_classes): 4 stratified folds, none of which divides a group.

    If a class has a single row, the copy that predicts that row has not seen the class and gives it probability zero.
    """
    fold = _row_folds(y, n_classes, seed) if group is None else group_folds(group, y, seed)
    proba = np.zeros((len(y), n_classes))
    for k in range(N_FOLDS):
        is_held_out = fold == k
        if is_held_out.any() and len(np.unique(y[~is_held_out])) > 1:
            fold_weight = None if weight is None else weight[~is_held_out]
            proba[is_held_out] = probabilities(
                fit_hpc(model, X[~is_held_out], y[~is_held_out], fold_weight), X[is_held_out], n_classes
            )
        progress(1)
    return proba


def _row_folds(y: np.ndarray, n_classes: int, seed: int) -> np.ndarray:
    """The fold of each row, (n,), stratified by class."""
    rng = np.random.default_rng(seed)
    fold = np.empty(len(y), dtype=np.int64)
    for c in range(n_classes):
        rows = np.flatnonzero(y == c)
        fold[rows] = (rng.permutation(len(rows)) + rng.integers(N_FOLDS)) % N_FOLDS
    return fold
