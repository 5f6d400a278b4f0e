# SPDX-License-Identifier: Apache-2.0
"""Every estimator with few rounds and little effort, a quick f0, and data for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from hardcase_train.methods import ESTIMATORS
from hardcase_train.methods.adapt.stages import GreedyMiser
from hardcase_train.methods.graph.lp_surrogate import MAX_SENSORS
from hardcase_train.methods.graph.lp_tree import LpTree
from hardcase_train.policy_estimator import PolicyEstimator
from hardcase_train.regressor import PolicyRegressor
from tests.helpers.train.problems import BRIEF

ROUNDS: dict[str, dict[str, Any]] = {
    "CostSensitiveTree": {"depth": 1, "n_steps": 1},
    "SingleCostSensitive": {"n_steps": 1},
    "GreedyTree": {"depth": 1},
    "AndOr": {"n_stages": 2},
    "StageWiseRegression": {"n_trees": 4},
    "ResampledAdaBoost": {"n_drawn": 16},
    "AdaptGBRT": {"n_rounds": 1, "trees_per_round": 5},
    "AdaptLin": {"n_rounds": 2, "n_steps": 10},
    "AdaptLstsq": {"n_rounds": 2, "n_steps": 10},
    "DagClassifier": {"degree": 1, "n_subsets": 2},
    "GreedyMiser": {"n_trees": 8},
}
NAMES = sorted(ESTIMATORS)
PEERS = {  # beside a method of the same paper, over the same classes; without an order the last two buy always
    "AndOr", "Greedy", "GreedyAccuracy", "GreedyCost", "GreedyTree", "PolyDomAnytime", "ResampledAdaBoost",
    "SingleCostSensitive", "StageWiseRegression", "DutyCycle", "Held",
}  # fmt: skip


class Grouped(LpTree):
    """Of many columns, all but the first two are one sensor: it takes four at most, and three are learned sooner."""

    def _learn(self, X: np.ndarray, *rows: np.ndarray | None) -> None:
        said = self.sensors
        if said is None and X.shape[1] > MAX_SENSORS:
            self.sensors = [[0], [1], list(range(2, X.shape[1]))]
        try:
            super()._learn(X, *rows)
        finally:
            self.sensors = said


def few(name: str, **params: Any) -> PolicyEstimator:
    """The estimator of this name, quick to fit; ``params`` win, ``effort`` among them."""
    if name == "PolicyRegressor":
        given = {
            "hpc": DecisionTreeRegressor(max_depth=5, random_state=0),
            "policy": GreedyMiser(gamma=0.05, n_trees=8),
            **params,
        }
        return PolicyRegressor(**{"effort": BRIEF, "random_state": 0, **given})
    hpc = DecisionTreeClassifier(max_depth=5, random_state=0)
    made = Grouped if name == "LpTree" else ESTIMATORS[name]
    return made(**{"hpc": hpc, "effort": BRIEF, "random_state": 0, **ROUNDS.get(name, {}), **params})


def table(n: int = 300, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of five columns, the later ones telling more of the class; the third has gaps."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, 5)) + y[:, None] * (0.0, 0.5, 1.0, 1.5, 2.5)
    X[rng.random(n) < 0.1, 2] = np.nan
    return X, y
