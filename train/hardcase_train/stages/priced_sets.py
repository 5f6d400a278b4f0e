# SPDX-License-Identifier: Apache-2.0
"""Nested sensor sets from prices: boosters buy sensors while their price falls, and what is bought stays free.

A search that tries one sensor after another takes time that grows with the square of their number, and small
classifiers stop to tell sets apart once these have a few dozen sensors. A booster (GreedyMiser, Xu et al. 2012) weighs
all sensors at every split. Every price has a booster of its own: one that went on would fit its training rows with the
first sensors, and then buy no others. Later sets are bought for the rows that still come to them: a row that copies of
the booster, which have not seen it, answer with a wide margin weighs less (the exit weights of CSCC, Xu et al. 2014,
19).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hardcase_edge.more.batch.choices import classes_of, margins_of

from ..data.problem import Problem, Subset
from ..policy.confidences import chance_wrong
from ..policy.kinds import answer_loss, learned
from ..trees.binning import make_bins
from ..trees.boosting import Ensemble, TreeSettings, ensemble_scores, extend
from ..trees.grower import Grower

MANY_SENSORS = 50  # of so many on, sets come from prices too
N_PRICES, LEAST_PRICE = 20, 2e-4  # falling from the price at which the first sensor is bought, to this share of it
HALVINGS = 40  # of a price that buys nothing
N_TREES = 30  # of the booster of a price
SETTINGS = TreeSettings(learning_rate=0.3, max_leaves=31, max_depth=6, min_rows=20, l2=1.0, max_bins=64)
LEAST_WEIGHT = 0.05  # of a row that earlier sets answer


class PricedSets:
    """Nested sets of a problem's sensors, small ones first, without the empty one.

    Parameters
    ----------
    is_late : whether no further price may be tried; one set is found all the same

    Attributes
    ----------
    plain : bought for all rows alike
    onward : bought for the rows that earlier sets are not sure of; of values, the same as ``plain``
    """

    def __init__(self, problem: Problem, is_late: Callable[[], bool] = lambda: False) -> None:
        self._problem, self._is_late = problem, is_late
        self._bins = make_bins(problem.train.X, problem.dtypes, SETTINGS.max_bins)
        self._codes = self._bins.transform(problem.train.X)
        self.plain = self._bought(is_onward=False)
        self.onward = self._bought(is_onward=True) if learned(problem).has_margins else self.plain

    @property
    def chains(self) -> list[list[Subset]]:
        """``plain`` and ``onward``, each once."""
        return [self.plain] if self.onward == self.plain else [self.plain, self.onward]

    def _bought(self, is_onward: bool) -> list[Subset]:
        problem, costs = self._problem, self._problem.sensor_costs()
        n = len(problem.train.y)
        half = np.random.default_rng(problem.seed).permutation(n) % 2
        whole = _Booster(self, np.arange(n), costs)
        copies = [_Booster(self, np.flatnonzero(half != k), costs) for k in (0, 1)] if is_onward else []
        weight, sets = problem.train.weight, list[Subset]()
        for price in whole.top_price() * np.geomspace(1.0, LEAST_PRICE, N_PRICES):
            if self._is_late() and sets:
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
        wrong = chance_wrong(margins_of(scores), None, classes_of(scores) == y, self._problem.train.weight)
        mean = np.average(wrong, weights=self._problem.train.weight)
        return np.asarray(np.clip(wrong / max(float(mean), 1e-9), LEAST_WEIGHT, 1.0))


class _Booster:
    """Trees on some training rows, new ones for each price, and the sensors that all of them have bought."""

    def __init__(self, sets: PricedSets, rows: np.ndarray, costs: np.ndarray) -> None:
        problem = sets._problem
        self.problem, self.rows, self.bins, self.codes = problem, rows, sets._bins, sets._codes
        self.costs, self.free, self.bought = costs, costs == 0, np.zeros(len(costs), dtype=bool)
        self.grower = Grower(self.codes[:, rows], self.bins.sizes, problem.offered_of)
        self._begin()

    def _begin(self) -> None:
        """Without trees."""
        base = answer_loss(self.problem, self.rows).base()
        self.ensemble = Ensemble(self.bins, np.arange(len(self.problem.features)), base)
        self.fitted = np.tile(base, (len(self.rows), 1))

    def top_price(self) -> float:
        """The price, mean loss per unit of cost, at which a first sensor is worth buying; found by halving."""
        loss = answer_loss(self.problem, self.rows)
        total, paid = loss.weight.sum(), self.costs[self.costs > 0]
        price = float(np.average(loss.row_loss(self.fitted), weights=loss.weight) / paid.min(initial=np.inf))
        for _ in range(HALVINGS):
            penalty = np.where(self.free, np.inf, price * self.costs * total)
            gradient, hessian = loss.derivatives(self.fitted)
            stump = self.grower.grow(
                gradient, hessian, penalty, max_leaves=2, max_depth=1, min_rows=SETTINGS.min_rows, l2=SETTINGS.l2
            )
            if price == 0 or len(stump.features):
                break
            price /= 2
        return price

    def buy(self, price: float, weight: np.ndarray) -> None:
        """Trees whose new sensors cost this price."""
        self._grow(np.where(self.bought, 0.0, price * self.costs * weight[self.rows].sum()), weight)

    def use(self, sensors: Subset, weight: np.ndarray) -> None:
        """Trees of these sensors alone."""
        penalty = np.full(len(self.costs), np.inf)
        penalty[list(sensors)] = 0.0
        self._grow(penalty, weight)

    def _grow(self, penalty: np.ndarray, weight: np.ndarray) -> None:
        loss = answer_loss(self.problem, self.rows)
        loss.weight = weight[self.rows]
        self._begin()
        extend(self.ensemble, loss, self.grower, self.fitted, penalty, SETTINGS, N_TREES)
        owner = self.problem.sensor_of
        for tree in self.ensemble.trees:
            self.bought[owner[tree.features]] = True

    def sensors(self) -> Subset:
        """The sensors that its trees have read so far."""
        return tuple(np.flatnonzero(self.bought).tolist())

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Scores of training rows, (n_rows, n_outputs)."""
        return ensemble_scores(self.ensemble, np.ascontiguousarray(self.codes[:, rows]))
