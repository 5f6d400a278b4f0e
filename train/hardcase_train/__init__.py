"""hardcase in the cloud: trains gates, low-cost models and the honest baselines, and compiles them to programs."""

import os
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

HOMES = {
    "AdaptGBRT": "methods.adapt.gbrt",
    "AdaptLin": "methods.adapt.linear",
    "AdaptLstsq": "methods.adapt.least_squares",
    "BudgetPrunedForest": "methods.prune.pruned_forest",
    "ConfidenceCascade": "methods.baselines.cascade",
    "DagClassifier": "methods.graph.dag",
    "GreedyMiser": "methods.adapt.greedy_miser",
    "L1Baseline": "methods.adapt.l1_baseline",
    "LpTree": "methods.graph.lp_tree",
    "PolicyClassifier": "estimator",
    "StagedAdaptGBRT": "methods.adapt.stages",
    "StaticSubset": "methods.baselines.static",
}  # the estimators, imported when asked for
__all__ = list(HOMES)

# OpenMP's idle threads spin by default; where other processes want the cores, scikit-learn's boosted trees then take
# 20 times as long. It is read when scikit-learn is imported, so it is said before; a user's own setting wins.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{HOMES[name]}", __name__), name)
