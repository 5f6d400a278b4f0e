# SPDX-License-Identifier: Apache-2.0
"""f0, the high-cost model, with out-of-fold probabilities or values on training rows.

It is a classifier or regressor of scikit-learn, of LightGBM, XGBoost or CatBoost where these are installed, or a
Pipeline that ends in one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import ClassifierMixin, RegressorMixin, TransformerMixin, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.utils import all_estimators
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import ThreadpoolController

from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.errors import InputError, one_line

from ..data.problem import N_FOLDS
from ..data.split import group_folds, strata

LIBRARIES = {
    "LGBMClassifier": "lightgbm",
    "LGBMRegressor": "lightgbm",
    "XGBClassifier": "xgboost",
    "XGBRegressor": "xgboost",
    "CatBoostClassifier": "catboost",
    "CatBoostRegressor": "catboost",
}
QUIET: dict[str, dict[str, Any]] = {
    "lightgbm": {"verbose": -1},
    "catboost": {"logging_level": "Silent", "allow_writing_files": False},
}  # parameters that keep a library from writing to the terminal and to the folder, unless others are given
LOUD = ("verbose", "verbose_eval", "silent")  # of CatBoost, which takes one of them or a logging_level
USUAL = ("linear_model", "ensemble", "preprocessing", "tree", "neighbors", "svm")  # others are sought in all modules
MIXINS = {"classifier": ClassifierMixin, "regressor": RegressorMixin, "transformer": TransformerMixin}
MANY_ROWS = 10_000  # for training; on fewer, threads wait for the interpreter's lock more than they compute
HISTOGRAM = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")
TAKES_MISSING = (*HISTOGRAM, *LIBRARIES)  # natively, and their ONNX conversion does too


def make_hpc(name: str | Sequence[str], params: dict[str, Any], seed: int, kind: str = "classifier") -> Any:
    """An unfitted f0; a model that cannot take missing values gets an imputer (training median) in front.

    Parameters
    ----------
    name : a classifier; or transformers of scikit-learn and a classifier, which make a Pipeline
    kind : of estimator, classifier or regressor
    params : of the classifier; those of a Pipeline are named STEP__PARAMETER

    Raises
    ------
    InputError
        There is no such class (the message has the nearest name), its library is not installed, it does not take these
        parameters, or it gives no probabilities.
    """
    names = (name,) if isinstance(name, str) else tuple(name)
    if len(set(names)) != len(names):
        raise InputError(f"[hpc] estimator names {', '.join(names)}; name each step once")
    own: dict[str, dict[str, Any]] = {step: {} for step in names}
    for key, value in params.items():
        step, mark, parameter = (names[-1], "__", key) if isinstance(name, str) else key.partition("__")
        if step not in own or not mark:
            raise InputError(
                f"[hpc.params] {key!r} names no step of the estimator; write STEP__PARAMETER, with a step of "
                f"{', '.join(names)}"
            )
        own[step][parameter] = value
    steps = [(step, _made(step, own[step], seed, kind if step == names[-1] else "transformer")) for step in names]
    return ready(steps[0][1] if isinstance(name, str) else Pipeline(steps), seed)


def _made(name: str, params: dict[str, Any], seed: int, kind: str) -> Any:
    """An unfitted step of f0; ``kind`` of estimator: classifier, regressor or transformer."""
    library = LIBRARIES.get(name) if name.lower().endswith(kind) else None
    if library is None:
        make = _usual(name, kind) or _estimators(kind).get(name)
        if make is None:
            others = {library: own for own, library in LIBRARIES.items() if own.lower().endswith(kind)}
            names = [*_estimators(kind), *others.values()]
            close = others.get(name.lower(), name)
            hint = did_you_mean(close, names, f"name a {kind} of scikit-learn", cutoff=0.4)
            raise InputError(f"[hpc] estimator {name!r} is not a {kind} of scikit-learn; {hint}")
    else:
        try:
            make = getattr(import_module(library), name)
        except ImportError as error:
            raise InputError(f"[hpc] {name} needs {library}; pip install 'hardcase-train[{library}]'") from error
        loud = library == "catboost" and any(key in params for key in LOUD)
        params = {**({} if loud else QUIET.get(library, {})), **params}
        if library == "catboost" and "random_seed" not in params:
            params.setdefault("random_state", seed)
    try:
        model = make(**params)
        model.get_params()
    except TypeError as error:
        raise InputError(f"[hpc] {name} does not take these params: {error}; correct [hpc.params]") from error
    if kind == "classifier" and not hasattr(model, "predict_proba"):
        raise InputError(
            f"[hpc] {name} gives no probabilities, which gates need; choose a classifier with predict_proba"
        )
    return model


def _usual(name: str, kind: str) -> Any:
    """scikit-learn's estimator of this name, None if it is not in a module that most of them are in."""
    found = (getattr(import_module(f"sklearn.{module}"), name, None) for module in USUAL)
    return next((one for one in found if isinstance(one, type) and issubclass(one, MIXINS[kind])), None)


