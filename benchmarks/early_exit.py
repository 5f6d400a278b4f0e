# SPDX-License-Identifier: Apache-2.0
"""Early exit by proximity (Cambazoglu et al. 2010), the peer of Xu et al. (2014) that judges a whole query at once.

Stage-wise regression scores the documents of a query tree by tree. After tree i of T, a document leaves if its score is
at least (T - i) / (T - 1) * s below the fifth best of its query (the paper's garbled formula, with its 300 as T); what
left early is ranked by the score that it had. Whether a document leaves depends on the others of its query, so this is
not a program. Costs are the meter's: a sensor once for each document that reaches a tree that reads it, and 1 a tree.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks import relevance
from hardcase_edge.more.batch.ranking import group_ndcg
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.policy.kinds import answer_loss
from hardcase_train.trees.binning import make_bins
from hardcase_train.trees.boosting import Ensemble, ensemble_scores
from hardcase_train.trees.size import size_of
from hardcase_train.trees.subset_classifier import fit_classifier

STRENGTHS = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0)  # s of the paper, 0.2 to 0.5 there
N_TREES = (5, 9, 18, 35, 70)
PLACE = 5  # of the document that the others are compared with


def figures(problem: Problem, is_skewed: bool) -> list[list[float]]:
    """Cost and quality on validation rows, then on test rows, for numbers of trees and strengths."""
    settings, made = size_of(problem).model, []
    bins = make_bins(problem.train.X, problem.dtypes, settings.max_bins)
    every = np.arange(len(problem.train.y))
    codes = bins.transform(problem.train.X)
    for n_trees in N_TREES:
        model = fit_classifier(
            problem, problem.offered, bins, codes, settings, n_trees, every, answer_loss(problem, every)
        )
        for strength in STRENGTHS:
            row: list[float] = []
            for rows in (problem.valid, problem.test):
                cost, score = walk(problem, model, rows, strength)
                assert rows.group is not None
                group = np.unique(rows.group, return_inverse=True)[1]
                quality = (
                    relevance.precision(rows.y, score, group, rows.weight) if is_skewed else _ndcg(rows.y, score, group)
                )
                row += [float(np.average(cost, weights=rows.weight)), quality]
            made.append(row)
    return sorted(made)


def walk(problem: Problem, model: Ensemble, rows: Rows, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Cost and score of each row, (n,) each."""
    assert rows.group is not None
    group = np.unique(rows.group, return_inverse=True)[1]
    codes, costs, owner = model.bins.transform(rows.X[:, model.features]), problem.sensor_costs(), problem.sensor_of
    stays, bought = np.ones(len(group), dtype=bool), np.zeros((len(costs), len(group)), dtype=bool)
    score, cost, n_trees = np.full(len(group), float(model.base[0])), np.zeros(len(group)), len(model.trees)
    for i, tree in enumerate(model.trees):
        cost += stays
        for s in np.unique(owner[model.features[tree.features]]):
            cost += costs[s] * (stays & ~bought[s])
            bought[s] |= stays
        one = replace(model, base=np.zeros(1), trees=[tree], outputs=[(0, 1)])
        score += np.where(stays, ensemble_scores(one, codes)[:, 0], 0.0)
        if n_trees > 1:
            least = _fifth_best(np.where(stays, score, -np.inf), group)[group]
            stays &= ~(score <= least - (n_trees - 1 - i) / (n_trees - 1) * strength)
    return cost, score


def _fifth_best(score: np.ndarray, group: np.ndarray) -> np.ndarray:
    """(n_groups,) the fifth best score of each group; of fewer documents, minus infinity."""
    order = np.lexsort((-score, group))
    starts = np.searchsorted(group[order], np.arange(group.max() + 1))
    ends = np.append(starts[1:], len(group))
    at = starts + PLACE - 1
    return np.where(at < ends, score[order][np.minimum(at, len(group) - 1)], -np.inf)


def _ndcg(y: np.ndarray, score: np.ndarray, group: np.ndarray) -> float:
    return float(np.nanmean(group_ndcg(y, score, group, PLACE)))
