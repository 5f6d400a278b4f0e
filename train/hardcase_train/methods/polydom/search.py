# SPDX-License-Identifier: Apache-2.0
"""Which sensor sets to train a model on: pruning in the lattice of all sets. docs/math.md (96) to (99).

A set is *expanded* if its model was trained and judged. A set that is not is *pruned* if some expanded set is surely
good enough in its place: nowhere dearer, and alpha times as good as the set can be, which is at most as good as the
worst expanded superset, plus ``tolerance`` where information may hurt. The paper asks for more: there the expanded set
must be a subset. So it is one rule with two relations, ``SANDWICH`` and ``COST``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from hardcase_edge.errors import InputError

from .sets import MAX_SENSORS, Costs, Polynomial

SANDWICH, COST = "sandwich", "cost"
LADDER = (2.0, 1.5, 1.2, 1.1, 1.05, 1.02, 1.0)  # factors of the progressive search, down to the one that is asked for
LAMBDAS = (0.0, 0.1, 0.3, 1.0)  # prices of the greedy backward paths, in accuracy for the cost of all sensors
EPSILON = 1e-12  # in comparisons of accuracies, which are ratios of sums

Characterise = Callable[[int], float]  # trains the model of a set and returns its accuracy


@dataclass(frozen=True)
class SearchLimits:
    """What a progressive search may spend; None: no limit.

    models : the most models to train
    seconds : of training, after which no further model is begun
    """

    models: int | None = None
    seconds: float | None = None


@dataclass
class Searched:
    """The outcome of a search.

    costs : of all sets
    accuracy : of each expanded set, in the order of their training; the empty set is among them
    alpha : the factor that the search has finished; infinite if it finished none
    tolerance : how much worse a superset may be, as the search was told
    """

    costs: Costs
    accuracy: dict[int, float] = field(default_factory=dict)
    alpha: float = float("inf")
    tolerance: float = 0.0

    @property
    def n_trained(self) -> int:
        """The number of models that were trained; the empty set needs none."""
        return len(self.accuracy) - 1


def search_sets(
    polynomials: Sequence[Polynomial],
    largest: int,
    characterise: Characterise,
    prior: float,
    *,
    alpha: float = 1.0,
    tolerance: float = 0.0,
    prune: str = COST,
    limits: SearchLimits | None = None,
) -> Searched:
    """Train the sets that may be best for some size and budget.

    Parameters
    ----------
    polynomials, largest : as for ``sets.Costs``
    characterise : of a set, as a bit mask; called once for each set at most
    prior : the accuracy without any sensor
    alpha : at least 1; for every size and budget, some expanded set is at most this factor worse than the best
    tolerance : e, the most that a superset may be worse than its subset; 0: more information never hurts
    prune : ``COST``, or ``SANDWICH`` for the paper's own properties and order
    limits : with limits the factors of ``LADDER`` are tried from the largest on, and nothing is trained twice

    Raises
    ------
    InputError
        There are more than 16 sensors, or a number is out of range.
    """
    check(len(polynomials), alpha, tolerance)
    progress = Progress(Searched(Costs(polynomials, largest), {0: prior}, tolerance=tolerance), characterise, prune)
    ladder = [alpha] if limits is None else [*(a for a in LADDER if a > alpha), alpha]
    started = time.monotonic()
    for factor in ladder:
        order = _layers(progress) if prune == SANDWICH else _mixed(progress)
        for mask in order:
            if not progress.is_open(mask, factor):
                continue
            if limits is not None and _is_over(limits, progress.found.n_trained, time.monotonic() - started):
                return progress.found
            progress.expand(mask)
        progress.found.alpha = factor
    return progress.found


def search_all(polynomials: Sequence[Polynomial], largest: int, characterise: Characterise, prior: float) -> Searched:
    """Train every set: Naive-Expand-All; errors as of ``search_sets``."""
    check(len(polynomials), 1.0, 0.0)
    searched = Searched(Costs(polynomials, largest), {0: prior}, 1.0)
    searched.accuracy |= {mask: characterise(mask) for mask in range(1, 1 << len(polynomials))}
    return searched


def check(n_sensors: int, alpha: float, tolerance: float) -> None:
    """Refuse what no search can do.

    Raises
    ------
    InputError
        There are more than 16 sensors, or a number is out of range.
    """
    if n_sensors > MAX_SENSORS:
        raise InputError(
            f"{n_sensors} sensors have {2**n_sensors} sets, of which Poly-Dom searches those of at most {MAX_SENSORS}; "
            "leave some out, such as with [data] drop"
        )
    if not 1 <= alpha <= 10 or not 0 <= tolerance <= 1:
        raise InputError(f"alpha is {alpha} and the tolerance {tolerance}; 1 to 10 and 0 to 1 are expected")


def _is_over(limits: SearchLimits, n_trained: int, seconds: float) -> bool:
    return (limits.models is not None and n_trained >= limits.models) or (
        limits.seconds is not None and seconds >= limits.seconds
    )


class Progress:
    """What the expanded sets prove about all others.

    below : (2^n,) the best accuracy of an expanded set that may stand for each set
    above : (2^n,) the least accuracy of an expanded superset
    """

    def __init__(self, found: Searched, characterise: Characterise, prune: str) -> None:
        self.found, self._characterise, self._prune = found, characterise, prune
        self.costs = found.costs
        self._sets = np.arange(1 << self.costs.n)
        self.below = np.full(len(self._sets), found.accuracy[0])
        self.above = np.full(len(self._sets), np.inf)

    def is_open(self, mask: int, alpha: float) -> bool:
        """Whether a set is neither expanded nor pruned."""
        return mask not in self.found.accuracy and not bool(
            self.good_enough(self.below[mask], self.above[mask], alpha, self.found.tolerance)
        )

    @staticmethod
    def good_enough(below: float, above: float, alpha: float, tolerance: float) -> bool:
        """Whether an accuracy is alpha times what a set can reach whose least superset has ``above``."""
        return alpha * below >= above + tolerance - EPSILON

    def expand(self, mask: int) -> float:
        """Train a set."""
        accuracy = self.found.accuracy[mask] = float(self._characterise(mask))
        subsets = (self._sets & ~mask) == 0
        self.above[subsets] = np.minimum(self.above[subsets], accuracy)
        rows = np.flatnonzero(self.below < accuracy)
        rows = rows[(mask & ~rows) == 0 if self._prune == SANDWICH else self.costs.above(mask, rows)]
        self.below[rows] = accuracy
        return accuracy


# ---------------------------------------------------------------- orders


def _layers(progress: Progress) -> Iterator[int]:
    """The paper's order: from both ends of the lattice, layer by layer."""
    n = progress.costs.n
    sizes = np.bitwise_count(np.arange(1 << n, dtype=np.uint32))
    for k in range((n + 2) // 2):
        for layer in dict.fromkeys((n - k, k) if k else (n,)):
            yield from np.flatnonzero(sizes == layer).tolist()
        if 2 * k >= n:
            return


def _mixed(progress: Progress) -> Iterator[int]:
    """All sensors, single ones cheapest first, greedy backward paths, and then top down, dear sets first."""
    n, everything = progress.costs.n, (1 << progress.costs.n) - 1
    price = progress.costs.at((progress.costs.largest + 1) // 2).astype(np.float64)
    yield everything
    yield from sorted((1 << k for k in range(n)), key=lambda mask: price[mask])
    for weight in LAMBDAS:
        yield from backward(progress, price / max(price[everything], 1.0), weight)
    sizes = np.bitwise_count(np.arange(1 << n, dtype=np.uint32))
    for mask in np.lexsort((-price, -sizes.astype(int))).tolist():
        if mask:
            yield mask


def backward(progress: Progress, price: np.ndarray, weight: float) -> Iterator[int]:
    """From all sensors down, always to the expanded set of the best accuracy minus weight times cost."""
    current = (1 << progress.costs.n) - 1
    while current:
        smaller = [current & ~(1 << k) for k in range(progress.costs.n) if current >> k & 1]
        yield from smaller
        trained = [mask for mask in smaller if mask in progress.found.accuracy]
        if not trained:
            return
        current = max(trained, key=lambda mask: progress.found.accuracy[mask] - weight * price[mask])
