# SPDX-License-Identifier: Apache-2.0
"""The index: for every item size, the sets that are best for some budget. docs/math.md (100) to (102).

Candidates are expanded sets that no other one makes superfluous for all sizes. A sweep over the sizes keeps them sorted
by cost; their order changes only where two neighbours cross, and a pair may cross more than once.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hardcase_edge.program.cost import evaluate_polynomial

from .search import Searched
from .sets import Polynomial
from .signs import Runs, is_never_below, minus, next_below, sign_runs


@dataclass(frozen=True)
class Set:
    """A sensor set with its cost and accuracy; ``mask`` has a bit for each sensor."""

    mask: int
    cost: Polynomial
    accuracy: float

    def at(self, size: int) -> int:
        """Its cost in micro-units for an item of this size."""
        return evaluate_polynomial(self.cost, size)


def candidates(found: Searched) -> list[Set]:
    """The expanded sets that may be best for some size and budget, most accurate first.

    A set is left out if another one is nowhere dearer and at least as accurate. Alpha has no part in it: if it had,
    the sets left out could add their factor to that of the search.
    """
    sets = [Set(mask, found.costs.of(mask), accuracy) for mask, accuracy in found.accuracy.items()]
    best_sets: list[Set] = []
    for one in sorted(sets, key=lambda s: (-s.accuracy, s.at(found.costs.largest), s.mask)):
        if not any(is_superfluous(one, other, found.costs.largest) for other in best_sets):
            best_sets = [other for other in best_sets if not is_superfluous(other, one, found.costs.largest)] + [one]
    return best_sets


def is_superfluous(one: Set, other: Set, largest: int) -> bool:
    """Whether ``other`` serves wherever ``one`` does, and is nowhere worse."""
    return other.accuracy >= one.accuracy and is_never_below(minus(one.cost, other.cost), 1, largest)


@dataclass(frozen=True)
class Index:
    """Ranges of sizes with the skyline of each: from ``starts[k]`` on, ``skylines[k]``, by rising cost and accuracy.

    largest : the last size of the last range
    """

    starts: tuple[int, ...]
    skylines: tuple[tuple[Set, ...], ...]
    largest: int

    @cached_property
    def _costs(self) -> tuple[tuple[Polynomial, ...], ...]:
        """The coefficients of each entry, of the highest degree first, as Horner's rule takes them."""
        return tuple(tuple(s.cost[::-1] for s in line) for line in self.skylines)

    @property
    def n_entries(self) -> int:
        """The number of entries of all ranges together."""
        return sum(map(len, self.skylines))

    @cached_property
    def sets(self) -> tuple[Set, ...]:
        """The sets on a skyline of some size, most accurate first: these are shipped."""
        distinct = {s.mask: s for line in self.skylines for s in line}
        return tuple(sorted(distinct.values(), key=lambda s: (-s.accuracy, s.mask)))

    def pick(self, size: int, budget: int) -> Set | None:
        """Problem 1: the most accurate set that fits; None if none does."""
        part = bisect_right(self.starts, size) - 1
        costs = self._costs[part]
        low, high = 0, len(costs)
        while low < high:
            middle, amount = (low + high) >> 1, 0
            for c in costs[middle]:
                amount = amount * size + c
            if amount <= budget:
                low = middle + 1
            else:
                high = middle
        return self.skylines[part][low - 1] if low else None

    def of_size(self, size: int) -> list[tuple[int, Set]]:
        """Problem 2: for items of this size, each budget from which on a set is the best."""
        return [(s.at(size), s) for s in self.skylines[bisect_right(self.starts, size) - 1]]

    def of_budget(self, budget: int) -> list[tuple[int, Set | None]]:
        """Problem 3: with this budget, each size from which on a set is the best; None: nothing fits.

        Costs rise with the size, so within a range the best set only changes where the best one no longer fits.
        """
        answers: list[tuple[int, Set | None]] = []
        for start, end in zip(self.starts, [*self.starts[1:], self.largest + 1], strict=True):
            size = start
            while size < end:
                best = self.pick(size, budget)
                if not answers or answers[-1][1] != best:
                    answers.append((size, best))
                if best is None:
                    break
                size = _first_above(best.cost, size, end, budget)
        return answers


