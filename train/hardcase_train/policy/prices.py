# SPDX-License-Identifier: Apache-2.0
"""Prices: errors that a unit of cost is worth, the Lagrange multipliers at which policies are trained.

Where errors have costs in the unit of all other costs, the one price that counts is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from ..data.problem import Problem
from .front import Point

LEAST_GAIN = 0.002  # of quality above the mixture of two points, for which a price between theirs is tried


def prices(problem: Problem, n: int, lowest: float, highest: float) -> list[float]:
    """A rising geometric series of prices, in errors (or loss) per unit of cost.

    Parameters
    ----------
    n : number of prices, at least 1
    lowest, highest : above 0, errors (or loss) for ``problem.cost_unit``, the cost of the most expensive case

    If errors have costs, their own price (``problem.exchange``) is among them, and alone if ``n`` is 1.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> problem = SimpleNamespace(cost_unit=200.0, exchange=None)
    >>> [f"{price:.5f}" for price in prices(problem, 3, 0.01, 1.0)]
    ['0.00005', '0.00050', '0.00500']
    """
    series = [float(price) for price in np.geomspace(lowest, highest, n) / problem.cost_unit]
    return series if problem.exchange is None else sorted({*(series if n > 1 else ()), problem.exchange})


def over_prices(make: Callable[[float], Point], grid: Sequence[float]) -> list[Point]:
    """A point for each price of a grid, and for prices between them where the grid leaves the front a gap.

    At most as many prices are added as the grid has gaps. docs/math.md, section 12.

    Parameters
    ----------
    make : the point learned for a price
    grid : rising prices, in errors per unit of cost
    """
    found = {price: make(price) for price in grid}
    for _ in pairwise(grid):
        price = _between(found)
        if price is None or price in found:
            break
        found[price] = make(price)
    return [found[price] for price in sorted(found)]


def _between(found: Mapping[float, Point]) -> float | None:
    """The price at which two neighbours are worth the same, of those between which the most may lie; None if little.

    A policy that is better than both at some price lies below both lines of its price through the neighbours, so above
    their mixture at most by the height of the triangle that these make with it.
    """
    best, gain = None, LEAST_GAIN
    for low, high in pairwise(sorted(found)):
        dear, cheap = found[low].valid, found[high].valid
        cost = dear.cost - cheap.cost
        slope = (dear.quality - cheap.quality) / cost if cost > 0 else 0.0
        if low < slope < high:
            height = cost * (high - slope) * (slope - low) / (high - low)
            if height > gain:
                best, gain = slope, height
    return best
