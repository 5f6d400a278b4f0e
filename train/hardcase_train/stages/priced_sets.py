# SPDX-License-Identifier: Apache-2.0
"""Nested sensor sets from prices: a booster buys sensors while their price falls, and what it has bought is free.

A search that tries one sensor after another takes time that grows with the square of their number, and small
classifiers stop to tell sets apart once these have a few dozen sensors. A booster (GreedyMiser, Xu et al. 2012) weighs
all sensors at every split. Later sets are bought for the rows that still come to them: a row that copies of the
booster, which have not seen it, answer with a wide margin weighs less (the exit weights of CSCC, Xu et al. 2014, 19).
"""

from __future__ import annotations

import numpy as np

from hardcase_edge.batch.choices import margins_of

from ..data.problem import Subset
from ..policy.error_model import chance_wrong
from ..policy.losses import answer_loss
from ..trees.binning import make_bins
from ..trees.boosting import Ensemble, TreeSettings, ensemble_scores, extend
from ..trees.grower import Grower
from .subset_search import SubsetSearch

__all__ = ["MANY_SENSORS", "PricedSets", "priced_chains"]

MANY_SENSORS = 50  # of so many on, sets come from prices too
N_PRICES, LEAST_PRICE = 20, 2e-5  # falling from the price at which the first sensor is bought, to this share of it
HALVINGS = 40  # of a price that buys nothing
N_TREES = 12  # per price
SETTINGS = TreeSettings(learning_rate=0.3, max_leaves=31, max_depth=6, min_rows=20, l2=1.0, max_bins=64)
LEAST_WEIGHT = 0.05  # of a row that earlier sets answer


class PricedSets:
    """Nested sets of a search's sensors, small ones first, without the empty one.

    Attributes
    ----------
    plain : bought for all rows alike
    onward : bought for the rows that earlier sets are not sure of; of values, the same as ``plain``
    """

    def __init__(self, search: SubsetSearch) -> None:
        problem = search.problem
        self._problem, self._search = problem, search
        self._bins = make_bins(problem.train.X, problem.dtypes, SETTINGS.max_bins)
        self._codes = self._bins.transform(problem.train.X)
        self.plain = self._bought(is_onward=False)
        self.onward = self.plain if problem.is_value else self._bought(is_onward=True)

    def _bought(self, is_onward: bool) -> list[Subset]:
        problem, costs = self._problem, self._problem.sensor_costs()
        n = len(problem.train.y)
        half = np.random.default_rng(problem.seed).permutation(n) % 2
        whole = _Booster(self, np.arange(n), costs)
        copies = [_Booster(self, np.flatnonzero(half != k), costs) for k in (0, 1)] if is_onward else []
        weight, sets = problem.train.weight, list[Subset]()
        for price in whole.top_price() * np.geomspace(1.0, LEAST_PRICE, N_PRICES):
            if self._search.is_late() and sets:
                break
            whole.buy(price, weight)
            bought = whole.sensors()
            if not bought or sets[-1:] == [bought]:
                continue
            sets.append(bought)
            if is_onward:
                weight = problem.train.weight * self._coming(copies, bought, half, weight)
        return sets

    def _coming(self, copies: list[_Booster], bought: Subset, half: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """How far each row still comes to later sets, (n,): by its probability of an error, relative to the mean's."""
        y, scores = self._problem.train.y, np.empty((len(half), self._problem.n_outputs))
        for k, copy in enumerate(copies):
            copy.use(bought, weight)
            scores[half == k] = copy.scores(np.flatnonzero(half == k))
        right = (scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)) == y
        wrong = chance_wrong(margins_of(scores), None, right, self._problem.train.weight)
        mean = np.average(wrong, weights=self._problem.train.weight)
        return np.asarray(np.clip(wrong / max(float(mean), 1e-9), LEAST_WEIGHT, 1.0))


class _Booster:
    """Trees on some training rows, and the sensors that they have bought."""

    def __init__(self, sets: PricedSets, rows: np.ndarray, costs: np.ndarray) -> None:
        problem = sets._problem
        self.problem, self.rows, self.bins, self.codes = problem, rows, sets._bins, sets._codes
        self.costs, self.bought = costs, costs == 0
        self.grower = Grower(self.codes[:, rows], self.bins.sizes, problem.offered_of)
        self.ensemble = Ensemble(self.bins, np.arange(len(problem.features)), answer_loss(problem, rows).base())
        self.fitted = np.tile(self.ensemble.base, (len(rows), 1))

    def top_price(self) -> float:
        """The price, mean loss per unit of cost, at which a first sensor is worth buying; found by halving."""
        loss = answer_loss(self.problem, self.rows)
        total, paid = loss.weight.sum(), self.costs[self.costs > 0]
        price = float(np.average(loss.row_loss(self.fitted), weights=loss.weight) / paid.min(initial=np.inf))
        for _ in range(HALVINGS):
            penalty = np.where(self.bought, np.inf, price * self.costs * total)
            gradient, hessian = loss.derivatives(self.fitted)
            stump = self.grower.grow(
                gradient, hessian, penalty, max_leaves=2, max_depth=1, min_rows=SETTINGS.min_rows, l2=SETTINGS.l2
            )
            if price == 0 or len(stump.features):
                break
            price /= 2
        return price

    def buy(self, price: float, weight: np.ndarray) -> None:
        """More trees, whose new sensors cost this price."""
        self._extend(np.where(self.bought, 0.0, price * self.costs * weight[self.rows].sum()), weight)

    def use(self, sensors: Subset, weight: np.ndarray) -> None:
        """More trees, of these sensors alone."""
        penalty = np.full(len(self.costs), np.inf)
        penalty[list(sensors)] = 0.0
        self._extend(penalty, weight)

    def _extend(self, penalty: np.ndarray, weight: np.ndarray) -> None:
        loss = answer_loss(self.problem, self.rows)
        loss.weight = weight[self.rows]
        n_before = len(self.ensemble.trees)
        extend(self.ensemble, loss, self.grower, self.fitted, penalty, SETTINGS, N_TREES)
        owner = self.problem.sensor_of
        for tree in self.ensemble.trees[n_before:]:
            self.bought[owner[tree.features]] = True

    def sensors(self) -> Subset:
        """The sensors that its trees read."""
        owner = self.problem.sensor_of
        return tuple(sorted({int(owner[f]) for tree in self.ensemble.trees for f in tree.features}))

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Scores of training rows, (n_rows, n_outputs)."""
        return ensemble_scores(self.ensemble, np.ascontiguousarray(self.codes[:, rows]))


def priced_chains(search: SubsetSearch) -> list[list[Subset]]:
    """The chains of nested sets from prices, each once; none with few sensors."""
    if len(search.problem.offered) < MANY_SENSORS:
        return []
    sets = search.once(PricedSets)
    return [sets.plain] if sets.onward == sets.plain else [sets.plain, sets.onward]
