# SPDX-License-Identifier: Apache-2.0
"""hardcase: decide easy cases on the device and forward hard ones, at a stated accuracy and cost.

    train(X, y, sensors=..., costs=..., forward_cost=..., max_loss=...)   -> Policy: front, export, export_c, save
    load("x.hcb")                                                         -> Loaded: decide(readings)
    export(fitted_estimator, "x.hcb", X, y)                               write the bundle of a hardcase_train estimator
    evaluate("x.hcb", X, y)                                               quality, cost and forward rate on rows
    Gate("gate", {"google": function, ...})                               decide(request): asks APIs until it is sure

These names are imported on first use, so ``import hardcase`` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api.evaluating import evaluate
    from .api.exporting import export
    from .api.gate import Gate, GateAnswer
    from .api.loaded import Decided, Loaded, load
    from .api.policy import Front, Policy
    from .api.training import train

__all__ = [
    "Decided", "Front", "Gate", "GateAnswer", "Loaded", "Policy", "__version__", "evaluate", "export", "load", "train",
]  # fmt: skip
__version__ = "0.1.0"

_HOMES = {
    "Decided": "loaded",
    "Front": "policy",
    "Gate": "gate",
    "GateAnswer": "gate",
    "Loaded": "loaded",
    "Policy": "policy",
    "evaluate": "evaluating",
    "export": "exporting",
    "load": "loaded",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f".api.{_HOMES[name]}", __name__), name)
