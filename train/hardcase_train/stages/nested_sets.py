# SPDX-License-Identifier: Apache-2.0
"""Chains: nested sensor sets for staged policies, chosen by the expected cost of a policy over them.

An order of sensors gives a set for each of its prefixes. Greedy paths (``subset_search``) order sensors by how well the
prefix answers *all* rows, but a staged policy needs prefixes that answer *many* rows early. Therefore orders are
compared by the cuts of a price (``thresholds``) on small classifiers. Local search improves the best greedy order: it
moves and swaps sensors as long as that lowers the mean of ``error + price * cost``. docs/math.md (28).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..data.problem import Subset
from ..policy.kinds import learned
from ..policy.prices import prices
from .subset_search import Probe, SubsetSearch
from .thresholds import FORBIDDEN, Choices, Meeting, mean_value, priced_cuts

PRICE = 0.2  # errors per cost unit, at which orders are compared
HARD_PRICE = 0.02  # the same where a budget leaves no forward: all that it allows may be bought for most rows
SPREAD = (0.25, 1.0, 4.0)  # multiples of that price; a stage must be in use at one of them
REACH = 14  # local search moves only the first sensors of an order

Order = tuple[int, ...]


class Chains:
    """Chains of a problem's sensors; orders are compared on the probed rows of the search."""

    def __init__(self, search: SubsetSearch) -> None:
        self.search = search
        judge, rows = search.judge, search.probed
        self._y, self._weight = judge.y[rows], judge.weight[rows]
        self._costs, self._cloud_cost = _row_costs(search)
        self._kind = learned(judge.problem)
        self._cloud_wrong = self._kind.cloud(judge.stakes[rows], (), self._y, self._weight)
        price = PRICE
        if not judge.problem.may_forward():
            price, self._cloud_wrong = HARD_PRICE, self._cloud_wrong + FORBIDDEN
        (self._price,) = prices(judge.problem, 1, price, price)
        self._meetings: dict[Subset, Meeting] = {}

    @cached_property
    def greedy(self) -> list[Subset]:
        """The chain of the best greedy path, which the cascade uses."""
        return self._stages(self._greedy())

    @cached_property
    def climbed(self) -> list[Subset]:
        """The chain of the order that local search reaches from the best greedy order."""
        order, max_probes = self._greedy(), self.search.n_probes + self.search.problem.effort.max_probes
        best, is_better = self._value(order), True
        while is_better:
            is_better = False
            for new in _neighbours(order):
                if self.search.n_probes > max_probes or self.search.is_late():
                    return self._stages(order)
                value = self._value(new)
                if value < best - 1e-6:
                    order, best, is_better = new, value, True
                    break
        return self._stages(order)

    def _greedy(self) -> Order:
        has_budget = self.search.problem.limits.budget is not None  # then paths end before they have all sensors
        others = self.search.sensors if has_budget else ()
        return min((_order(path, others) for path in self.search.paths()), key=self._value)

    def _value(self, order: Order) -> float:
        """Mean of ``expected loss + price * cost`` of a policy over the order's prefixes, with the price's cuts."""
        choices = self._choices(order)
        return mean_value(choices, priced_cuts(choices, self._price), self._price)

    def _stages(self, order: Order) -> list[Subset]:
        """The prefixes in use at some price, at most as many as the effort allows."""
        choices, sets = self._choices(order), self._prefixes(order)
        used = sorted({k for times in SPREAD for k in priced_cuts(choices, times * self._price)}) or [len(sets) - 1]
        n_stages = min(self.search.problem.effort.max_stages, len(used))
        places = np.unique(np.linspace(0, len(used) - 1, n_stages).round().astype(int))
        return [sets[used[k]] for k in places]

    def _choices(self, order: Order) -> Choices:
        sets = self._prefixes(order)
        for subset, probe in zip(sets, self.search.probes(sets), strict=True):
            if subset not in self._meetings:
                wrong = self._losses(probe)
                cost = self._costs[:, list(subset)].sum(axis=1)
                self._meetings[subset] = Meeting(probe.sure, None, wrong, cost)
        return Choices([self._meetings[s] for s in sets], self._cloud_wrong, self._cloud_cost, self._weight)

    def _prefixes(self, order: Order) -> list[Subset]:
        """The order's sets, without sensors that are over the budget when they come; the empty set if all are."""
        sets, bought = list[Subset](), list[int]()
        for s in order:
            if self.search.problem.is_affordable([*bought, s]):
                bought.append(s)
                sets.append(tuple(sorted(bought)))
        return sets or [()]

    def _losses(self, probe: Probe) -> np.ndarray:
        """Expected loss of the probe's answer to each probed row, (n_probed,)."""
        return self._kind.expected(probe.sure, None, (), probe.label, self._y, self._weight)


def _row_costs(search: SubsetSearch) -> tuple[np.ndarray, np.ndarray]:
    """Cost of each sensor for each probed row, (n_probed, n_sensors), and of a request, (n_probed,); no start."""
    problem, n = search.problem, len(search.probed)
    sizes = None if search.judge.sizes is None else search.judge.sizes[search.probed]
    costs = problem.row_costs(problem.single_sensors, sizes) - problem.start_cost
    request_cost = problem.row_costs([problem.hpc_sensors], sizes, 1)[:, 0] - problem.start_cost
    return np.maximum(np.broadcast_to(costs, (n, costs.shape[1])), 1e-9), np.broadcast_to(request_cost, n)


def _order(path: list[Subset], others: Subset) -> Order:
    """Sensors in the order in which the path, from small to large sets, adds them; then the others."""
    order = tuple(next(iter(set(b) - set(a))) for a, b in pairwise(sorted(path, key=len)))
    return (*order, *(s for s in others if s not in order))


def _neighbours(order: Order) -> Iterator[Order]:
    """Orders with one of the first sensors moved forward, or two of them swapped."""
    for i in range(min(REACH, len(order))):
        for j in range(i + 1, min(REACH, len(order))):
            yield (*order[:i], order[j], *order[i:j], *order[j + 1 :])
            if j > i + 1:
                yield (*order[:i], order[j], *order[i + 1 : j], order[i], *order[j + 1 :])
