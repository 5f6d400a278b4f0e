"""Sensor subsets worth having, and a classifier for each: what both honest baselines stand on.

Three greedy paths over the loss of small classifiers on rows that they have not seen: forward by gain per cost, forward
by gain, backward by least loss per cost saved. Every subset on a path gets a classifier of its own, trained on the
training rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed

from hardcase_edge.batch.choices import margins_of

from ..data.problem import N_FOLDS, Subset
from ..policy.losses import log_probability
from ..policy.selection import Judge, Trained
from ..trees.binning import Bins, make_bins
from ..trees.boosting import ensemble_scores
from ..trees.size import size_of
from ..trees.subset_classifier import TREES, Learner, fit_classifier, make_learner

__all__ = ["Probe", "SubsetSearch"]

FEW_SENSORS = 20  # up to so many, each step of a greedy path tries all of them
AT_ONCE = 8
T = TypeVar("T")


@dataclass(frozen=True)
class Probe:
    """What a small classifier says of the probed rows."""

    loss: float  # mean log loss
    margin: np.ndarray  # (n_probed,)
    is_right: np.ndarray  # (n_probed,) bool


def _sample(rows: np.ndarray, at_most: int, seed: int) -> np.ndarray:
    """At most so many of these rows, in order: a table may be sorted by class."""
    if len(rows) <= at_most:
        return rows
    return rows[np.sort(np.random.default_rng(seed).permutation(len(rows))[:at_most])]


@dataclass
class SubsetSearch:
    """Greedy paths over a problem's sensors; results are kept, so that static and cascade share them."""

    judge: Judge
    n_jobs: int = 2

    def __post_init__(self) -> None:
        p = self.problem = self.judge.problem
        self.size = size_of(p)
        self.costs = np.maximum(p.sensor_costs(), 1e-9)
        seen = self.judge.fold >= N_FOLDS // 2 if self.judge.is_crossed else np.ones(len(p.train.y), dtype=bool)
        self.probe_train = _sample(np.flatnonzero(seen), self.size.probe_rows, p.seed)
        judged = np.ones(len(self.judge.y), dtype=bool)
        if self.judge.is_crossed:
            judged[: len(seen)] = ~seen
        self.probed = _sample(np.flatnonzero(judged), self.size.probe_rows, p.seed)
        self._probes: dict[Subset, Probe] = {}
        self._learners: dict[str, Learner] = {}
        self._models: dict[tuple[str, Subset], Trained] = {}
        self._made: dict[Any, Any] = {}

    @cached_property
    def _probe_rows(self) -> tuple[Bins, np.ndarray]:
        bins = make_bins(self.problem.train.X, self.problem.dtypes, self.size.probe.max_bins)
        return bins, bins.transform(self.problem.train.X)

    def losses(self, subsets: Iterable[Subset]) -> list[float]:
        """Mean log loss of a small classifier per subset, on rows that it has not seen."""
        return [probe.loss for probe in self.probes(subsets)]

    def probes(self, subsets: Iterable[Subset]) -> list[Probe]:
        """A small classifier per subset, on the judged rows ``probed``: it has not seen them."""
        wanted = list(subsets)
        new = sorted({s for s in wanted if s not in self._probes})
        done = Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(self._probe)(s) for s in new)
        self._probes.update(zip(new, done, strict=True))
        return [self._probes[s] for s in wanted]

    def once(self, make: Callable[[SubsetSearch], T]) -> T:
        """What stands on this search, made once: ``make(self)``."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]

    @property
    def n_probes(self) -> int:
        """How many sets have been probed."""
        return len(self._probes)

    def paths(self) -> list[list[Subset]]:
        """The greedy paths: forward by gain per cost, forward by gain, backward."""
        return [self.forward(1.0), self.forward(0.0), self.backward(tuple(range(len(self.costs))))]

    def _probe(self, subset: Subset) -> Probe:
        p, size = self.problem, self.size
        e = fit_classifier(p, subset, *self._probe_rows, size.probe, size.probe_trees, self.probe_train)
        X, y = self.judge.X[self.probed][:, e.features], self.judge.y[self.probed]
        scores = ensemble_scores(e, e.bins.transform(X))
        log_p = log_probability(scores)
        loss = np.average(-log_p[np.arange(len(y)), y], weights=self.judge.weight[self.probed])
        return Probe(float(loss), margins_of(scores).astype(np.float32), log_p.argmax(axis=1) == y)

    def models(self, subsets: Iterable[Subset], kind: str = TREES) -> list[Trained]:
        """A full classifier of this kind per subset, judged on rows it has not seen."""
        wanted = [(kind, s) for s in subsets]
        if kind not in self._learners:
            self._learners[kind] = make_learner(self.problem, kind)
        new = sorted({key for key in wanted if key not in self._models})
        done = Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(self._train)(*key) for key in new)
        self._models.update(zip(new, done, strict=True))
        return [self._models[key] for key in wanted]

    def _train(self, kind: str, subset: Subset) -> Trained:
        learner = self._learners[kind]

        def held(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
            copy = learner.fit(subset, others)
            return ensemble_scores(copy, learner.codes[copy.features][:, rows])

        ensemble = learner.fit(subset, np.arange(len(self.problem.train.y)))
        return self.judge.trained(ensemble, ensemble_scores(ensemble, learner.valid[ensemble.features]), held)

    def walked(self) -> list[Subset]:
        """The promising sets on the greedy paths."""
        return self.promising(subset for path in self.paths() for subset in path)

    def promising(self, subsets: Iterable[Subset]) -> list[Subset]:
        """Those that no other is both cheaper and better than by the probe, and the most expensive one."""
        by_cost = sorted(set(subsets), key=lambda s: (self.cost(s), self.losses([s])[0]))
        kept: list[Subset] = []
        for s in by_cost:
            if not kept or self.losses([s])[0] < self.losses([kept[-1]])[0]:
                kept.append(s)
        return sorted({*kept, by_cost[-1]})

    def cost(self, subset: Subset) -> float:
        """Price of a subset in the user's unit."""
        return float(self.costs[list(subset)].sum())

    def forward(self, power: float) -> list[Subset]:
        """From nothing to everything; each step adds the best ``gain / cost**power``."""
        path: list[Subset] = [()]
        worth: dict[int, float] = dict.fromkeys(range(len(self.costs)), np.inf)
        while worth:
            here = path[-1]

            def gains(options: list[int], here: Subset = here) -> list[float]:
                before, *after = self.losses([here, *(tuple(sorted((*here, s))) for s in options)])
                return [
                    (before - a) / self.costs[s] ** (power if a < before else -power)
                    for s, a in zip(options, after, strict=True)
                ]

            path.append(tuple(sorted((*here, _best(worth, gains)))))
        return path

    def backward(self, start: Subset) -> list[Subset]:
        """From ``start`` to nothing; each step drops the sensor whose loss per cost saved is least."""
        path = [start]
        worth: dict[int, float] = dict.fromkeys(start, np.inf)
        while worth:
            here = path[-1]

            def spared(options: list[int], here: Subset = here) -> list[float]:
                before, *after = self.losses([here, *(tuple(x for x in here if x != s) for s in options)])
                return [
                    (before - a) / self.costs[s] ** (1 if a > before else -1)
                    for s, a in zip(options, after, strict=True)
                ]

            dropped = _best(worth, spared)
            path.append(tuple(x for x in here if x != dropped))
        return path


def _best(worth: dict[int, float], fresh: Callable[[list[int]], list[float]]) -> int:
    """The sensor worth most now, which leaves ``worth``; each keeps what it was last worth.

    Where sensors are many, they are asked by what they were worth a step ago, until none left was worth as much as
    the best is: what a sensor is worth seldom rises as others are bought.
    """
    options = sorted(worth, key=lambda s: (-worth[s], s))
    size = len(options) if len(options) <= FEW_SENSORS else AT_ONCE
    best = -np.inf
    for k in range(0, len(options), size):
        if best >= worth[options[k]]:
            break
        asked = sorted(options[k : k + size])
        worth.update(zip(asked, fresh(asked), strict=True))
        best = max(best, *(worth[s] for s in asked))
    chosen = min(s for s in options if worth[s] == best)
    del worth[chosen]
    return chosen
