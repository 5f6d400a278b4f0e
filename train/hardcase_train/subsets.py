"""Sensor subsets worth having, and a classifier for each: what both honest baselines stand on.

Three greedy paths over validation loss: forward by gain per cost, forward by gain, backward by least loss per cost
saved. Every subset on a path gets a classifier of its own, trained on the training rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from joblib import Parallel, delayed

from hardcase_edge.meter import to_unit

from .binning import Bins, make_bins
from .boosting import FULL, Ensemble, TreeSettings, boost, ensemble_scores
from .judge import Judge, Trained
from .losses import ClassLoss, log_probability
from .problem import Problem

__all__ = ["Subset", "SubsetSearch", "fit_classifier"]

PROBE = TreeSettings(learning_rate=0.3, max_leaves=8, max_depth=4, min_rows=20, l2=0.01, max_bins=32)
PROBE_TREES = 25
PROBE_ROWS = 4000
FULL_TREES = 70

Subset = tuple[int, ...]


def fit_classifier(
    problem: Problem,
    sensors: Subset,
    bins: Bins,
    codes: np.ndarray,
    settings: TreeSettings,
    n_trees: int,
    rows: np.ndarray,
) -> Ensemble:
    """A boosted classifier that reads these sensors only, from these training rows."""
    features = np.array([f for s in sensors for f in problem.sensors[s].features], dtype=np.int64)
    y = problem.train.y[rows]
    loss = ClassLoss(y, problem.n_classes, problem.train.weight[rows])
    base = loss.base()
    ensemble = Ensemble(Bins(tuple(bins.cuts[f] for f in features)), features, base)
    if len(features):
        scores = np.tile(base, (len(y), 1))
        part = np.ascontiguousarray(codes[features][:, rows])
        owner = problem.sensor_of[features]
        boost(ensemble, loss, part, owner, scores, np.zeros(len(problem.sensors)), settings, n_trees)
    return ensemble


def _sample(n: int, seed: int) -> np.ndarray:
    """At most ``PROBE_ROWS`` of n rows, in order: a table may be sorted by class."""
    if n <= PROBE_ROWS:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).permutation(n)[:PROBE_ROWS])


@dataclass
class SubsetSearch:
    """Greedy paths over a problem's sensors; results are kept, so that static and cascade share them."""

    judge: Judge
    n_jobs: int = 2

    def __post_init__(self) -> None:
        p = self.problem = self.judge.problem
        self.costs = np.array([max(to_unit(s.cost[0]), 1e-9) for s in p.sensors])
        self._probe_train = _sample(len(p.train.y), p.seed)
        self._probe_valid = _sample(len(p.valid.y), p.seed)
        self._losses: dict[Subset, float] = {}
        self._models: dict[Subset, Trained] = {}

    @cached_property
    def _probe_rows(self) -> tuple[Bins, np.ndarray]:
        bins = make_bins(self.problem.train.X, self.problem.dtypes, PROBE.max_bins)
        return bins, bins.transform(self.problem.train.X)

    @cached_property
    def _full_rows(self) -> tuple[Bins, np.ndarray, np.ndarray]:
        bins = make_bins(self.problem.train.X, self.problem.dtypes, FULL.max_bins)
        return bins, bins.transform(self.problem.train.X), bins.transform(self.problem.valid.X)

    @property
    def known(self) -> dict[Subset, float]:
        """The losses found so far, by subset; those of an earlier search of the same rows may be put in."""
        return self._losses

    def losses(self, subsets: Iterable[Subset]) -> list[float]:
        """Mean validation log loss of a small classifier per subset."""
        wanted = list(subsets)
        new = sorted({s for s in wanted if s not in self._losses})
        done = Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(self._probe)(s) for s in new)
        self._losses.update(zip(new, done, strict=True))
        return [self._losses[s] for s in wanted]

    def _probe(self, subset: Subset) -> float:
        p = self.problem
        e = fit_classifier(p, subset, *self._probe_rows, PROBE, PROBE_TREES, self._probe_train)
        rows = self._probe_valid
        y = p.valid.y[rows]
        log_p = log_probability(ensemble_scores(e, e.bins.transform(p.valid.X[rows][:, e.features])))
        return float(np.average(-log_p[np.arange(len(y)), y], weights=p.valid.weight[rows]))

    def models(self, subsets: Iterable[Subset]) -> list[Trained]:
        """A full classifier per subset, judged on rows it has not seen."""
        wanted = list(subsets)
        new = sorted({s for s in wanted if s not in self._models})
        done = Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(self._train)(s) for s in new)
        self._models.update(zip(new, done, strict=True))
        return [self._models[s] for s in wanted]

    def _train(self, subset: Subset) -> Trained:
        bins, codes, valid_codes = self._full_rows
        args = (self.problem, subset, bins, codes, FULL, FULL_TREES)
        ensemble = fit_classifier(*args, np.arange(len(self.problem.train.y)))

        def held(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
            copy = fit_classifier(*args, others)
            return ensemble_scores(copy, codes[copy.features][:, rows])

        valid = ensemble_scores(ensemble, valid_codes[ensemble.features])
        return self.judge.trained(ensemble, valid, held)

    def walked(self) -> list[Subset]:
        """The promising sets on three paths: forward by gain per cost, forward by gain, backward."""
        everything = tuple(range(len(self.costs)))
        return self.promising([*self.forward(1.0), *self.forward(0.0), *self.backward(everything)])

    def promising(self, subsets: Iterable[Subset]) -> list[Subset]:
        """Those that no other is both cheaper and better than by the probe, and the most expensive one."""
        by_cost = sorted(set(subsets), key=lambda s: (self.cost(s), self.losses([s])[0]))
        kept: list[Subset] = []
        for s in by_cost:
            if not kept or self.losses([s])[0] < self.losses([kept[-1]])[0]:
                kept.append(s)
        return sorted({*kept, by_cost[-1]})

    def chain(self, n_stages: int) -> list[Subset]:
        """At most so many nested subsets, from the smallest to all: those of the path by gain per cost."""
        path = [s for s in self.forward(1.0) if s]
        keep = np.unique(np.linspace(0, len(path) - 1, min(n_stages, len(path))).round().astype(int))
        return [path[k] for k in keep]

    def cost(self, subset: Subset) -> float:
        """Price of a subset in the user's unit."""
        return float(self.costs[list(subset)].sum())

    def forward(self, power: float) -> list[Subset]:
        """From nothing to everything; each step adds the best ``gain / cost**power``."""
        path: list[Subset] = [()]
        left = set(range(len(self.costs)))
        while left:
            here = path[-1]
            options = sorted(left)
            subsets = [tuple(sorted((*here, s))) for s in options]
            before, *after = self.losses([here, *subsets])
            value = [
                (before - a) / self.costs[s] ** (power if a < before else -power)
                for s, a in zip(options, after, strict=True)
            ]
            best = options[int(np.argmax(value))]
            path.append(tuple(sorted((*here, best))))
            left.discard(best)
        return path

    def backward(self, start: Subset) -> list[Subset]:
        """From ``start`` to nothing; each step drops the sensor whose loss per cost saved is least."""
        path = [start]
        while path[-1]:
            here = path[-1]
            subsets = [tuple(x for x in here if x != s) for s in here]
            before, *after = self.losses([here, *subsets])
            harm = [(a - before) / self.costs[s] ** (1 if a > before else -1) for s, a in zip(here, after, strict=True)]
            path.append(subsets[int(np.argmin(harm))])
        return path
