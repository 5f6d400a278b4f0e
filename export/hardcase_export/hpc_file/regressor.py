# SPDX-License-Identifier: Apache-2.0
"""The HPC of a policy of values as an ONNX file: a regressor converted, and how far the file is from it.

It may be one of scikit-learn, LightGBM, XGBoost or CatBoost, or a Pipeline that ends in one. It computes in float32
around a centre, which the graph adds in float64, so that a target far from 0 loses no digits.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.kinds import VALUE

from ..importing.agreement import float_bound
from ..sources.from_estimator import from_estimator
from .from_sklearn import LIBRARIES, REMEDY, convert, in_float32, last_step, library_of, name_of
from .from_source import READINGS, VALUES, values_of
from .layout import Core, Values, values_laid_out
from .replay_rows import feed

POLYNOMIAL = ("poly", "polynomial")  # kernel
STRAIGHT = 1e-9  # relative: how far a transformation of the target may be from a straight line
MAX_GAP = 1e-5  # share of the target's range by which a value may differ from the estimator's

Array = NDArray[np.float64]


def convert_value_hpc(estimator: Any, X: Array, dtypes: Sequence[str], answers: Values) -> bytes:
    """The bytes of the ONNX file, not yet compared with the estimator; ``X``: rows on which its centre is found.

    Raises
    ------
    InputError
        The estimator cannot be converted.
    """
    name, n = name_of(estimator), len(dtypes)
    if library_of(estimator) in LIBRARIES:
        model, centre = values_of(from_estimator(estimator))
        core = Core(name, model, READINGS, "f32", n, VALUES, 1)
        return values_laid_out(core, dtypes, answers=answers, centre=centre)
    plain, factor, offset = _untransformed(in_float32(estimator, dtypes), X)
    centred, centre = _centred(with_last_step(plain, _known(last_step(plain))), X)
    try:
        model = convert(centred, n)
    except Exception as error:  # skl2onnx has no common base for its errors
        raise InputError(f"{name} cannot be converted to ONNX ({one_line(error)}); {REMEDY}") from error
    outputs = [output.name for output in model.graph.output]
    if len(outputs) != 1:
        raise InputError(f"{name} converts to the outputs {outputs}, but one of values is needed; {REMEDY}")
    core, added = Core(name, model, "X", "f32", n, outputs[0], 1), factor * centre + offset
    return values_laid_out(core, dtypes, answers=answers, centre=added, factor=factor)


# ---------------------------------------------------------------- what skl2onnx does not know


def _untransformed(estimator: Any, X: Array) -> tuple[Any, float, float]:
    """A regressor without the transformation of its target: the rest, and factor and offset that undo it.

    Raises
    ------
    InputError
        The transformation is not a factor and an offset.
    """
    from sklearn.compose import TransformedTargetRegressor  # here and below: an export of a bundle does without

    own = last_step(estimator)
    if not isinstance(own, TransformedTargetRegressor):
        return estimator, 1.0, 0.0
    rest, own_factor, own_offset = _untransformed(with_last_step(estimator, own.regressor_), X)
    z = own_offset + own_factor * _predict(rest, X, "")
    points = np.array([z.min(), z.mean(), z.max(), 0.0, 1.0])
    *values, at_0, at_1 = own.transformer_.inverse_transform(points[:, None]).ravel()
    factor = at_1 - at_0
    if np.abs(at_0 + factor * points[:3] - values).max() > STRAIGHT * max(np.abs(values).max(), abs(factor)):
        raise InputError(
            f"{name_of(estimator)} cannot be converted to ONNX (its target is transformed by more than a factor and "
            f"an offset); {REMEDY}"
        )
    return rest, factor * own_factor, at_0 + factor * own_offset


def with_last_step(estimator: Any, own: Any) -> Any:
    """The estimator with another one in place of its ``last_step``."""
    from sklearn.pipeline import Pipeline

    if not hasattr(estimator, "steps"):
        return own
    *before, (name, last) = estimator.steps
    return Pipeline([*before, (name, with_last_step(last, own))])


def _known(model: Any) -> Any:
    """A regressor that skl2onnx knows and that predicts the same, where there is one; otherwise itself."""
    from sklearn.dummy import DummyRegressor
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.svm import SVR

    if isinstance(model, DummyRegressor):
        return _linear(np.zeros(model.n_features_in_), np.ravel(model.constant_)[0])
    if not isinstance(model, KernelRidge) or model.kernel not in ("linear", "rbf", *POLYNOMIAL, "sigmoid"):
        return model
    dual = np.ravel(model.dual_coef_)
    if model.kernel == "linear":
        return _linear(dual @ model.X_fit_, 0.0)
    kernel = "poly" if model.kernel in POLYNOMIAL else model.kernel
    gamma = 1 / model.n_features_in_ if model.gamma is None else model.gamma
    n = len(dual)
    stand_in = SVR(kernel=kernel, gamma=gamma, degree=model.degree, coef0=model.coef0).fit(model.X_fit_, dual)
    stand_in.support_vectors_, stand_in.support_ = model.X_fit_, np.arange(n, dtype=np.int32)
    stand_in.dual_coef_ = stand_in._dual_coef_ = dual[None]
    stand_in.intercept_ = stand_in._intercept_ = np.zeros(1)
    stand_in._n_support = np.array([n, 0], dtype=np.int32)
    return stand_in


def _linear(coef: Array, intercept: float) -> Any:
    from sklearn.linear_model import LinearRegression

    model = LinearRegression()
    model.coef_, model.intercept_, model.n_features_in_ = coef, float(intercept), len(coef)
    return model


# ---------------------------------------------------------------- the centre


def _centred(estimator: Any, X: Array) -> tuple[Any, float]:
    """A copy of it around its mean prediction, and that centre; around 0 where its kind cannot be shifted."""
    values = _predict(estimator, X, "")
    centre = float(np.float32(values.mean()))
    shifted = copy.deepcopy(estimator)
    if not _shift(last_step(shifted), centre):
        return estimator, 0.0
    off = np.abs(_predict(shifted, X, "") + centre - values).max()
    return (shifted, centre) if off <= 1e-9 * max(np.ptp(values), abs(centre)) else (estimator, 0.0)


def _shift(model: Any, centre: float) -> bool:
    """Subtract the centre from what the model adds to every prediction; False if that is not known."""
    if hasattr(model, "_baseline_prediction"):  # histogram-based boosting
        model._baseline_prediction = model._baseline_prediction - centre
    elif hasattr(model, "init_") and hasattr(model.init_, "constant_"):  # boosting
        model.init_.constant_ = model.init_.constant_ - centre
    elif hasattr(model, "tree_"):
        model.tree_.value[:] -= centre
    elif hasattr(model, "estimators_") and all(hasattr(tree, "tree_") for tree in np.ravel(model.estimators_)):
        for tree in np.ravel(model.estimators_):
            tree.tree_.value[:] -= centre
    elif hasattr(model, "intercepts_"):  # a network
        model.intercepts_[-1] = model.intercepts_[-1] - centre
    elif hasattr(model, "_intercept_"):  # of support vectors, which predict by the one and are converted by the other
        model.intercept_ = model._intercept_ = model._intercept_ - centre
    elif hasattr(model, "intercept_"):
        model.intercept_ = model.intercept_ - centre
    else:
        return False
    return True


# ---------------------------------------------------------------- replay


def _predict(estimator: Any, X: Array, kind: str) -> Array:
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(estimator.predict(X), dtype=np.float64)
    except ValueError as error:
        raise InputError(
            f"{name_of(estimator)} fails on the test rows{kind} ({one_line(error)}); "
            "put SimpleImputer(keep_empty_features=True) before it in a Pipeline"
        ) from error
    if values.size != len(X) or not np.isfinite(values).all():
        raise InputError(f"{name_of(estimator)} does not predict one finite number for each test row{kind}; {REMEDY}")
    return values.ravel()


def own_rounding(estimator: Any) -> float:
    """How far the library's predictions can be from its own trees' exact sums, in the target's unit."""
    if library_of(estimator) not in LIBRARIES:
        return 0.0
    source = from_estimator(estimator)
    return float_bound(source, np.zeros((1, len(source.features)))) / source.unit


def value_gap(estimator: Any, session: Any, X: Array, span: float, lost: float, kind: str) -> float:
    """The largest difference of a value, as a share of the span; ``lost``: as of ``own_rounding``.

    Raises
    ------
    InputError
        It is more than ``MAX_GAP`` and what is lost, or the file gives no finite numbers.
    """
    name = name_of(estimator)
    values = _predict(estimator, X, kind)
    (output,) = feed(session, X, [VALUE.output], f"{name}'s ONNX file", kind)
    if np.shape(output) != (len(X), 1) or not np.isfinite(output).all():
        raise InputError(f"{name}'s ONNX file does not give one finite number for each test row{kind}; {REMEDY}")
    gap = float(np.abs(output[:, 0] - values).max()) / span
    if gap > MAX_GAP + lost / span:
        raise InputError(
            f"{name} in ONNX gives a value{kind} that differs from its own by {gap:.2g} of the target's range, but at "
            f"most {MAX_GAP + lost / span:.2g} is allowed; no file was written: {REMEDY}"
        )
    return gap