@cache
def _estimators(kind: str) -> dict[str, Any]:
    """scikit-learn's estimators of a kind by name, for which it looks into each of its modules."""
    return dict(all_estimators(type_filter=kind))


def ready(model: Any, seed: int) -> Any:
    """The unfitted model with its seeds set, and the training median in front unless it takes missing values."""
    is_pipeline = isinstance(model, Pipeline)
    values = model.get_params(deep=is_pipeline)
    model.set_params(**{k: seed for k, v in values.items() if k.endswith("random_state") and v is None})
    first = model.steps[0][1] if is_pipeline else model
    takes_missing = isinstance(first, SimpleImputer) or type(first).__name__ in TAKES_MISSING
    return model if takes_missing else imputed(model)


def imputed(model: Any) -> Pipeline:
    """The model with the training median in front, for rows with missing values."""
    return Pipeline([("impute", SimpleImputer(strategy="median", keep_empty_features=True)), ("model", model)])


def fit_hpc(model: Any, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> Any:
    """Fit a copy of f0; ``weight`` (n,) is used if the model takes ``sample_weight``.

    Raises
    ------
    InputError
        scikit-learn refuses the parameters or the data.
    """
    with _no_warnings():
        return _fitted(model, X, y, weight)


def _fitted(model: Any, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> Any:
    """As ``fit_hpc``, which may run on any thread."""
    with np.errstate(all="ignore"), _one_thread(model):  # an overflow shows in the probabilities, which are checked
        model = clone(model)
        X = _without_empty(X)
        holds_out = is_classifier(model) and getattr(model, "early_stopping", None) == "auto"
        if holds_out and np.unique(y, return_counts=True)[1].min() < 2:
            model.set_params(early_stopping=False)  # it would hold out a row of every class, also a single one
        try:
            return model.fit(X, y, **_weights(model, weight))
        except Exception as error:  # estimators raise exceptions of any kind
            gap = "; XGBClassifier needs a row of each class in every fold" if "Invalid classes" in str(error) else ""
            raise InputError(f"[hpc] the estimator cannot be fitted: {one_line(error)}{gap}") from error


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Without the warning that the iterations, which the user chose, were too few; of the whole process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _one_thread(model: Any) -> Any:
    """OpenMP gets one thread of this thread's work.

    A tree's histograms are small: threads that sleep between them take longer to wake than the work does, and threads
    that spin take the cores from other processes. Sums, and so models, are then the same on any number of cores.
    """
    return _libraries(_class_of(model)).limit(limits=1, user_api="openmp")


def _side_by_side(model: Any, n_rows: int) -> int:
    """How many folds are fitted at once: for histogram boosting on many rows, as many as OpenMP has threads."""
    last = _class_of(model)
    if last.__name__ not in HISTOGRAM or n_rows < MANY_ROWS:
        return 1
    counts = (int(library["num_threads"]) for library in _libraries(last).info() if library["user_api"] == "openmp")
    return min(counts, default=1)  # scikit-learn can be built without OpenMP


def _class_of(model: Any) -> Any:
    """Of the model itself, or of the one at the end of a Pipeline."""
    while isinstance(model, Pipeline):
        model = model.steps[-1][1]
    return type(model)


@cache
def _libraries(of: Any) -> ThreadpoolController:
    """What a process has loaded by its first model of this class; to look takes longer than a small fit."""
    return ThreadpoolController()


def _without_empty(X: np.ndarray) -> np.ndarray:
    """The rows with zeros in columns that are empty in all of them: they tell no two rows apart either way.

    scikit-learn's histogram boosting takes no empty column, and a fold may leave one where readings are few.
    """
    empty = np.isnan(X).all(axis=0)
    return np.where(empty, 0.0, X) if empty.any() else X


def answers_to(model: Any, X: np.ndarray, n_classes: int) -> np.ndarray:
    """f0's probabilities, (n, n_classes), or its values, (n, 1), if ``n_classes`` is 0.

    Raises
    ------
    InputError
        The model refuses the rows, or an answer is not finite.
    """
    if n_classes:
        return probabilities(model, X, n_classes)

    def asked() -> np.ndarray:
        return np.asarray(model.predict(X), dtype=np.float64).reshape(len(X), 1)

    return _finite(model, asked, "predicts values")


def probabilities(model: Any, X: np.ndarray, n_classes: int) -> np.ndarray:
    """f0's probabilities, (n, n_classes); zero for a class that f0 has not seen.

    Raises
    ------
    InputError
        scikit-learn refuses the rows (a k-neighbours model fitted to fewer than k rows, for example), or a probability
        is not finite.
    """

    def asked() -> np.ndarray:
        proba = np.zeros((len(X), n_classes))
        proba[:, model.classes_] = model.predict_proba(X)
        return proba

    return _finite(model, asked, "gives probabilities")


def _finite(model: Any, ask: Callable[[], np.ndarray], what: str) -> np.ndarray:
    """What the estimator answers, which may raise anything, as finite numbers."""
    try:
        with np.errstate(all="ignore"), _one_thread(model):
            found = ask()
    except Exception as error:  # estimators raise exceptions of any kind
        raise InputError(f"[hpc] the estimator cannot predict: {one_line(error)}") from error
    if not np.isfinite(found).all():
        raise InputError(f"[hpc] the estimator {what} that are not numbers; scale the data or choose another estimator")
    return found


def _weights(model: Any, weight: np.ndarray | None) -> dict[str, np.ndarray]:
    """The keyword for ``fit`` that passes the weights; empty if all are equal or the model does not take weights."""
    path, last = [], model
    while isinstance(last, Pipeline):
        name, last = last.steps[-1]
        path.append(name)
    if weight is None or (weight == weight[0]).all() or not has_fit_parameter(last, "sample_weight"):
        return {}
    return {"__".join([*path, "sample_weight"]): weight}


def out_of_fold(
    model: Any,
    X: np.ndarray,
    y: np.ndarray,
    n_classes: int,
    seed: int,
    progress: Callable[[int], Any] = lambda n: None,
    weight: np.ndarray | None = None,
    group: np.ndarray | None = None,
) -> np.ndarray:
    """Out-of-fold answers to training rows, as ``answers_to``: 4 stratified folds, none of which divides a group.

    If a class has a single row, the copy that predicts that row has not seen the class and gives it probability zero.
    Where all other folds have one class or value, that is the answer, as no estimator need take such rows.
    ``progress`` is called with 1 after each fold, by the thread that fits it.
    """
    stratum = strata(y, n_classes)
    fold = _row_folds(stratum, seed) if group is None else group_folds(group, stratum, seed)
    answers = np.zeros((len(y), n_classes or 1))

    def answer(is_held_out: np.ndarray) -> None:
        fold_classes = np.unique(y[~is_held_out])
        if is_held_out.any() and len(fold_classes) > 1:
            fold_weight = None if weight is None else weight[~is_held_out]
            fitted = _fitted(model, X[~is_held_out], y[~is_held_out], fold_weight)
            answers[is_held_out] = answers_to(fitted, X[is_held_out], n_classes)
        elif n_classes:
            answers[np.ix_(is_held_out, fold_classes)] = 1.0
        else:
            answers[is_held_out] = fold_classes[0] if len(fold_classes) else y.mean()
        progress(1)

    work = Parallel(n_jobs=_side_by_side(model, len(y)), require="sharedmem")
    with _no_warnings():
        work(delayed(answer)(fold == k) for k in range(N_FOLDS))
    return answers


def _row_folds(stratum: np.ndarray, seed: int) -> np.ndarray:
    """The fold of each row, (n,), stratified."""
    rng = np.random.default_rng(seed)
    fold = np.empty(len(stratum), dtype=np.int64)
    for k in range(int(stratum.max()) + 1):
        rows = np.flatnonzero(stratum == k)
        fold[rows] = (rng.permutation(len(rows)) + rng.integers(N_FOLDS)) % N_FOLDS
    return fold
