# SPDX-License-Identifier: Apache-2.0
"""Screening of many sensors: keep few, without which small classifiers lose nothing that the judged rows can see.

The time of a search grows with the square of the number of sensors. Sensors are ranked in three ways: by the order in
which boosting on all of them uses them, by the gain of each alone, and by that gain per cost. The heads of the three
lists together are kept. Their length doubles; the shortest is chosen whose loss, on rows that the small classifiers
have not seen, is within one standard error (paired by row or group) of that with all sensors, and of the best that any
length reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..data.problem import Problem, Subset
from ..policy.selection import Judge
from ..trees.boosting import Ensemble
from .subset_search import SubsetSearch

__all__ = ["MANY_SENSORS", "Screening", "screen"]

MANY_SENSORS = 100  # with at most so many, all are searched: it takes minutes at most
LEAST_HEAD = 40  # sensors of each ranking that are tried first; full models use more than small ones can
ROUNDS = 3  # of boosting, each without the sensors that earlier rounds used


@dataclass(frozen=True)
class Screening:
    """The sensors that were kept, and what that costs small classifiers on judged rows that they have not seen.

    loss, loss_of_all : mean loss with the kept sensors, and with all
    excess, excess_se : by how much the loss with the kept sensors exceeds that with all, and its standard error, which
        it does not exceed
    """

    kept: Subset
    n_sensors: int
    loss: float
    loss_of_all: float
    excess: float
    excess_se: float

    def __str__(self) -> str:
        return (
            f"screened {self.n_sensors:,} sensors to {len(self.kept)}: loss of small models {self.loss:.3f} against "
            f"{self.loss_of_all:.3f} with all (by {self.excess:+.3f}, one standard error is {self.excess_se:.3f})"
        )


def screen(problem: Problem, n_jobs: int = 1) -> tuple[Problem, Screening | None]:
    """The problem with the sensors that policies may read, and the promise; unchanged with at most MANY_SENSORS."""
    if len(problem.offered) <= MANY_SENSORS:
        return problem, None
    search = SubsetSearch(Judge(problem), n_jobs)
    heads = list(_heads(rankings(search)))
    losses = [search.row_losses(kept) for kept in heads]
    weight = search.judge.weight[search.probed]
    means = [float(np.average(loss, weights=weight)) for loss in losses]
    best = losses[int(np.argmin(means))]

    def over(loss: np.ndarray, other: np.ndarray) -> tuple[float, float]:
        return search.judge.paired(loss - other, search.probed)

    def is_near(k: int) -> bool:
        return all(excess <= se for excess, se in (over(losses[k], other) for other in (best, losses[-1])))

    k = next(k for k in range(len(heads)) if is_near(k))  # the best is near at the latest
    promise = Screening(heads[k], len(problem.offered), means[k], means[-1], *over(losses[k], losses[-1]))
    return replace(problem, kept=promise.kept), promise


def rankings(search: SubsetSearch) -> list[list[int]]:
    """Three orders of all offered sensors, the most promising first."""
    sensors = search.sensors
    nothing, *alone = search.losses([(), *((s,) for s in sensors)])
    gain = {s: nothing - loss for s, loss in zip(sensors, alone, strict=True)}
    worth = {s: g / search.costs[s] if g > 0 else g for s, g in gain.items()}
    by_gain, by_worth = (sorted(sensors, key=lambda s: (-value[s], s)) for value in (gain, worth))
    used: list[int] = []
    for _ in range(ROUNDS):
        left = tuple(sorted(set(sensors) - set(used)))
        used += _in_order_of_use(search.small_classifier(left), search.problem.sensor_of)
    return [used + [s for s in by_gain if s not in set(used)], by_gain, by_worth]


def _in_order_of_use(e: Ensemble, sensor_of: np.ndarray) -> list[int]:
    """The sensors that the trees split on; growth is best-first, so those of high gain come early."""
    return list(dict.fromkeys(int(sensor_of[e.features[f]]) for tree in e.trees for f in tree.features))


def _heads(orders: Sequence[Sequence[int]]) -> Iterator[Subset]:
    """Unions of the orders' heads, each twice as long as the one before; the last has all sensors."""
    n, head = len(orders[0]), LEAST_HEAD
    while True:
        kept = tuple(sorted({s for order in orders for s in order[:head]}))
        yield kept
        if len(kept) == n:
            return
        head *= 2
