# SPDX-License-Identifier: Apache-2.0
"""Attributes that every scikit-learn estimator has: features, classes, name and its own prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Label

from .source import feature_names

__all__ = ["labels_of", "plain_predict", "source_fields"]


def labels_of(estimator: Any) -> tuple[Label, ...]:
    """The estimator's classes, as a manifest can name them; empty for a regressor."""
    classes = getattr(estimator, "classes_", ())
    return tuple(int(c) if isinstance(c, bool) else c for c in np.asarray(classes).tolist())


def source_fields(estimator: Any, predict_labels: Any) -> dict[str, Any]:
    """Fields of a ``Source`` that every estimator gives: name, features, classes, predict.

    ``predict_labels``: the estimator's ``predict``, (n, n_features) to (n,) labels or values.
    """
    n = int(estimator.n_features_in_)
    classes = getattr(estimator, "classes_", None)

    def predict(X: NDArray[np.float64]) -> NDArray[Any]:
        labels = predict_labels(X)
        return np.asarray(labels if classes is None else np.searchsorted(classes, labels))

    return {
        "name": f"scikit-learn {type(estimator).__name__}",
        "features": feature_names(getattr(estimator, "feature_names_in_", None), n),
        "classes": labels_of(estimator),
        "predict": predict,
    }


def plain_predict(estimator: Any) -> Any:
    """The estimator's ``predict``, without its warning about rows that have no feature names."""
    import warnings

    def predict(X: NDArray[np.float64]) -> NDArray[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # X has no feature names
            return np.asarray(estimator.predict(X))

    return predict
