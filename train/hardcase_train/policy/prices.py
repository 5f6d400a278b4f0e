# SPDX-License-Identifier: Apache-2.0
"""Prices: errors that a unit of cost is worth, the Lagrange multipliers at which policies are trained."""

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

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> [f"{price:.5f}" for price in prices(SimpleNamespace(cost_unit=200.0), 3, 0.01, 1.0)]
    ['0.00005', '0.00050', '0.00500']
    """
    return [float(price) for price in np.geomspace(lowest, highest, n) / problem.cost_unit]
