# SPDX-License-Identifier: Apache-2.0
"""Boosted models of random states: whether the held label is wrong, and what it says of a purchase's answer.

Both read what is watched in every window, and the memory. The second one's trees are added to those of the model over
all sensors (docs/math.md (139)): one scorer then answers a purchase by its readings and by the label before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from hardcase_edge.more.batch.streams import moved
from hardcase_edge.program.definition import Program
from hardcase_edge.stream.layout import Layout

from ...data.problem import N_FOLDS, Rows, widened
from ...policy.kinds import answer_loss
from ...policy.losses import AnswerLoss, ClassLoss
from ...policy.selection import Judge, Trained
from ...trees.binning import MISSING_BIN, Bins, make_bins
from ...trees.boosting import Ensemble, TreeSettings, boost, ensemble_scores
from ...trees.grower import GrownTree

DOUBT = TreeSettings(learning_rate=0.1, max_leaves=16, max_depth=5, min_rows=100, l2=1.0, max_bins=64)
CORRECTION = TreeSettings(learning_rate=0.2, max_leaves=16, max_depth=5, min_rows=200, l2=1.0, max_bins=64)
N_DOUBT, N_CORRECTION = 80, 20  # trees
FLATTEST, SHARPEST = -7.0, 5.0  # logarithm of what scores are multiplied by
LONGEST = 200  # windows that a label is held at most
DRAWS = 12  # states of each row


@dataclass(frozen=True)
class StateModels:
    """What the models of states learn from.

    watched : features that are read in every window
    """

    judge: Judge
    bare: Program
    memory: Layout
    watched: Sequence[int]
    states: States

    @property
    def are_enough(self) -> bool:
        """Whether there are states to learn from, without any fold, too."""
        return all(bool(self._others(fold).any()) for fold in [*range(N_FOLDS), None])

    def doubt(self, gain: np.ndarray, fold: int | None) -> tuple[Ensemble, np.ndarray]:
        """The model of ``gain``, (n_states,) of 0 and 1, without a fold's rows, and its scores of that fold's states.

        ``fold`` None: of all rows.
        """
        others, weight = self._others(fold), self.judge.problem.train.weight[self.states.row]
        loss = ClassLoss(gain[others], 2, weight[others])
        start = np.tile(loss.base(), (int(others.sum()), 1))
        ensemble, codes = self._boosted(loss, others, loss.base(), start, DOUBT, N_DOUBT)
        return ensemble, ensemble_scores(ensemble, codes[:, ~others])[:, 0]

    def corrections(self, whole: Trained) -> list[Ensemble]:
        """Trees to add to the model over all sensors, without each fold's rows, last of all rows.

        They add 0 where no label is held.
        """
        n = len(self.judge.problem.train.y)
        scale = sharpness(answer_loss(self.judge.problem), whole.scores[:n])
        return [self._correction(whole.scores[self.states.row], scale, k) for k in [*range(N_FOLDS), None]]

    def _correction(self, scores: np.ndarray, scale: float, fold: int | None) -> Ensemble:
        others = self._others(fold)
        loss, start = answer_loss(self.judge.problem, self.states.row[others]), scale * scores[others]
        fitted, _ = self._boosted(loss, others, np.zeros(start.shape[1]), start, CORRECTION, N_CORRECTION)
        since = len(self.watched) + len(self.memory.held)
        return replace(fitted, trees=[_if_read(tree, since, scale) for tree in fitted.trees])

    def _others(self, fold: int | None) -> np.ndarray:
        if fold is None:
            return np.ones(len(self.states.row), dtype=bool)
        return np.asarray(self.judge.fold[self.states.row] != fold)

    def _boosted(
        self, loss: AnswerLoss, others: np.ndarray, base: np.ndarray, start: np.ndarray, settings: TreeSettings, n: int
    ) -> tuple[Ensemble, np.ndarray]:
        """A model of the states ``others`` that begins at the scores ``start``, and the bins of all states."""
        changes = [f for f, _ in self.memory.change]
        label = [*self.memory.held, self.memory.since[0][0]]  # one count is enough
        features = np.array([*self.watched, *label, *changes], dtype=np.int64)
        X = self.states.X[:, features]
        bins = make_bins(X[others], tuple(self.bare.features[f].dtype for f in features), settings.max_bins)
        codes = bins.transform(X)
        ensemble = Ensemble(bins, features, base)
        part = np.ascontiguousarray(codes[:, others])
        n_trees = max(1, round(n * self.judge.problem.effort.tree_share))
        boost(ensemble, loss, part, np.zeros(len(features), np.int64), start, np.zeros(1), settings, n_trees)
        return ensemble, codes


def sharpness(loss: AnswerLoss, scores: np.ndarray) -> float:
    """What class scores (n, n_outputs) are multiplied by to be logits: the factor of the least loss."""

    def mean_loss(log_scale: float) -> float:
        return float(np.average(loss.row_loss(np.exp(log_scale) * scores), weights=loss.weight))

    return float(np.exp(minimize_scalar(mean_loss, bounds=(FLATTEST, SHARPEST), method="bounded").x))


def together(model: Ensemble, correction: Ensemble) -> Ensemble:
    """The trees of both as one ensemble."""
    n = len(model.features)
    trees = [replace(tree, features=tree.features + n) for tree in correction.trees]
    return Ensemble(
        Bins((*model.bins.cuts, *correction.bins.cuts)),
        np.concatenate([model.features, correction.features]),
        model.base + correction.base,
        [*model.trees, *trees],
        [*model.outputs, *correction.outputs],
    )


def _if_read(tree: GrownTree, feature: int, scale: float) -> GrownTree:
    """The tree with its leaves divided by ``scale``, behind a split that adds 0 where the feature is missing."""
    children = np.where(tree.children < 0, tree.children, tree.children + 1)
    n_leaves, width = tree.leaves.shape
    return replace(
        tree,
        features=np.append(feature, tree.features).astype(np.int32),
        bins=np.append(MISSING_BIN - 1, tree.bins).astype(np.int32),  # all readings
        missing_left=np.append(False, tree.missing_left),
        children=np.vstack([[[1, -1 - n_leaves]], children]).astype(np.int32),
        leaves=np.vstack([tree.leaves / scale, np.zeros((1, width))]),
    )


# Random states of a memory: training rows as they look if the label is held since a random window before them.
#
# A policy that is trained on the states of one policy cannot handle others. So gaps are drawn at random, short ones as
# often as long ones by their logarithm (random feature states of Bolukbasi et al., appendix B, along time).


@dataclass(frozen=True)
class States:
    """Rows with the memory's columns filled.

    X : (n, n_features of the program)
    row : (n,) number of the training row
    held : (n,) the label that is held, a class index
    """

    X: np.ndarray
    row: np.ndarray
    held: np.ndarray


def random_states(program: Program, memory: Layout, rows: Rows, labels: np.ndarray, seed: int) -> States:
    """Up to ``DRAWS`` states of each row, none of a sequence's first.

    Parameters
    ----------
    labels : (n,) what a purchase at each row would have answered, by a model that has not seen the row
    """
    assert rows.sequence is not None
    order = np.argsort(rows.sequence, kind="stable")
    sequence = rows.sequence[order]
    place = np.arange(len(order)) - np.searchsorted(sequence, sequence)  # within the row's sequence
    now = np.repeat(np.flatnonzero(place > 0), DRAWS)
    longest = np.minimum(place[now], LONGEST)
    drawn = np.random.default_rng(seed).random(len(now))
    gap = np.minimum(np.floor((longest + 1.0) ** drawn).astype(np.int64), longest)
    then = now - gap
    X = widened(rows.X[order[now]], program)
    held = labels[order[then]]
    for f in memory.held:
        X[:, f] = held
    for f, _ in memory.since:
        X[:, f] = gap
    for f, of in memory.change:
        X[:, f] = moved(rows.X[order[now], of], rows.X[order[then], of], program.features[f].dtype)
    return States(X, order[now], held)
