# SPDX-License-Identifier: Apache-2.0
"""Models of values for one sensor set, with a second output: the uncertainty of the first, by which rows are cut.

The second output is fitted to the logarithm of squared errors of copies that have not seen the row, as locally weighted
conformal prediction does it (Lei et al., *Distribution-Free Predictive Inference for Regression*, 2018, section 5.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.problem import N_FOLDS
from ..policy.selection import Judge, Trained
from .boosting import Ensemble, ensemble_scores
from .subset_classifier import Learner

__all__ = ["fit_value_model", "with_uncertainty"]


def fit_value_model(learner: Learner, judge: Judge, sensors: Sequence[int], plain: Trained) -> Trained:
    """The model of a sensor set, and its two scores of the judged rows, each from copies that have not seen the row.

    ``plain``: the same model without its uncertainty.
    """
    train, every = learner.problem.train, np.arange(len(judge.fold))
    folds = [(np.flatnonzero(judge.fold == k), np.flatnonzero(judge.fold != k)) for k in range(N_FOLDS)]
    assert isinstance(plain.part, Ensemble)
    unseen = np.empty((len(every), 2))
    if judge.is_crossed:
        unseen[:, 0] = plain.scores[: len(every), 0]
    else:
        for rows, others in folds:
            unseen[rows, 0] = _score(learner, learner.fit(sensors, others), rows)
    square = np.square(unseen[:, 0] - train.y)
    if judge.is_crossed:
        for rows, others in folds:
            unseen[rows, 1] = _score(learner, learner.fit_uncertainty(sensors, others, square[others]), rows)
    whole = with_uncertainty(plain.part, learner.fit_uncertainty(sensors, every, square))
    valid = ensemble_scores(whole, learner.valid[whole.features])
    return judge.trained(whole, valid, lambda rows, _: unseen[rows])


def with_uncertainty(value: Ensemble, uncertainty: Ensemble) -> Ensemble:
    """Two ensembles of one output over the same bins as one of two outputs."""
    outputs = [*((0, 1) for _ in value.trees), *((1, 1) for _ in uncertainty.trees)]
    base = np.concatenate([value.base, uncertainty.base])
    return Ensemble(value.bins, value.features, base, [*value.trees, *uncertainty.trees], outputs)


def _score(learner: Learner, copy: Ensemble, rows: np.ndarray) -> np.ndarray:
    return ensemble_scores(copy, learner.codes[copy.features][:, rows])[:, 0]
