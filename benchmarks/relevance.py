# SPDX-License-Identifier: Apache-2.0
"""MQ2008 of LETOR 4.0 as problems of ranking: five folds of whole queries, features that cost what a file says.

``HARDCASE_DATA`` names the folder of ``mq2008.npz``. Three subsets train, one validates, one tests.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np

from hardcase_edge.batch.quality import Quality
from hardcase_train.data.effort import Effort
from hardcase_train.data.from_arrays import make_problem
from hardcase_train.data.problem import Problem, Rows

from .digits38 import data

__all__ = ["COSTS", "N_FOLDS", "feature_costs", "problem_of"]

COSTS = Path(__file__).resolve().parent / "mq2008_costs.toml"
N_FOLDS = 5
NDCG = Quality("ndcg", "NDCG@5", at=5)
FORWARD_COST = 2000.0  # beside the features; f0 knows nothing, so that policies decide alone


def feature_costs() -> dict[int, float]:
    """Cost of each feature that has one, by number from 1."""
    table = tomllib.loads(COSTS.read_text())["costs"]
    return {feature: float(cost) for cost, features in table.items() for feature in features}


def problem_of(fold: int, effort: Effort | str) -> Problem:
    """The problem of one fold, without the features that are the same in all rows."""
    with np.load(data() / "mq2008.npz") as arrays:
        X, y, query, subset = (arrays[k] for k in ("X", "y", "qid", "subset"))
    usable = np.flatnonzero(np.ptp(X, axis=0) > 0)
    prices = feature_costs()
    costs = [prices[f + 1] for f in usable]
    X, y = X[:, usable].astype(np.float64), y.astype(np.float64)
    names = np.unique(subset)
    part = np.array([0, 0, 0, 1, 2])[(np.searchsorted(names, subset) - fold) % N_FOLDS]
    made = make_problem(X, y, np.ones(len(y)), 0, None, costs, FORWARD_COST, fold, "small", effort, query)
    mean = float(y[part == 0].mean())

    def rows(k: int) -> Rows:
        own = np.flatnonzero(part == k)
        return Rows(X[own], y[own], np.full((len(own), 1), mean), own, np.ones(len(own)), query[own].astype(np.int64))

    parts = {"train": rows(0), "valid": rows(1), "test": rows(2)}
    return replace(made, **parts, value_unit=(0.0, 1.0)).with_quality(NDCG)
