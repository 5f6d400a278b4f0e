# SPDX-License-Identifier: Apache-2.0
"""The policy of a state: a cut on its classifier's margin, then a filter tree over all its actions.

The filter tree is the paper's; its matches are learned by polynomials or by boosted trees. The cut comes before it:
rows with a margin above the cut stop, which costs less than what the tree would choose for them, and the tree is
trained again on the other rows. (A polynomial of the readings approximates the margin of a bank of trees poorly.) A
tree that is not significantly better than one that sends all rows the same way is replaced by that one. docs/math.md
(68) and (69).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hardcase_edge.more.batch.choices import Bracket, play

from ...linear.logistic import logistic
from ...linear.terms import PolynomialPart
from ...policy.confidences import NEVER
from ...policy.kinds import learned
from ...policy.losses import ClassLoss
from ...policy.selection import Trained
from ...stages.thresholds import best_bound, best_way
from ...trees.binning import Bins
from ...trees.boosting import Ensemble, TreeSettings, boost, ensemble_scores
from .filter_tree import bracket_of, learn_matches
from .state_rows import DagRows

RIDGE = 10.0  # divided by the number of rows
TOLERANCE = 1e-3  # of the matches' mean loss; only the signs of their scores matter
MATCH_TREES = TreeSettings(learning_rate=0.2, max_leaves=8, max_depth=4, min_rows=20, l2=1.0, max_bins=64)
N_MATCH_TREES = 25


@dataclass(frozen=True)
class StatePolicy:
    """A cut and a filter tree; actions are numbered as in ``reduce.Learn``.

    unseen : (n_train, n_matches) out-of-fold scores of the matches; above 0 the second of the pair wins
    cut : rows stop if the margin of the state's classifier is at least this
    """

    bracket: Bracket
    n_actions: int
    trained: Trained
    unseen: np.ndarray
    cut: float = NEVER

    @property
    def matches(self) -> PolynomialPart | Ensemble:
        """The part whose outputs are the matches."""
        part = self.trained.part
        assert isinstance(part, PolynomialPart | Ensemble)
        return part

    def choose(self, rows: np.ndarray, margin: np.ndarray, has: np.ndarray) -> np.ndarray:
        """The number of the action for each of these training rows, (n_rows,).

        Parameters
        ----------
        margin : (n_rows,) margins of the state's classifier
        has : (n_actions,) bool, the actions that are available
        """
        choice = play(self.bracket, self.unseen[rows], np.repeat(has[:, None], len(rows), axis=1))
        return np.where(margin >= self.cut, 0, choice)


def learn_state(
    rows: DagRows, s: int, costs: np.ndarray, margin: np.ndarray, weight: np.ndarray, learner: str, is_plain: bool
) -> tuple[StatePolicy, np.ndarray]:
    """The policy of state ``s``, and its out-of-fold actions for the training rows, (n_train,).

    Parameters
    ----------
    costs : (n_train, n_actions) cost of each action
    margin : (n_train,) out-of-fold margins of the state's classifier
    weight : (n_train,) row weights
    learner : one of ``LEARNERS``
    is_plain : a filter tree without a cut, as in the paper; values have no margins, and so no cut
    """
    has_cut = learned(rows.problem).has_margins and not is_plain
    own = _learn(LEARNERS[learner](rows, s, costs.shape[1] - 1), costs, margin, weight, has_cut)
    if is_plain:
        return own
    same = _learn(SameForAll(rows, costs.shape[1] - 1), costs, margin, weight, has_cut)
    spent, other = (costs[np.arange(len(costs)), choice] for _, choice in (own, same))
    away = weight * (other - spent - np.average(other - spent, weights=weight))
    gain = float(weight @ (other - spent))
    return own if gain > np.sqrt(np.square(away).sum()) else same


def _learn(
    matches: Matches, costs: np.ndarray, margin: np.ndarray, weight: np.ndarray, has_cut: bool
) -> tuple[StatePolicy, np.ndarray]:
    """Alternate between the cut and the tree below it, twice; the first cut is that of a single other action."""
    n, n_actions = costs.shape
    bracket, cut = bracket_of(n_actions), best_way(costs, margin, weight)[0] if has_cut else NEVER
    choice = learn_matches(costs, weight * _below(margin, cut), bracket, matches)
    for turn in range(2 if has_cut else 0):
        before, cut = cut, -best_bound(-margin, weight * (costs[:, 0] - costs[np.arange(n), choice]))
        if turn or cut == before:
            break
        choice = learn_matches(costs, weight * _below(margin, cut), bracket, matches)
    policy = StatePolicy(bracket, n_actions, matches.trained(), matches.unseen.copy(), cut)
    return policy, np.where(margin >= cut, 0, choice)


def _below(margin: np.ndarray, cut: float) -> np.ndarray:
    """The rows on which a tree is trained, (n,) bool: those below the cut, or all rows if there are none."""
    below = margin < cut
    return below if below.any() else np.ones_like(below)


class Matches(Protocol):
    """Learns rounds; ``unseen``: (n_train, n_matches) out-of-fold scores that select the rows of later rounds."""

    unseen: np.ndarray

    def __call__(self, numbers: Sequence[int], label: np.ndarray, weight: np.ndarray) -> np.ndarray: ...

    def trained(self) -> Trained:
        """All matches as one part."""
        ...


class PolynomialMatches:
    """Matches learned by logistic regression on the state's terms."""

    def __init__(self, rows: DagRows, s: int, n_matches: int) -> None:
        self.rows, self.columns = rows, rows.mine(s)
        self.design = rows.design.part(self.columns)
        self.coef = np.zeros((n_matches, len(self.columns)))
        self.unseen = np.zeros((rows.fold.shape[0], n_matches))

    def __call__(self, numbers: Sequence[int], label: np.ndarray, weight: np.ndarray) -> np.ndarray:
        n_models, n = self.rows.seen.shape
        weights = (weight[:, None] * self.rows.seen).reshape(-1, n)
        coef = logistic(self.design, np.repeat(label, n_models, axis=0), weights, 1, RIDGE / n, tolerance=TOLERANCE)
        scores = (coef[:, 0].astype(np.float32) @ self.design.values).reshape(len(numbers), n_models, n)
        self.coef[list(numbers)] = coef[::n_models, 0]
        self.unseen[:, list(numbers)] = self.rows.own(scores.transpose(1, 0, 2))
        return self.unseen[:, list(numbers)].T

    def trained(self) -> Trained:
        """All matches as one part."""
        valid = (self.coef @ self.rows.valid_values[self.columns]).T
        return self.rows.trained(self.rows.polynomial(self.columns, self.coef), self.unseen, valid)


