# SPDX-License-Identifier: Apache-2.0
"""Models that read one sensor set: boosted trees, a forest of extremely randomised trees, or an additive model.

On few rows the forest is often more accurate than boosted trees, and its margin is more informative, but it is about
ten times as large. It is not offered for many rows, where it would be even larger, nor for small models. An additive
model is a fraction of boosted trees' size, and misses what several features say together only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..data.error_costs import soft_rows
from ..data.problem import Problem
from ..policy.kinds import answer_loss
from ..policy.losses import AnswerLoss, SquaredLoss
from .additive import STUMPS, tables
from .binning import Bins, make_bins
from .boosting import Ensemble, TreeSettings, boost
from .forest import ForestSettings, fit_forest, forest_ensemble
from .size import Size, n_offered, size_of

__all__ = [
    "EBM",
    "FOREST",
    "LEAST_SQUARE",
    "TREES",
    "Learner",
    "classifier_kinds",
    "fit_classifier",
    "fit_drawn",
    "is_trees",
    "make_learner",
]

TREES, FOREST, EBM = "trees", "forest", "ebm"  # kinds
LEAST_SQUARE = 1e-4  # added to squared errors, in standard units, before their logarithm is taken


def classifier_kinds(problem: Problem) -> tuple[str, ...]:
    """The kinds of classifier that the problem's size offers; methods on sensor subsets try each of them.

    Where limits of bytes or time bind there are smaller ones, too: "trees/2", "trees/4" and so on, and with the size
    "auto" additive models.
    """
    size, n_sizes = size_of(problem), n_offered(problem)
    if size.is_additive:
        return (EBM,)
    kinds = (TREES,) if size.forest is None else (FOREST, TREES)
    offered = tuple(f"{kind}/{2**k}" if k else kind for k in range(n_sizes) for kind in kinds)
    return (*offered, EBM) if n_sizes > 1 and problem.size_name == "auto" else offered


def is_trees(kind: str) -> bool:
    """Whether a kind of classifier is one of ``classifier_kinds``."""
    return kind.partition("/")[0] in (TREES, FOREST, EBM)


@dataclass(frozen=True)
class Learner:
    """Fits classifiers of one kind to a problem's binned rows.

    codes, valid : (n_features, n) uint8, bins of training and validation rows
    size : of boosted trees
    forest : settings of forests; None for boosted trees
    is_additive : whether the boosted trees are stumps, which become one table of each feature
    """

    problem: Problem
    bins: Bins
    codes: np.ndarray
    valid: np.ndarray
    size: Size
    forest: ForestSettings | None
    is_additive: bool = False

    def fit(self, sensors: Sequence[int], rows: np.ndarray) -> Ensemble:
        """A classifier that reads only these sensors, fitted to the training rows with these numbers."""
        p = self.problem
        if self.forest is not None:
            return fit_drawn(p, sensors, self.bins, self.codes, self.forest, rows)
        return self._boosted(sensors, rows, 1, None)

    def fit_uncertainty(self, sensors: Sequence[int], rows: np.ndarray, square: np.ndarray) -> Ensemble:
        """Boosted trees for the logarithm of squared errors ``square`` (n_rows,) of these training rows."""
        log_square = np.log(square + LEAST_SQUARE)
        spread = max(float(log_square.std()), 1e-9)
        loss = SquaredLoss(log_square / spread, self.problem.train.weight[rows])
        return self._boosted(sensors, rows, 2, loss)

    def _boosted(self, sensors: Sequence[int], rows: np.ndarray, part: int, loss: AnswerLoss | None) -> Ensemble:
        """Boosted trees or an additive model, of the size's trees or stumps divided by ``part``."""
        size = self.size
        settings, n = (STUMPS, size.stumps) if self.is_additive else (size.model, size.n_trees)
        n = max(1, n // part)
        made = fit_classifier(self.problem, sensors, self.bins, self.codes, settings, n, rows, loss)
        return tables(made) if self.is_additive else made


def make_learner(problem: Problem, kind: str) -> Learner:
    """The learner of this kind, at the problem's size.

    Raises
    ------
    ValueError
        The kind is a forest and the size offers none.
    """
    kind, _, part = kind.partition("/")
    size, X = size_of(problem, int(part or 1).bit_length() - 1), problem.train.X
    if kind == FOREST and size.forest is None:
        raise ValueError(f"size {problem.size_name!r} has no forest for {len(X)} rows; use the kind {TREES!r}")
    bins = make_bins(X, problem.dtypes, size.forest_bins if kind == FOREST else size.model.max_bins)
    forest = size.forest if kind == FOREST else None
    return Learner(problem, bins, bins.transform(X), bins.transform(problem.valid.X), size, forest, kind == EBM)


def fit_classifier(
    problem: Problem,
    sensors: Sequence[int],
    bins: Bins,
    codes: np.ndarray,
    settings: TreeSettings,
    n_trees: int,
    rows: np.ndarray,
    loss: AnswerLoss | None = None,
) -> Ensemble:
    """A boosted model that reads only these sensors, fitted to the training rows with these numbers.

    ``loss``: of these rows, in place of that of the problem's answers.
    """
    features, own_bins = _features_of(problem, sensors, bins)
    loss = answer_loss(problem, rows) if loss is None else loss
    base = loss.base()
    ensemble = Ensemble(own_bins, features, base)
    if len(features):
        scores = np.tile(base, (len(rows), 1))
        part = np.ascontiguousarray(codes[features][:, rows])
        owner = problem.sensor_of[features]
        boost(ensemble, loss, part, owner, scores, np.zeros(len(problem.sensors)), settings, n_trees)
    return ensemble


def fit_drawn(
    problem: Problem, sensors: Sequence[int], bins: Bins, codes: np.ndarray, settings: ForestSettings, rows: np.ndarray
) -> Ensemble:
    """A forest that reads only these sensors, fitted to these training rows; without a sensor it gives class shares."""
    features, own_bins = _features_of(problem, sensors, bins)
    number, y, weight = soft_rows(problem.train.y[rows], problem.train.weight[rows], problem.targets)
    rows, n_classes = rows[number], problem.n_classes
    if not len(features) and not n_classes:
        return Ensemble(own_bins, features, np.array([np.average(y, weights=weight)]))
    if not len(features):
        share = np.bincount(y, weight, n_classes) / weight.sum()
        return Ensemble(own_bins, features, share if n_classes > 2 else share[1:] - share[:1])
    trees = fit_forest(codes[np.ix_(features, rows)], y, n_classes, weight, settings, problem.seed)
    return replace(forest_ensemble(own_bins, trees, [t.is_split for t in trees]), features=features)


def _features_of(problem: Problem, sensors: Sequence[int], bins: Bins) -> tuple[np.ndarray, Bins]:
    """The sensors' features and their bins."""
    features = np.array([f for s in sensors for f in problem.sensors[s].features], dtype=np.int64)
    return features, Bins(tuple(bins.cuts[f] for f in features))
