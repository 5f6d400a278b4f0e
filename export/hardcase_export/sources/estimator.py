"""What an estimator of scikit-learn says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Label

from .source import feature_names

__all__ = ["labels_of", "plain_predict"]


def labels_of(estimator: Any) -> tuple[Label, ...]:
    """Its classes as a manifest can name them; none for a regressor."""
    classes = getattr(estimator, "classes_", ())
    return tuple(int(c) if isinstance(c, bool) else c for c in np.asarray(classes).tolist())


def _about(estimator: Any, what: Any) -> dict[str, Any]:
    """What every estimator says of itself; ``what`` predicts for those that answer classes."""
    n = int(estimator.n_features_in_)
    classes = getattr(estimator, "classes_", None)

    def predict(X: NDArray[np.float64]) -> NDArray[Any]:
        said = what(X)
        return np.asarray(said if classes is None else np.searchsorted(classes, said))

    return {
        "name": f"scikit-learn {type(estimator).__name__}",
        "features": feature_names(getattr(estimator, "feature_names_in_", None), n),
        "classes": labels_of(estimator),
        "predict": predict,
    }


def plain_predict(estimator: Any) -> Any:
    """Its ``predict`` for arrays without names."""
    import warnings

    def predict(X: NDArray[np.float64]) -> NDArray[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # X has no feature names
            return np.asarray(estimator.predict(X))

    return predict
