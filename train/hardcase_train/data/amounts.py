# SPDX-License-Identifier: Apache-2.0
"""Amounts of cost as people write them: a number, or the coefficients of a polynomial in an item's size."""

from __future__ import annotations

from typing import Any

import numpy as np

from hardcase_edge.errors import InputError
from hardcase_edge.program.limits import MAX_COEFFICIENTS

__all__ = ["MAX_COST", "check_amount", "check_cost"]

MAX_COST = 1e9


def check_amount(what: str, value: Any) -> float:
    """Check a cost in the user's unit.

    Raises
    ------
    InputError
        The value is not a number from 0 to 1e9.
    """
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MAX_COST:  # a comparison with NaN is false
        raise InputError(f"{what} is {str(value)[:40]}, a cost from 0 to {MAX_COST:g} is expected")
    return float(value)


def check_cost(what: str, cost: Any) -> float | tuple[float, ...]:
    """Check a sensor's cost: an amount, or up to 8 coefficients c0, c1, ... of c0 + c1 s + ... for an item of size s.

    Raises
    ------
    InputError
        There are more coefficients, or one is not a number from 0 to 1e9.

    Examples
    --------
    >>> check_cost("the cost", 2), check_cost("the cost", [0.5, 1])
    (2.0, (0.5, 1.0))
    """
    if not isinstance(cost, list | tuple):
        return check_amount(what, cost)
    if not 1 <= len(cost) <= MAX_COEFFICIENTS:
        raise InputError(
            f"{what} has {len(cost)} coefficients, 1 to {MAX_COEFFICIENTS} are allowed; give fewer or more"
        )
    return tuple(check_amount(f"{what}, coefficient {k},", c) for k, c in enumerate(cost))
