# SPDX-License-Identifier: Apache-2.0
"""Greedy, Greedy-Acc and Greedy-Cost: orders of sensors, each a sequence of sets. docs/math.md (103), (104)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .index import Set
from .sets import Costs, mask_of

PRICES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # lambda: accuracy that the cost of all sensors is worth
ACCURACY, CHEAPEST = 0.0, math.inf  # Greedy-Acc looks at nothing else than accuracy, Greedy-Cost at nothing but cost

Order = tuple[int, ...]


@dataclass(frozen=True)
class Sequences:
    """Orders of all sensors, and where to begin.

    orders : each once
    starts : sets that are best for some budget at the size, most accurate first, and the order on which each lies
    size : the item size for which the orders were made
    """

    orders: tuple[Order, ...]
    starts: tuple[tuple[Set, int], ...]
    size: int

    @property
    def masks(self) -> tuple[int, ...]:
        """Every set on some order, each once; the empty one is not among them."""
        return tuple(dict.fromkeys(mask for order in self.orders for mask in prefixes(order)))


def prefixes(order: Order) -> list[int]:
    """The sets of an order, from one sensor to all."""
    return [mask_of(order[: k + 1]) for k in range(len(order))]


def sequence(costs: Costs, accuracy: Callable[[int], float], size: int, price: float) -> Order:
    """The order in which sensors are added: always the one of the greatest gain in accuracy minus ``price`` times cost.

    Parameters
    ----------
    accuracy : of a set; called for every set that is compared, and for an infinite price for none
    size : of the item whose costs are compared
    price : ``CHEAPEST`` adds the cheapest sensor
    """
    amounts = costs.at(size)
    whole = max(float(amounts[-1]), 1.0)
    order: list[int] = []
    while len(order) < costs.n:
        options = [k for k in range(costs.n) if k not in order]
        if price == CHEAPEST:
            order.append(min(options, key=lambda k: (amounts[1 << k], k)))
            continue
        now = mask_of(order)
        gains = {k: accuracy(now | 1 << k) - price * amounts[1 << k] / whole for k in options}
        order.append(min(options, key=lambda k: (-gains[k], amounts[1 << k], k)))
    return tuple(order)


def make_sequences(
    costs: Costs, accuracy: Callable[[int], float], size: int, prices: Sequence[float] = PRICES
) -> Sequences:
    """The sequences of some prices at one size, with the skyline of their sets at that size."""
    orders = tuple(dict.fromkeys(sequence(costs, accuracy, size, price) for price in prices))
    amounts = costs.at(size)
    on = {mask: k for k, order in reversed(list(enumerate(orders))) for mask in prefixes(order)}
    line: list[tuple[Set, int]] = []
    for mask in sorted(on, key=lambda m: (amounts[m], -accuracy(m), m)):
        if not line or accuracy(mask) > line[-1][0].accuracy:
            line.append((Set(mask, costs.of(mask), accuracy(mask)), on[mask]))
    return Sequences(orders, tuple(reversed(line)), size)
