# SPDX-License-Identifier: Apache-2.0
"""Greedy search for sensor subsets by the loss of small classifiers, and a full classifier for each subset.

There are three greedy paths: forward by gain per cost, forward by gain, and backward by least loss per cost saved. The
loss is measured on rows that the small classifiers have not seen. Their time grows with the square of the sensors:
of very many, they go over those that prices buy (``priced_sets``). Methods share one search, so that each subset's
models are trained once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed

from ..data.problem import N_FOLDS, Subset
from ..policy.kinds import learned, loss_of
from ..policy.losses import SquaredLoss
from ..policy.selection import Judge, Trained
from ..trees.binning import Bins, make_bins
from ..trees.boosting import Ensemble, ensemble_scores
from ..trees.size import size_of
from ..trees.subset_classifier import (
    LEAST_SQUARE,
    TREES,
    Learner,
    cross_fitted,
    fit_classifier,
    fit_value_model,
    make_learner,
)
from .deadline import Deadline
from .priced_sets import MANY_SENSORS, PricedSets

FEW_SENSORS = 20  # up to this number, each step of a greedy path tries all sensors
AT_ONCE = 8  # sensors tried together if there are more
MOST_SEARCHED = 100  # of more sensors, greedy paths go over those of the largest set from prices that has no more
T = TypeVar("T")


@dataclass(frozen=True)
class Probe:
    """The predictions of a small classifier on the probed rows."""

    loss: float  # mean log loss, or squared loss of values
    sure: np.ndarray  # (n_probed,) margin; of values, minus the score of uncertainty
    label: np.ndarray  # (n_probed,) class index, or value


def _sample(rows: np.ndarray, at_most: int, seed: int) -> np.ndarray:
    """A random sample of at most ``at_most`` rows, in order; random, because a table may be sorted by class."""
    if len(rows) <= at_most:
        return rows
    return rows[np.sort(np.random.default_rng(seed).permutation(len(rows))[:at_most])]


@dataclass
class SubsetSearch:
    """Greedy paths over a problem's sensors; probes and models are cached, so that methods share them."""

    judge: Judge
    n_jobs: int = 2

    def __post_init__(self) -> None:
        p = self.problem = self.judge.problem
        self.size = size_of(p)
        self.costs = np.maximum(p.sensor_costs(), 1e-9)
        self.sensors = p.offered
        self.deadline: Deadline | None = None  # paths, and prices of slow methods, end early when it is over
        self.progress: Callable[[int], object] = lambda n: None  # called with the number of new probes
        is_trained = self.judge.fold >= N_FOLDS // 2 if self.judge.is_crossed else np.ones(len(p.train.y), dtype=bool)
        self.probe_train = _sample(np.flatnonzero(is_trained), self.size.probe_rows, p.seed)
        judged = np.ones(len(self.judge.y), dtype=bool)
        if self.judge.is_crossed:
            judged[: len(is_trained)] = ~is_trained
        self.probed = _sample(np.flatnonzero(judged), self.size.probe_rows, p.seed)
        self._probes: dict[Subset, Probe] = {}
        self._learners: dict[str, Learner] = {}
        self._models: dict[tuple[str, Subset, bool], Trained] = {}
        self._shared: dict[Any, Any] = {}
        self._guide: SubsetSearch | None = None
        self._paths: list[list[Subset]] = []

    @cached_property
    def _probe_rows(self) -> tuple[Bins, np.ndarray]:
        bins = make_bins(self.problem.train.X, self.problem.dtypes, self.size.probe.max_bins)
        return bins, bins.transform(self.problem.train.X)

    @cached_property
    def _probed_codes(self) -> np.ndarray:
        return self._probe_rows[0].transform(self.judge.X[self.probed])

    def losses(self, subsets: Iterable[Subset]) -> list[float]:
        """Mean log loss of a small classifier for each subset, on rows that it has not seen."""
        return [probe.loss for probe in self.probes(subsets)]

    def probes(self, subsets: Iterable[Subset]) -> list[Probe]:
        """A small classifier for each subset, evaluated on the judged rows ``probed``, which it has not seen."""
        listed = list(subsets)
        new = sorted({s for s in listed if s not in self._probes})
        probes = Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(self._probe)(s) for s in new)
        self._probes.update(zip(new, probes, strict=True))
        self.progress(len(new))
        return [self._probes[s] for s in listed]

    def once(self, make: Callable[[SubsetSearch], T]) -> T:
        """``make(self)``, computed on the first call and cached by ``make``."""
        if make not in self._shared:
            self._shared[make] = make(self)
        value: T = self._shared[make]
        return value

    @property
    def n_probes(self) -> int:
        """Number of sets that have been probed."""
        return len(self._probes)

    def priced(self) -> list[list[Subset]]:
        """The chains of nested sets from prices, each once; none with few sensors."""
        return self.once(_priced_sets).chains if len(self.sensors) >= MANY_SENSORS else []

    def paths(self) -> list[list[Subset]]:
        """The greedy paths: forward by gain per cost, forward by gain, backward; fewer when the deadline is over."""
        if self._guide is not None:
            return self._guide.paths()
        if not self._paths:
            start = self._searched()
            paths = [self.forward(1.0, start), self.forward(0.0, start), self.backward(start)]
            within = [[s for s in path if self.problem.is_affordable(s)] for path in paths]
            self._paths = [path for path in within if len(path) > 1 and () in path] or [[()]]
        return self._paths

    def _searched(self) -> Subset:
        if len(self.sensors) <= MOST_SEARCHED:
            return self.sensors
        return max(
            (s for chain in self.priced() for s in chain if len(s) <= MOST_SEARCHED), key=len, default=self.sensors
        )

    def is_late(self) -> bool:
        """Whether the deadline is over."""
        return self.deadline is not None and self.deadline.left() < 0

    def follow(self, other: SubsetSearch) -> None:
        """Take over the sensor sets that another search of the same sensors has found, instead of searching."""
        self._shared.update(other._shared)
        self._guide = other

    def small_classifier(self, subset: Subset) -> Ensemble:
        """A small classifier of these sensors, fitted to the rows ``probe_train``."""
        size = self.size
        return fit_classifier(self.problem, subset, *self._probe_rows, size.probe, size.probe_trees, self.probe_train)

    def row_losses(self, subset: Subset) -> np.ndarray:
        """The loss of a small classifier of these sensors on each of the rows ``probed``, (n_probed,)."""
        return self._scored(self.small_classifier(subset))[1]

    def _scored(self, e: Ensemble) -> tuple[np.ndarray, np.ndarray]:
        """Scores of a small classifier on the rows ``probed``, (n_probed, n_outputs), and its losses, (n_probed,)."""
        judge, rows = self.judge, self.probed
        scores = ensemble_scores(e, self._probed_codes[e.features])
        return scores, loss_of(self.problem, judge.y[rows], judge.weight[rows]).row_loss(scores)

    def _probe(self, subset: Subset) -> Probe:
        p, e = self.problem, self.small_classifier(subset)
        scores, losses = self._scored(e)
        loss = float(np.average(losses, weights=self.judge.weight[self.probed]))
        kind = learned(p)
        sure = kind.margins(scores).astype(np.float32) if kind.has_margins else -self._uncertainty(subset, e)
        return Probe(loss, sure, kind.results(scores))

    def _uncertainty(self, subset: Subset, value: Ensemble) -> np.ndarray:
        """Uncertainty of a small model of values on the probed rows, learned from its own errors, (n_probed,)."""
        p, size, rows = self.problem, self.size, self.probe_train
        bins, codes = self._probe_rows
        fitted = ensemble_scores(value, codes[value.features][:, rows])[:, 0]
        loss = SquaredLoss(np.log(np.square(fitted - p.train.y[rows]) + LEAST_SQUARE), p.train.weight[rows])
        e = fit_classifier(p, subset, bins, codes, size.probe, max(1, size.probe_trees // 2), rows, loss)
        return ensemble_scores(e, self._probed_codes[e.features])[:, 0]

    def models(self, subsets: Iterable[Subset], kind: str = TREES, *, are_cut: bool = True) -> list[Trained]:
        """A full model of this kind for each subset, with scores on the judged rows.

        ``are_cut``: models of values have their uncertainty as a second output, by which rows are cut.
        """
        keys = [(kind, s, are_cut and not learned(self.problem).has_margins) for s in subsets]
        if kind not in self._learners:
            self._learners[kind] = make_learner(self.problem, kind)
        new = sorted({key for key in keys if key not in self._models})
        models = Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(self._train)(*key) for key in new)
        self._models.update(zip(new, models, strict=True))
        return [self._models[key] for key in keys]

    def _train(self, kind: str, subset: Subset, is_unsure: bool) -> Trained:
        learner = self._learners[kind]
        if is_unsure:
            plain = self._models.get((kind, subset, False))
            return fit_value_model(learner, self.judge, subset, plain or self._train(kind, subset, False))

        whole = learner.fit(subset, np.arange(len(self.problem.train.y)))
        valid = ensemble_scores(whole, learner.valid[whole.features])
        if not self.judge.is_crossed:
            return Trained(whole, valid)
        unseen, copies = cross_fitted(learner, subset, self.judge.fold)
        return self.judge.as_sure(self.judge.trained(whole, valid, lambda rows, _: unseen[rows]), copies)

    def walked(self) -> list[Subset]:
        """The promising subsets of the greedy paths."""
        if self._guide is not None:
            return self._guide.walked()
        return self.promising(subset for path in self.paths() for subset in path)

    def promising(self, subsets: Iterable[Subset]) -> list[Subset]:
        """The Pareto front of these subsets by cost and probe loss, and the most expensive subset."""
        by_cost = sorted(set(subsets), key=lambda s: (self.cost(s), self.losses([s])[0]))
        front: list[Subset] = []
        for s in by_cost:
            if not front or self.losses([s])[0] < self.losses([front[-1]])[0]:
                front.append(s)
        return sorted({*front, by_cost[-1]})

    def cost(self, subset: Subset) -> float:
        """Cost of a subset in the user's unit."""
        return float(self.costs[list(subset)].sum())

    def forward(self, power: float, end: Subset) -> list[Subset]:
        """The path from the empty set to ``end``; each step adds the best affordable ``gain / cost**power``."""
        path: list[Subset] = [()]
        worth: dict[int, float] = dict.fromkeys(end, np.inf)
        while worth and not (len(path) > 1 and self.is_late()):
            current = path[-1]
            worth = {s: w for s, w in worth.items() if self.problem.is_affordable((*current, s))}
            if not worth:
                break

            def gains(options: list[int], current: Subset = current) -> list[float]:
                before, *after = self.losses([current, *(tuple(sorted((*current, s))) for s in options)])
                return [
                    (before - a) / self.costs[s] ** (power if a < before else -power)
                    for s, a in zip(options, after, strict=True)
                ]

            path.append(tuple(sorted((*current, _best(worth, gains)))))
        return path

    def backward(self, start: Subset) -> list[Subset]:
        """The path from ``start`` to the empty set; each step drops the sensor of the least loss per cost saved."""
        path = [start]
        worth: dict[int, float] = dict.fromkeys(start, np.inf)
        while worth and not self.is_late():
            current = path[-1]

            def savings(options: list[int], current: Subset = current) -> list[float]:
                before, *after = self.losses([current, *(tuple(x for x in current if x != s) for s in options)])
                return [
                    (before - a) / self.costs[s] ** (1 if a > before else -1)
                    for s, a in zip(options, after, strict=True)
                ]

            dropped = _best(worth, savings)
            path.append(tuple(x for x in current if x != dropped))
        return path


def _priced_sets(search: SubsetSearch) -> PricedSets:
    return PricedSets(search.problem, search.is_late)


def _best(worth: dict[int, float], fresh: Callable[[list[int]], list[float]]) -> int:
    """Remove the sensor of the highest value from ``worth`` and return it; ``worth`` keeps the others' last values.

    If there are many sensors, their values are computed lazily, in the order of the previous step's values, until no
    remaining sensor had a higher value than the best: a sensor's value seldom rises as others are acquired.
    """
    options = sorted(worth, key=lambda s: (-worth[s], s))
    n_at_once = len(options) if len(options) <= FEW_SENSORS else AT_ONCE
    best = -np.inf
    for k in range(0, len(options), n_at_once):
        if best >= worth[options[k]]:
            break
        chunk = sorted(options[k : k + n_at_once])
        worth.update(zip(chunk, fresh(chunk), strict=True))
        best = max(best, *(worth[s] for s in chunk))
    chosen = min(s for s in options if worth[s] == best)
    del worth[chosen]
    return chosen
