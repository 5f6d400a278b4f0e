# SPDX-License-Identifier: Apache-2.0
"""hardcase in the cloud: trains gates, low-cost models and the honest baselines, and compiles them to programs.

The facade: ``PolicyClassifier``, ``PolicyRegressor``, ``MethodClassifier``, every method's estimator by its class name,
``Problem`` and ``register_method``. All else may move.
"""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Names of the facade, imported when asked for: the classes of ``methods.ESTIMATORS`` and five more."""
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .data.problem import Problem
    from .estimator import MethodClassifier, PolicyClassifier
    from .methods import ESTIMATORS, register_method
    from .regressor import PolicyRegressor

    classes: dict[str, Any] = {
        **ESTIMATORS,
        "MethodClassifier": MethodClassifier,
        "PolicyClassifier": PolicyClassifier,
        "PolicyRegressor": PolicyRegressor,
        "Problem": Problem,
        "register_method": register_method,
    }
    if name == "__all__":
        return sorted(classes)
    if name not in classes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(sorted(classes))}")
    return classes[name]
