# SPDX-License-Identifier: Apache-2.0
"""Prices: errors that a unit of cost is worth, the Lagrange multipliers at which policies are trained.

Where errors have costs in the unit of all other costs, the one price that counts is known.
"""

from __future__ import annotations

import numpy as np

from ..data.problem import Problem

__all__ = ["prices"]


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
