"""Chains: nested sensor sets for staged policies, chosen by what a policy over them would cost.

An order of sensors gives a set for each of its prefixes. Greedy paths (``subsets``) order sensors by how well the
prefix answers *all* rows; a staged policy wants prefixes that settle *many* rows early. So orders are compared by the
cuts that a price would make (``cuts``) on small classifiers, and the best greedy one is improved by moving and
swapping sensors as long as that lowers its mean of ``error + price * cost``. docs/math.md (28).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..data.problem import Subset
from ..policy.error_model import chance_wrong, cloud_chance
from ..policy.prices import prices
from .subset_search import SubsetSearch
from .thresholds import Choices, Meeting, mean_value, priced_cuts

__all__ = ["Chains"]

PRICE = 0.2  # error for the cost unit, at which orders are compared
SPREAD = (0.25, 1.0, 4.0)  # times that: prices at one of which a stage must be of use
REACH = 14  # sensors at the front of an order that are moved

Order = tuple[int, ...]


class Chains:
    """Orders of a problem's sensors, compared on the judged rows that the search has probed."""

    def __init__(self, search: SubsetSearch) -> None:
        self.search = search
        judge, rows = search.judge, search.probed
        self._weight = judge.weight[rows]
        self._cloud_cost = np.full(len(rows), judge.problem.forward_cost)
        self._cloud_wrong = cloud_chance(judge.hpc[rows], judge.y[rows], self._weight)
        (self._price,) = prices(judge.problem, 1, PRICE, PRICE)
        self._meetings: dict[Subset, Meeting] = {}

    @cached_property
    def greedy(self) -> list[Subset]:
        """The chain of the best greedy path: what the cascade stands on."""
        return self._stages(self._greedy())

    @cached_property
    def climbed(self) -> list[Subset]:
        """The chain of the order that moves and swaps lead to from the best greedy one."""
        order, most = self._greedy(), self.search.n_probes + self.search.problem.effort.max_probes
        least, is_better = self._value(order), True
        while is_better:
            is_better = False
            for new in _neighbours(order):
                if self.search.n_probes > most:
                    return self._stages(order)
                found = self._value(new)
                if found < least - 1e-6:
                    order, least, is_better = new, found, True
                    break
        return self._stages(order)

    def _greedy(self) -> Order:
        return min((_order(path) for path in self.search.paths()), key=self._value)

    def _value(self, order: Order) -> float:
        """Mean of ``chance of an error + price * cost`` when the order's prefixes are cut for the price."""
        choices = self._choices(order)
        return mean_value(choices, priced_cuts(choices, self._price), self._price)

    def _stages(self, order: Order) -> list[Subset]:
        """The prefixes of use at some price, at most as many as the effort allows."""
        choices, sets = self._choices(order), _prefixes(order)
        used = sorted({k for times in SPREAD for k in priced_cuts(choices, times * self._price)}) or [len(sets) - 1]
        keep = np.unique(
            np.linspace(0, len(used) - 1, min(self.search.problem.effort.max_stages, len(used))).round().astype(int)
        )
        return [sets[used[k]] for k in keep]

    def _choices(self, order: Order) -> Choices:
        sets = _prefixes(order)
        for subset, probe in zip(sets, self.search.probes(sets), strict=True):
            if subset not in self._meetings:
                wrong = chance_wrong(probe.margin, None, probe.is_right, self._weight)
                cost = np.full(len(wrong), self.search.cost(subset))
                self._meetings[subset] = Meeting(probe.margin, None, wrong, cost)
        return Choices([self._meetings[s] for s in sets], self._cloud_wrong, self._cloud_cost, self._weight)


def _order(path: list[Subset]) -> Order:
    """Sensors in the order in which a path from little to much adds them."""
    return tuple(next(iter(set(b) - set(a))) for a, b in pairwise(sorted(path, key=len)))


def _prefixes(order: Order) -> list[Subset]:
    return [tuple(sorted(order[:k])) for k in range(1, len(order) + 1)]


def _neighbours(order: Order) -> Iterator[Order]:
    """Orders with one sensor moved forward, or two swapped, near the front."""
    for i in range(min(REACH, len(order))):
        for j in range(i + 1, min(REACH, len(order))):
            yield (*order[:i], order[j], *order[i:j], *order[j + 1 :])
            if j > i + 1:
                yield (*order[:i], order[j], *order[i + 1 : j], order[i], *order[j + 1 :])
