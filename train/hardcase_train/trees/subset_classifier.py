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

from hardcase_edge.program.definition import Column, Stack

from ..data.error_costs import soft_rows
from ..data.problem import N_FOLDS, Problem
from ..policy.kinds import answer_loss
from ..policy.losses import AnswerLoss, SquaredLoss
from ..policy.selection import Judge, Trained
from .binning import MISSING_BIN, Bins, make_bins
from .boosting import NO_ROWS, Ensemble, TreeSettings, boost, ensemble_scores
from .forest import ForestSettings, fit_forest, forest_ensemble
from .grower import GrownTree
from .size import Size, n_offered, size_of

TREES, FOREST, EBM = "trees", "forest", "ebm"  # kinds
LEAST_SQUARE = 1e-4  # added to squared errors, in standard units, before their logarithm is taken
STUMPS = TreeSettings(learning_rate=0.3, max_leaves=2, max_depth=1, min_rows=20, l2=1.0)


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


# A linear model over the trees of an ensemble that is a part of its own; several may stand on one ensemble.


@dataclass(frozen=True, eq=False)
class Stacked:
    """``score = bias + sum_j weights[j] * (the value of tree members[j])``; it compiles to a stack.

    below : the ensemble, which must be a part of the same policy; each of its trees has one output
    members : (n_members,) trees of the ensemble, by number
    weights : (n_members, n_outputs)
    bias : (n_outputs,)
    """

    below: Ensemble
    members: np.ndarray
    weights: np.ndarray
    bias: np.ndarray

    def columns(self, dtypes: Sequence[str]) -> list[Column]:
        """None of its own: its ensemble has them."""
        return []

    def scorer(self, dtypes: Sequence[str], columns: Sequence[Column]) -> Stack:
        """The draft scorer, as if its ensemble were scorer 0; ``policy.compile`` puts the number there."""
        rows = tuple(tuple(row) for row in self.weights.T.tolist())
        return Stack(0, tuple(self.members.tolist()), rows, tuple(self.bias.tolist()))


def cross_fitted(learner: Learner, sensors: Sequence[int], fold: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """(n_train, n_outputs) scores from copies that have not seen the row, and each copy's of validation rows.

    ``fold``: (n_train,) number of the copy that is not trained on the row.
    """
    unseen, of_valid = np.empty((len(fold), learner.problem.n_outputs)), []
    for k in range(N_FOLDS):
        copy = learner.fit(sensors, np.flatnonzero(fold != k))
        unseen[fold == k] = ensemble_scores(copy, learner.codes[copy.features][:, fold == k])
        of_valid.append(ensemble_scores(copy, learner.valid[copy.features]))
    return unseen, of_valid


# Models of values for one sensor set, with a second output: the uncertainty of the first, by which rows are cut.
#
# The second output is fitted to the logarithm of squared errors of copies that have not seen the row, as locally
# weighted conformal prediction does it (Lei et al., *Distribution-Free Predictive Inference for Regression*, 2018,
# section 5.2).


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


# Additive models: one table of scores per feature, learned as boosted stumps and stored as one tree per feature.
#
# An explainable boosting machine without pairs (Lou, Caruana and Gehrke 2012). Each table reads one sensor, so a
# model of several sensors is the sum of what each of them says, and a device walks one small tree for each feature.


def tables(ensemble: Ensemble) -> Ensemble:
    """The ensemble of stumps with all stumps of a feature as one tree, which gives the same sums."""
    by_feature: dict[int, list[int]] = {}
    for t, tree in enumerate(ensemble.trees):
        by_feature.setdefault(int(tree.features[0]), []).append(t)
    width, nothing = len(ensemble.base), np.zeros(len(ensemble.base))
    trees = []
    for feature, numbers in sorted(by_feature.items()):
        codes = np.zeros((len(ensemble.features), int(ensemble.bins.sizes[feature]) + 1), dtype=np.uint8)
        codes[feature] = [*range(codes.shape[1] - 1), MISSING_BIN]
        own = [ensemble.trees[t] for t in numbers]
        part = Ensemble(ensemble.bins, ensemble.features, nothing, own, [(0, width)] * len(own))
        trees.append(_table(feature, ensemble_scores(part, codes)))
    return Ensemble(ensemble.bins, ensemble.features, ensemble.base, trees, [(0, width)] * len(trees))


def _table(feature: int, scores: np.ndarray) -> GrownTree:
    """The tree of a feature with these scores (n_bins + 1, n_outputs), of its bins and last of a missing reading."""
    bins, missing = scores[:-1], scores[-1]
    first = np.flatnonzero(np.append(True, (bins[1:] != bins[:-1]).any(axis=1)))  # of each run of equal bins
    cells = bins[first]
    alike = np.flatnonzero((cells == missing).all(axis=1))
    leaves = cells if len(alike) else np.vstack([cells, missing])
    home = int(alike[0]) if len(alike) else 0
    nodes: list[tuple[int, bool]] = []  # a bin, and whether a missing reading goes left
    children: list[list[int]] = []

    def add(cut: int, missing_left: bool) -> int:
        nodes.append((cut, missing_left))
        children.append([0, 0])
        return len(nodes) - 1

    def search(low: int, high: int) -> int:
        """The node that finds one of the cells low to high, or -1-k for cell k alone."""
        if low == high:
            return -1 - low
        middle = (low + high) // 2
        node = add(int(first[middle + 1]) - 1, home <= middle)
        children[node] = [search(low, middle), search(middle + 1, high)]
        return node

    if not len(alike):  # a split after the last bin: all readings go left, a missing one goes right
        root = add(len(bins) - 1, False)
        children[root] = [search(0, len(cells) - 1), -len(leaves)]
    else:
        search(0, len(cells) - 1)
    cuts, missing_left = zip(*nodes, strict=True) if nodes else ((), ())
    return GrownTree(
        np.full(len(nodes), feature, dtype=np.int32),
        np.array(cuts, dtype=np.int32),
        np.array(missing_left, dtype=bool),
        np.array(children, dtype=np.int32).reshape(-1, 2),
        leaves,
        NO_ROWS,
    )
