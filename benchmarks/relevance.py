# SPDX-License-Identifier: Apache-2.0
"""MQ2008 of LETOR 4.0 as problems of ranking: five folds of whole queries, features that cost what a file says.

The skewed data are those of Xu et al. (2014), 6.3: documents of relevance 2 against the others, of which each stands
there ten times: it weighs ten times in learning, and takes ten places of a ranking. Their values have a deviation of 1,
as those of tasks do; the NDCG of two values is the same in any unit. Relevances stay as they are, as in tasks.

``HARDCASE_DATA`` names the folder of ``mq2008.npz``. Three subsets train, one validates, one tests.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.digits38 import data
from hardcase_edge.more.batch.quality import Quality
from hardcase_edge.more.batch.ranking import group_average_precision, group_precision
from hardcase_train.data.from_arrays import make_problem
from hardcase_train.data.problem import Problem, Rows, value_unit
from hardcase_train.settings.effort import Effort

COSTS = Path(__file__).resolve().parent / "mq2008_costs.toml"
N_FOLDS = 5
NDCG = Quality("ndcg", "NDCG@5", at=5)
AT = 5  # places of a ranking that count
TIMES = 10.0  # that an irrelevant document stands in the skewed data
FORWARD_COST = 2000.0  # beside the features; f0 knows nothing, so that policies decide alone


def feature_costs() -> dict[int, float]:
    """Cost of each feature that has one, by number from 1."""
    table = tomllib.loads(COSTS.read_text())["costs"]
    return {feature: float(cost) for cost, features in table.items() for feature in features}


def problem_of(fold: int, effort: Effort | str) -> Problem:
    """The problem of one fold, without the features that are the same in all rows."""
    return _problem(fold, effort, is_skewed=False)


def skewed_of(fold: int, effort: Effort | str) -> Problem:
    """The skewed data of one fold, as values of two sizes."""
    return _problem(fold, effort, is_skewed=True)


def precision(y: np.ndarray, score: np.ndarray, group: np.ndarray, copies: np.ndarray | None = None) -> float:
    """Precision@5, the mean over groups with a relevant row; rows of equal score share their places.

    y : (n,) 1 for relevant rows, else 0
    copies : (n,) places that a row takes, whole numbers, 1 unless told
    """
    return float(np.nanmean(group_precision(*_placed(y, score, group, copies), AT)))


def average_precision(y: np.ndarray, score: np.ndarray, group: np.ndarray, copies: np.ndarray | None = None) -> float:
    """Average precision of the first 5 places, the mean over groups with a relevant row; arguments as above."""
    return float(np.nanmean(group_average_precision(*_placed(y, score, group, copies), AT)))


def _placed(
    y: np.ndarray, score: np.ndarray, group: np.ndarray, copies: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows as often as they take places, and groups numbered from 0."""
    if copies is not None:
        y, score, group = (np.repeat(row, copies.astype(np.int64)) for row in (y, score, group))
    return y, score, np.unique(group, return_inverse=True)[1].ravel()


def _problem(fold: int, effort: Effort | str, is_skewed: bool) -> Problem:
    with np.load(data() / "mq2008.npz") as arrays:
        X, y, query, subset = (arrays[k] for k in ("X", "y", "qid", "subset"))
    usable = np.flatnonzero(np.ptp(X, axis=0) > 0)
    prices = feature_costs()
    costs = [prices[f + 1] for f in usable]
    X, y = X[:, usable].astype(np.float64), (y == y.max() if is_skewed else y).astype(np.float64)
    weight = np.where(y > 0, 1.0, TIMES) if is_skewed else np.ones(len(y))
    unit = value_unit(y, weight)[1] if is_skewed else 1.0
    y = y / unit
    names = np.unique(subset)
    part = np.array([0, 0, 0, 1, 2])[(np.searchsorted(names, subset) - fold) % N_FOLDS]
    made = make_problem(X, y, weight, 0, None, costs, FORWARD_COST, fold, "small", effort, query)
    f0 = np.full((len(y), 1), y[part == 0].mean())

    def rows(k: int) -> Rows:
        own = np.flatnonzero(part == k)
        return Rows(X[own], y[own], f0[own], own, weight[own], query[own].astype(np.int64))

    parts = {"train": rows(0), "valid": rows(1), "test": rows(2)}
    return replace(made, **parts, value_unit=(0.0, unit)).with_quality(NDCG)