def _first_above(cost: Polynomial, low: int, high: int, budget: int) -> int:
    """The first size from ``low`` on at which the cost exceeds the budget; ``high`` if it is not below that."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if evaluate_polynomial(cost, middle) > budget else (middle + 1, high)
    return low


def make_index(sets: Sequence[Set], largest: int) -> Index:
    """The index of these sets for sizes from 1 to ``largest``, by a sweep over the crossings of neighbours."""
    sweep = _Sweep(sets, largest)
    starts, skylines = [1], [sweep.skyline()]
    for size in sweep:
        skyline = sweep.skyline()
        if skyline != skylines[-1]:
            starts.append(size)
            skylines.append(skyline)
    return Index(tuple(starts), tuple(skylines), largest)


class _Sweep:
    """Sets sorted by cost, cheapest first, while the size grows; iteration yields the sizes where skylines may change.

    Of equal costs, the more accurate set comes first.
    """

    def __init__(self, sets: Sequence[Set], largest: int) -> None:
        self._sets, self._largest, self._size = list(sets), largest, 1
        self._order = sorted(range(len(sets)), key=lambda k: (sets[k].at(1), -sets[k].accuracy, k))
        self._place = {k: place for place, k in enumerate(self._order)}
        self._runs: dict[tuple[int, int], Runs] = {}
        self._events: list[tuple[int, int, int]] = []
        for place in range(len(sets) - 1):
            self._watch(place)

    def skyline(self) -> tuple[Set, ...]:
        """The sets that are better than all cheaper ones."""
        best, line = float("-inf"), []
        for k in self._order:
            if self._sets[k].accuracy > best:
                best = self._sets[k].accuracy
                line.append(self._sets[k])
        return tuple(line)

    def __iter__(self) -> Iterator[int]:
        while self._events:
            self._size = self._events[0][0]
            has_changed = False
            while self._events and self._events[0][0] == self._size:
                _, first, second = heapq.heappop(self._events)
                place = self._place[first]
                if place + 1 < len(self._order) and self._order[place + 1] == second:
                    self._swap(place)
                    has_changed = True
            if has_changed:
                yield self._size

    def _swap(self, place: int) -> None:
        """Exchange two neighbours."""
        one, other = self._order[place : place + 2]
        self._order[place : place + 2] = [other, one]
        self._place[one], self._place[other] = place + 1, place
        for near in (place - 1, place, place + 1):
            if 0 <= near < len(self._order) - 1:
                self._watch(near)

    def _watch(self, place: int) -> None:
        """Note where this set and the next one change places, from the present size on: every time, not only once."""
        one, other = self._order[place : place + 2]
        size = next_below(self._difference(other, one), self._size, ties=self._is_ahead(other, one))
        if size is not None:
            heapq.heappush(self._events, (size, one, other))

    def _is_ahead(self, one: int, other: int) -> bool:
        """Whether one comes first where their costs are equal."""
        return (-self._sets[one].accuracy, one) < (-self._sets[other].accuracy, other)

    def _difference(self, one: int, other: int) -> Runs:
        """The signs of the cost of one minus that of the other."""
        if (one, other) not in self._runs:
            runs = sign_runs(minus(self._sets[one].cost, self._sets[other].cost), 1, self._largest)
            self._runs[one, other] = runs
            self._runs[other, one] = tuple((start, -sign) for start, sign in runs)
        return self._runs[one, other]


# ---------------------------------------------------------------- baselines


def index_all(sets: Sequence[Set], largest: int) -> Index:
    """Poly-Dom-Index-All: a range from each crossing of any two sets on, whether or not the skyline changes."""
    crossings = {1}
    for k, one in enumerate(sets):
        for other in sets[:k]:
            crossings |= {start for start, _ in sign_runs(minus(one.cost, other.cost), 1, largest)}
    starts = sorted(crossings)
    skylines = []
    for size in starts:
        best, line = float("-inf"), []
        for one in sorted(sets, key=lambda s: (s.at(size), -s.accuracy, s.mask)):
            if one.accuracy > best:
                best = one.accuracy
                line.append(one)
        skylines.append(tuple(line))
    return Index(tuple(starts), tuple(skylines), largest)


def naive_lookup(sets: Sequence[Set], size: int, budget: int) -> Set | None:
    """Naive-Lookup: the most accurate set that fits, from all of them; ``sets`` most accurate first."""
    return next((s for s in sets if evaluate_polynomial(s.cost, size) <= budget), None)
