"""A state's policy: a cut on its classifier's margin, and behind it a filter tree over all its actions.

The tree is the paper's, its matches learned by polynomials or by boosted trees. The cut is in front of it: rows whose
answer is sure enough stop, where that costs less than what the tree would do with them. A polynomial of the readings
knows little of how sure a bank of trees is; where a cut gains nothing there is none. docs/math.md (46).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .binning import Bins
from .boosting import Ensemble, TreeSettings, boost, ensemble_scores
from .cuts import NEVER, best_bound
from .dag_rows import DagRows
from .filter_tree import Bracket, bracket_of, learn_matches, play
from .judge import Trained
from .logistic import logistic
from .losses import ClassLoss
from .polynomial import PolynomialPart

__all__ = ["LEARNERS", "PolynomialMatches", "StatePolicy", "TreeMatches", "learn_state"]

RIDGE = 10.0  # over the number of rows
MATCH_TREES = TreeSettings(learning_rate=0.2, max_leaves=8, max_depth=4, min_rows=20, l2=1.0, max_bins=64)
N_MATCH_TREES = 25


@dataclass(frozen=True)
class StatePolicy:
    """Actions are numbered as in ``dag.Learn``; scores are of matches, (n, n_matches), above 0 the second wins.

    unseen : of training rows
    cut : margin of the state's classifier from which on rows stop, whatever the tree says
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
        """What these training rows do, (n_rows,), by number.

        Parameters
        ----------
        margin : (n_rows,) of the state's classifier
        has : (n_actions,) bool, actions that can be taken
        """
        choice = play(self.bracket, self.unseen[rows], np.repeat(has[:, None], len(rows), axis=1))
        return np.where(margin >= self.cut, 0, choice)


def learn_state(
    rows: DagRows, s: int, costs: np.ndarray, margin: np.ndarray, weight: np.ndarray, learner: str, is_cut: bool = True
) -> tuple[StatePolicy, np.ndarray]:
    """A state's policy, and what it does with the training rows.

    Parameters
    ----------
    costs : (n_train, n_actions)
    margin : (n_train,) of the state's classifier on rows that it has not seen
    weight : (n_train,)
    learner : one of ``LEARNERS``
    is_cut : with a cut on the margin, if one pays
    """
    bracket = bracket_of(costs.shape[1])
    matches = LEARNERS[learner](rows, s, len(bracket))
    choice = learn_matches(costs, weight, bracket, matches)
    cut = NEVER
    if is_cut:
        loss = weight * (costs[:, 0] - costs[np.arange(len(costs)), choice])
        cut = -best_bound(-margin, loss)
    policy = StatePolicy(bracket, costs.shape[1], matches.trained(), matches.unseen, cut)
    return policy, np.where(margin >= cut, 0, choice)


class PolynomialMatches:
    """Learns rounds by logistic regression on the state's terms; where rows are judged by copies, so are decisions."""

    def __init__(self, rows: DagRows, s: int, n_matches: int) -> None:
        self.rows, self.mine = rows, rows.mine(s)
        self.design = rows.design.part(self.mine)
        self.seen = rows.seen if rows.judge.is_crossed else rows.seen[:1]
        self.coef = np.zeros((n_matches, len(self.mine)))
        self.unseen = np.zeros((rows.fold.shape[0], n_matches))

    def __call__(self, numbers: Sequence[int], label: np.ndarray, weight: np.ndarray) -> np.ndarray:
        n_models, n = self.seen.shape
        each = (weight[:, None] * self.seen).reshape(-1, n)
        coef = logistic(self.design, np.repeat(label, n_models, axis=0), each, 1, RIDGE / n)
        scores = (coef[:, 0].astype(np.float32) @ self.design.values).reshape(len(numbers), n_models, n)
        self.coef[list(numbers)] = coef[::n_models, 0]
        self.unseen[:, list(numbers)] = self.rows.own(scores.transpose(1, 0, 2))
        return self.unseen[:, list(numbers)].T

    def trained(self) -> Trained:
        """All matches as one part."""
        valid = (self.coef @ self.rows.valid_values[self.mine]).T
        return self.rows.trained(self.rows.polynomial(self.mine, self.coef), self.unseen, valid)


class TreeMatches:
    """Learns matches by boosted trees on the codes of the state's features."""

    def __init__(self, rows: DagRows, s: int, n_matches: int) -> None:
        self.rows, self.features = rows, rows.features(s)
        bins, codes, _ = rows.binned
        self.bins, self.codes = Bins(tuple(bins.cuts[f] for f in self.features)), codes[self.features]
        self.whole, *self.copies = (
            Ensemble(self.bins, self.features, np.zeros(n_matches)) for _ in range(1 + rows.n_copies)
        )
        self.unseen = np.zeros((codes.shape[1], n_matches))

    def __call__(self, numbers: Sequence[int], label: np.ndarray, weight: np.ndarray) -> np.ndarray:
        n = self.codes.shape[1]
        for m, y, w in zip(numbers, label, weight, strict=True):
            self._fit(self.whole, m, y, w, np.arange(n))
            for k, copy in enumerate(self.copies):
                out = self.rows.fold == k
                self._fit(copy, m, y, w, np.flatnonzero(~out))
                self.unseen[out, m] = ensemble_scores(copy, self.codes[:, out])[:, m]
        return self.unseen[:, list(numbers)].T

    def _fit(self, ensemble: Ensemble, m: int, y: np.ndarray, weight: np.ndarray, rows: np.ndarray) -> None:
        w = weight[rows]
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


LEARNERS: dict[str, type[PolynomialMatches | TreeMatches]] = {"polynomial": PolynomialMatches, "trees": TreeMatches}
