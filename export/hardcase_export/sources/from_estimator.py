# SPDX-License-Identifier: Apache-2.0
"""Source models of live estimators: the reader of each library, and Pipelines of scalers, imputers and a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hardcase_edge.errors import InputError, one_line

from .preprocessing import behind, steps_of
from .source import Source, check_source, feature_names, predict_of


def from_estimator(model: Any) -> Source:
    """The source model of a fitted estimator of one of these libraries, or of a Booster.

    Raises
    ------
    InputError
        The kind of estimator is not supported, or it is not fitted.
    """
    library = type(model).__module__.partition(".")[0]
    if library == "lightgbm":
        from .from_lightgbm import from_lightgbm

        return from_lightgbm(model)
    if library == "xgboost":
        from .from_xgboost import from_xgboost

        return from_xgboost(model)
    if library == "catboost":
        from .from_onnx import from_catboost

        return from_catboost(model)
    if library == "interpret":
        from .from_interpret import from_interpret

        return from_interpret(model)
    if type(model).__name__ == "Pipeline":
        return _pipeline(model)
    from .from_sklearn import from_sklearn

    return from_sklearn(model)


def _pipeline(pipeline: Any) -> Source:
    """A Pipeline of scalers, imputers and a model, which then takes raw readings in float64."""
    try:
        *before, (_, last) = pipeline.steps
        scalers = [scaler for _, scaler in before if scaler not in (None, "passthrough")]
        steps = [step for scaler in scalers for step in steps_of(scaler)]
        source = behind(from_estimator(last), steps, "f64")
        features = feature_names(getattr(pipeline, "feature_names_in_", None), len(source.features))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"the Pipeline cannot be read ({one_line(error)}); fit it") from error
    features = features if any(features) else source.features
    return check_source(replace(source, features=features, predict=predict_of(pipeline)))