class TreeMatches:
    """Matches learned by boosted trees on the codes of the state's features."""

    def __init__(self, rows: DagRows, s: int, n_matches: int) -> None:
        self.rows, self.features = rows, rows.features(s)
        bins, codes, _ = rows.binned
        self.bins, self.codes = Bins(tuple(bins.cuts[f] for f in self.features)), codes[self.features]
        self.whole, *self.copies = (Ensemble(self.bins, self.features, np.zeros(n_matches)) for _ in rows.seen)
        self.unseen = np.zeros((codes.shape[1], n_matches))

    def __call__(self, numbers: Sequence[int], label: np.ndarray, weight: np.ndarray) -> np.ndarray:
        n = self.codes.shape[1]
        for m, y, w in zip(numbers, label, weight, strict=True):
            self._fit(self.whole, m, y, w, np.arange(n))
            for k, copy in enumerate(self.copies):
                held_out = self.rows.fold == k
                self._fit(copy, m, y, w, np.flatnonzero(~held_out))
                self.unseen[held_out, m] = ensemble_scores(copy, self.codes[:, held_out])[:, m]
        return self.unseen[:, list(numbers)].T

    def _fit(self, ensemble: Ensemble, m: int, y: np.ndarray, weight: np.ndarray, rows: np.ndarray) -> None:
        others = [t for t, (output, _) in enumerate(ensemble.outputs) if output != m]  # drop trees of an earlier fit
        ensemble.trees[:] = [ensemble.trees[t] for t in others]
        ensemble.outputs[:] = [ensemble.outputs[t] for t in others]
        ensemble.base[m], w = 0.0, weight[rows]
        if not w.any():
            return
        loss = ClassLoss(y[rows], 2, w / w.mean())
        ensemble.base[m] = loss.base()[0]
        if len(self.features) == 0:
            return
        scores = np.full((len(rows), m + 1), ensemble.base[m])
        part = np.ascontiguousarray(self.codes[:, rows])
        owner = np.zeros(len(self.features), dtype=np.int64)
        boost(ensemble, loss, part, owner, scores, np.zeros(1), MATCH_TREES, N_MATCH_TREES, first_output=m)

    def trained(self) -> Trained:
        """All matches as one ensemble."""
        valid = ensemble_scores(self.whole, self.rows.binned[2][self.features])
        return self.rows.trained(self.whole, self.unseen, valid)


class SameForAll:
    """Matches with a constant score: the winner that is best for all rows together."""

    def __init__(self, rows: DagRows, n_matches: int) -> None:
        self.rows, self.bias = rows, np.zeros((len(rows.seen), n_matches))
        self.unseen = np.zeros((len(rows.fold), n_matches))

    def __call__(self, numbers: Sequence[int], label: np.ndarray, weight: np.ndarray) -> np.ndarray:
        pull = np.where(label == 1, weight, -weight) @ self.rows.seen.T
        self.bias[:, list(numbers)] = pull.T / max(float(weight.sum()), 1e-30)
        self.unseen[:] = self.bias[1 + self.rows.fold]
        return self.unseen[:, list(numbers)].T

    def trained(self) -> Trained:
        """All matches as one part."""
        n_matches = self.bias.shape[1]
        no_terms = np.empty((0, self.rows.degree), dtype=np.int64)
        part = PolynomialPart(self.rows.standard, no_terms, np.empty((0, n_matches)), self.bias[0])
        return self.rows.trained(part, self.unseen, np.tile(self.bias[0], (len(self.rows.problem.valid.y), 1)))


LEARNERS: dict[str, type[PolynomialMatches | TreeMatches]] = {"polynomial": PolynomialMatches, "trees": TreeMatches}
